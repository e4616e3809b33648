"""`persfl shard`: the rows of a folder of files, sorted by device into shards."""

from __future__ import annotations

import argparse
import json
import sys

from persfl.checks import many, percent
from persfl.commands.answers import seconds
from persfl.scale.sharding import shard_folder


def shard_rows(chosen: argparse.Namespace) -> int:
    """Make a folder of shards."""
    live = sys.stderr.isatty() and not chosen.json

    def say(what: str, share: float) -> None:
        if live:
            part = f" {percent(share)}" if share < 1 else ""
            print(f"\r\x1b[2K{what}{part}", end="", file=sys.stderr, flush=True)

    index = shard_folder(
        chosen.folder,
        chosen.out,
        device=chosen.device,
        shards=chosen.shards,
        group=chosen.group_rows,
        say=say,
    )
    if live:
        print("\r\x1b[2K", end="", file=sys.stderr)
    facts = {
        "devices": index.devices,
        "rows": index.rows,
        "shards": len(index.shards),
        "out": str(chosen.out),
    }
    if chosen.json:
        print(json.dumps(facts))
        return 0
    counts = [many(index.devices, "device"), many(index.rows, "row")]
    shards = many(len(index.shards), "shard")
    print(f"{', '.join(counts)} in {shards} in {chosen.out}; {seconds(chosen)}.")
    return 0
