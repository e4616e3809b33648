"""Parameters of an estimator that have moved into methods, and attributes that show a part of its
`Fitted`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Generic, ParamSpec, Protocol, TypeVar, overload

from persfl.errors import InputError

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted

P = ParamSpec("P")
# the method that an estimator went by where one of these was given
MOVED = {
    "peers": "Paper",
    "rounds": "Paper",
    "step_size": "Paper",
    "adopter": "Paper",
    "online_rounds": "Paper",
    "budget": "Blend",
}


def names_methods(init: Callable[P, None]) -> Callable[P, None]:
    """A constructor that, handed a parameter that has moved, says how it is spelled now.

    It keeps its signature, by which scikit-learn knows an estimator's parameters.
    """

    @wraps(init)
    def checked(*args: P.args, **given: P.kwargs) -> None:
        refuse_moved(type(args[0]).__name__, given)
        init(*args, **given)

    return checked


def refuse_moved(estimator: str, given: Mapping[str, object]) -> None:
    """Stop at a parameter that has moved, with its new spelling.

    >>> refuse_moved("PersonalizedRegressor", {"rounds": 50, "peers": 5})
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: rounds and peers are settings of a method now: use
    PersonalizedRegressor(method=Paper(rounds=50, peers=5)), with Paper from persfl.methods.
    """
    names = [name for name in given if name in MOVED]
    if not names:
        return
    kind = "Paper" if "Paper" in {MOVED[name] for name in names} else "Blend"
    mine = ", ".join(f"{name}={given[name]!r}" for name in names if MOVED[name] == kind)
    what = "is a setting" if len(names) == 1 else "are settings"
    raise InputError(
        f"{' and '.join(names)} {what} of a method now: use {estimator}(method={kind}({mine})),"
        f" with {kind} from persfl.methods."
    )


T = TypeVar("T")


class Facade(Protocol):
    """An estimator, which has its result once it is fitted."""

    @property
    def fitted_(self) -> Fitted: ...


class FromFit(Generic[T]):
    """A field of the result under scikit-learn's name; missing, as scikit-learn wants it, before
    the fit.
    """

    def __init__(self, field: str) -> None:
        self.field = field

    @overload
    def __get__(self, owner: None, kind: type) -> FromFit[T]: ...
    @overload
    def __get__(self, owner: Facade, kind: type) -> T: ...
    def __get__(self, owner: Facade | None, kind: type) -> T | FromFit[T]:
        if owner is None:
            return self
        value: T = getattr(owner.fitted_, self.field)
        return value
