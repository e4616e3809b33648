"""Data with other people's numbers, which no repository of ours holds: tests without it skip."""

import os
from pathlib import Path

import pandas as pd
import pytest

FOLDER = os.environ.get("PERSFL_PUBLISHED", "")


def published(name):
    """A table of the folder that PERSFL_PUBLISHED names; the test is skipped without it."""
    path = Path(FOLDER) / name
    if not FOLDER or not path.is_file():
        pytest.skip(f"PERSFL_PUBLISHED names no folder with {name}")
    return pd.read_csv(path)
