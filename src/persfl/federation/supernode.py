"""Flower's SuperNode, as `flower-supernode` starts it, but looking for messages every half second
instead of every three.

A round is two exchanges with every node, and an idle SuperNode sleeps between two looks for a time
that Flower fixes in its code. The version of Flower is pinned, so the one name that is replaced
here is there.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

from persfl.federation import flower_api

IDLE = 0.5


def run_supernode() -> None:
    """Run the SuperNode with the arguments of the command line."""
    # says in words if this Flower has no such name to replace
    _ = flower_api.supernode_clock
    sleep = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, IDLE)))
    flower_api.supernode_module.time = sleep
    flower_api.supernode_command()


if __name__ == "__main__":
    sys.exit(run_supernode())  # type: ignore[func-returns-value]
