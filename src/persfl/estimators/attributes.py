"""Attributes of a fitted estimator that show a part of its `Fitted`."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar, overload

from persfl.fitting import Fitted

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
