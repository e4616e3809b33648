"""A module of the user's own, named on the command line: FILE.py or FILE.py:NAME."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from persfl.checks import some
from persfl.errors import InputError

USUAL = "make"


def in_a_file(model: str) -> bool:
    """Whether a model's name is that of a file."""
    return ".py" in model


def file_and_name(text: str) -> tuple[Path, str]:
    """The file and the name in it.

    >>> file_and_name("nets/mine.py:Wide")[1], file_and_name("mine.py")[1]
    ('Wide', 'make')
    """
    path, colon, name = text.rpartition(":")
    return (Path(path), name) if colon and path.endswith(".py") else (Path(text), USUAL)


def load_module(text: str) -> Any:
    """What the file calls by that name: a module, a class of modules, or a function that makes
    one. Runs the file.
    """
    path, name = file_and_name(text)
    if path.suffix != ".py" or not path.is_file():
        raise InputError(
            f"{str(path)!r} is not a Python file. Name one and what it defines: FILE.py:NAME."
        )
    spec = importlib.util.spec_from_file_location(f"persfl_user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None  # both hold for every .py file
    module = importlib.util.module_from_spec(spec)
    # dataclasses and the like look their module up there
    sys.modules[spec.name] = module
    sys.path.append(str(path.resolve().parent))  # for what lies beside the file
    try:
        spec.loader.exec_module(module)
    # it is the user's code, and may do anything
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{str(path)!r} cannot be run: {type(error).__name__}: {error}"
        ) from error
    known = vars(module)
    if name in known:
        return known[name]
    public = [key for key in known if callable(known[key]) and not key.startswith("_")]
    raise InputError(
        f"{str(path)!r} has no {name!r}. It defines {some(public, 5) if public else 'nothing'}:"
        f" use {path}:NAME."
    )
