"""Which kind of run a folder holds, told by the names in it: cheap, before anything is imported."""

from __future__ import annotations

from pathlib import Path

SHARDED = "sharded.json"  # of a run over shards: what was asked, and what came out


def is_sharded(folder: str | Path) -> bool:
    """Whether this is the folder of a run over shards."""
    return (Path(folder) / SHARDED).is_file()
