"""`persfl methods`: what there is to choose from."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Mapping
from typing import Any

from persfl.commands.progress import table
from persfl.methods.listing import descriptions

WIDTH = 88


def methods(chosen: argparse.Namespace) -> int:
    """All methods, or one of them with its equation and settings."""
    found = descriptions(chosen.name)
    if chosen.json:
        print(json.dumps(found if chosen.name is None else found[0]))
        return 0
    for one in found:
        print("\n".join(_lines(one)))
    if chosen.name is None:
        print("\npersfl methods NAME shows a method's settings.")
        return 0
    if found[0]["details"]:
        print("\n" + textwrap.indent(found[0]["details"], "    "))
    settings = found[0]["settings"]
    if settings:
        print()
        rows = [(one["name"], str(one["default"]), one["meaning"]) for one in settings]
        table(("setting", "default", "meaning"), rows)
    return 0


def _lines(one: Mapping[str, Any]) -> list[str]:
    over = "yes" if one["federated"] else f"no. {one['why_not_federated']}"
    facts = [
        f"{one['about']}.",
        f"told: {one['told'] or 'nothing'}; models: {one['models']}",
        f"leaves a device: {one['leaves']}",
        f"over a federation: {over}",
    ]
    if one["source"]:
        facts.insert(1, f"source: {one['source']}")
    lines = [one["name"]]
    for fact in facts:
        lines += textwrap.wrap(
            fact, WIDTH, initial_indent="    ", subsequent_indent="        "
        )
    return lines
