"""What can go wrong, as a tree.

    PersflError
      InputError      (ValueError)        something handed in is unusable; the message says what,
      where and what to do Diverged        (ArithmeticError)   every answer overflowed; the models
      of the last good round are kept NotReady        (RuntimeError)      a stream has not enough
      new rows for a round CannotMix       (TypeError)         an adopter wants to average models
      that cannot be averaged MissingExtra    (ImportError)       an optional package is not
      installed; the message has the line to type
    PersflWarning     (UserWarning)       the run goes on, but a person should know
      NoDevicesWarning    fit was not told whose rows these are: all of them count as one device's
      UnseenWarning       rows of devices that were not there when fitting are predicted by one
      model for all

>>> from persfl.errors import InputError
>>> issubclass(InputError, ValueError)
True
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType


class PersflError(Exception):
    """Base of everything persfl raises on purpose."""


class InputError(PersflError, ValueError):
    """Something handed in is unusable."""


class Diverged(PersflError, ArithmeticError):
    """Every answer made a target's loss overflow."""

    def __init__(self, message: str, *, round: int, device: object) -> None:
        super().__init__(message)
        self.round = round
        self.device = device


class NotReady(PersflError, RuntimeError):
    """A stream has not enough new rows for a round."""


class CannotMix(PersflError, TypeError):
    """Models of this family cannot be averaged."""


class MissingExtra(PersflError, ImportError):
    """An optional package is not installed."""


class PersflWarning(UserWarning):
    """The run goes on, but a person should know."""


class NoDevicesWarning(PersflWarning):
    """Nobody said whose rows these are, so all of them count as one device's."""


class UnseenWarning(PersflWarning):
    """Devices that were not there when fitting are predicted by one model for all."""


def need(module: str, *, extra: str, why: str) -> ModuleType:
    """Import an optional module, or say which line to type.

    >>> need("json", extra="none", why="reading JSON").__name__
    'json'
    """
    known = module.split(".")[0] in sys.modules
    try:
        with contextlib.nullcontext() if known else elsewhere():
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{why} needs the package {module.split('.')[0]!r}, which is not installed. Type: pip"
            f" install 'persfl[{extra}]'"
        ) from error


_door = threading.RLock()


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """Stand in the root of the disk for a moment.

    Where some packages are imported they read settings from the folder that one stands in. It may
    be somebody else's, and the settings may name code to run. One thread at a time: of two, one
    would take the root for the folder to go back to.
    """
    with _door:
        try:
            here = os.getcwd()
        except FileNotFoundError:  # removed, and nothing is read there
            yield
            return
        os.chdir(Path(__file__).anchor)
        try:
            yield
        finally:
            os.chdir(here)


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
