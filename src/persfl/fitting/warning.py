"""Warnings that point at the user's own line."""

from __future__ import annotations

import inspect
import warnings

from persfl.errors import PersflWarning


def warn(text: str, kind: type[Warning] = PersflWarning) -> None:
    """Warn at the line of whoever called persfl."""
    frame = inspect.currentframe()
    level = 1
    while frame is not None and _inside(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level = level + 1
    warnings.warn(text, kind, stacklevel=level)


def _inside(module: str) -> bool:
    return module.split(".")[0] == "persfl"
