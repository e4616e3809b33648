"""Settings of methods: fields of a frozen dataclass, each with a default and a meaning.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Ask(MethodSettings):
...     peers: int = setting(20, "how many peers are asked")
>>> Ask().set_params(peers=3), Ask().get_params()
(Ask(peers=3), {'peers': 20})
>>> settings_of(Ask(peers=3))
[Setting(name='peers', value=3, default=20, meaning='how many peers are asked')]
>>> Ask().set_params(peer=3)
Traceback (most recent call last):
...
persfl.errors.InputError: Ask has no setting 'peer'. It has: peers.
"""

from __future__ import annotations

from dataclasses import Field, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from persfl.errors import InputError

T = TypeVar("T")


def setting(default: T, meaning: str) -> T:
    """A field of a method, with its default and one line on what it means."""
    made: Any = field(default=default, metadata={"meaning": meaning})
    return made  # type: ignore[no-any-return]


class Setting(NamedTuple):
    """One setting of a method, as plain data."""

    name: str
    value: Any
    default: Any
    meaning: str


class MethodSettings:
    """What scikit-learn needs to reach the settings of a method: `method__budget`.

    A method is a value, so `set_params` returns another one instead of changing this; an estimator
    that holds a method takes what it returns.
    """

    source: ClassVar[str] = ""
    """Who described it first, and when; "" where that is not said."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Its settings by name."""
        return {one.name: getattr(self, one.name) for one in _fields(self)}

    def set_params(self, **settings: Any) -> Self:
        """The same method with other settings."""
        known = [one.name for one in _fields(self)]
        for name in settings:
            if name not in known:
                has = f"It has: {', '.join(known)}." if known else "It has none."
                raise InputError(
                    f"{type(self).__name__} has no setting {name!r}. {has}"
                )
        made: Any = self
        return replace(made, **settings) if settings else self


class HasSettings(Protocol):
    """A dataclass that tells its settings."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


def settings_of(method: HasSettings) -> list[Setting]:
    """The settings of a method, in their order."""
    values = method.get_params()
    return [
        Setting(
            one.name, values[one.name], one.default, one.metadata.get("meaning", "")
        )
        for one in _fields(method)
    ]


def _fields(method: HasSettings) -> list[Field[Any]]:
    """A method's own settings first, then those that it shares with others."""
    made: Any = method
    return sorted(fields(made), key=lambda one: bool(one.kw_only))
