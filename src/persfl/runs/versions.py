"""What a run ran with: the versions of Python and of the packages that its numbers rest on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "persfl",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "numba",
    "pyarrow",
    "torch",
    "safetensors",
)


def versions() -> dict[str, str | None]:
    """By package; None where one is not installed.

    >>> sorted(versions())[:3]
    ['numba', 'numpy', 'pandas']
    """
    return {"python": platform.python_version()} | {
        name: _version(name) for name in PACKAGES
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
