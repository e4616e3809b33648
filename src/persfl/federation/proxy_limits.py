"""What the proxy lets through: `[proxy]` in federation.toml.

A connection that has not shown a known key yet is a stranger's. Strangers get little time and
little room, and when there are too many of them the oldest has to go: an honest node shows its key
within a moment of coming, whoever holds a connection open does not. Only bodies of known keys are
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from persfl.checks import real, whole
from persfl.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the proxy, each a setting of federation.toml.

    >>> Limits.of({"header_seconds": 5}).header_seconds
    5.0
    >>> Limits.of({"headr_seconds": 5})
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: [proxy] has no setting 'headr_seconds'. Did you mean 'header_seconds'?
    """

    header_seconds: float = 10.0  # for TLS and the headers of a request together
    idle_seconds: float = 30.0  # between two requests of a node
    body_seconds: float = 20.0  # on top of what a body needs at the least rate
    least_rate: int = 20_000  # bytes a second, of a body on its way in or out
    strangers: int = 256  # connections that have not shown a known key
    strangers_per_address: int = 32  # of one address: many nodes may be behind one
    connections_per_member: int = 64  # of one known key
    # bytes of one body: the largest message, and what Flower puts around it
    body: int = 65 * 2**20
    bodies: int = 2**30  # bytes of all bodies that are on their way at once
    # and of one known key: one member alone cannot keep the others out
    bodies_per_member: int = 2**28

    @staticmethod
    def of(told: Any) -> Limits:
        """Limits from what a file says; a setting that is not known is an error."""
        if not isinstance(told, Mapping):
            raise InputError(f"[proxy] must be a table of settings. Got {told!r}.")
        given = {}
        for name, value in told.items():
            given[_known(str(name))] = value
        for one in fields(Limits):
            if one.name not in given:
                continue
            value = given[one.name]
            if one.type == "float":
                given[one.name] = float(real(one.name, value, above=0))
            else:
                given[one.name] = whole(one.name, value, least=1)
        made = Limits(**given)
        for name in ("bodies", "bodies_per_member"):
            if getattr(made, name) < made.body:
                raise InputError(
                    f"{name} must be at least body ({made.body}). Got {getattr(made, name)}."
                )
        return made

    def text(self) -> str:
        """As a table of federation.toml."""
        return "[proxy]\n" + "".join(
            f"{name} = {value}\n" for name, value in asdict(self).items()
        )


def _known(name: str) -> str:
    from difflib import get_close_matches

    names = [one.name for one in fields(Limits)]
    if name in names:
        return name
    near = get_close_matches(name, names, 1)
    hint = f" Did you mean {near[0]!r}?" if near else f" It has {', '.join(names)}."
    raise InputError(f"[proxy] has no setting {name!r}.{hint}")
