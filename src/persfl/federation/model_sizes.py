"""How many bytes the models of devices take.

Trees have no size of their own, and what one device answers travels on to others, in a message with
the answers of many. One device alone must not make that message too large for everybody.
"""

from __future__ import annotations

from collections.abc import Mapping

from persfl.methods.blend.fixed_point import LONG
from persfl.wire.codec import LARGEST


class ModelSizes:
    """What models of each device took last; what is usual is the middle one, of two the smaller.

    >>> sizes = ModelSizes()
    >>> for device, size in enumerate((3_000, 4_000, LARGEST - 2_000)):
    ...     sizes.note(device, size)
    >>> sizes.is_too_large(4_000), sizes.is_too_large(LARGEST - 2_000)
    (False, True)
    """

    def __init__(self, last: Mapping[str, int] | None = None) -> None:
        self._last = {int(device): int(size) for device, size in (last or {}).items()}

    def note(self, device: int, size: int) -> None:
        """Remember a model of a device."""
        self._last[device] = size

    def is_too_large(self, size: int) -> bool:
        """Whether a model takes more than ten usual ones, and much of a message."""
        known = sorted(self._last.values())
        usual = known[(len(known) - 1) // 2]
        return size > max(LONG * usual, LARGEST // 64)

    def to_plain(self) -> dict[str, int]:
        """What JSON takes, for going on later."""
        return {str(device): size for device, size in self._last.items()}
