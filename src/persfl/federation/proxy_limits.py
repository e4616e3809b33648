"""What the proxy lets through: `[proxy]` in federation.toml.

A connection that has not shown a known key yet is a stranger's. Strangers get little time and
little room, and when there are too many of them the oldest has to go: an honest node shows its key
within a moment of coming, whoever holds a connection open does not. Only bodies of known keys are
read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from persfl.checks import real, whole
from persfl.errors import InputError
from persfl.federation.plain_settings import settings_from


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

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float):
                real(name, value, above=0)
            else:
                whole(name, value, least=1)
        for name in ("bodies", "bodies_per_member"):
            size = vars(self)[name]
            if size < self.body:
                raise InputError(
                    f"{name} must be at least body ({self.body}). Got {size}."
                )

    @staticmethod
    def of(told: object) -> Limits:
        """Limits from what a file says."""
        return settings_from(Limits, told, "[proxy]")

    def text(self) -> str:
        """As a table of federation.toml."""
        return "[proxy]\n" + "".join(
            f"{name} = {value}\n" for name, value in asdict(self).items()
        )
