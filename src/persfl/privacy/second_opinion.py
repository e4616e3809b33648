"""What another accountant says of the same answers: Google's `dp-accounting`, by privacy loss
distributions. It needs the extra `privacy`; nothing else here does.
"""

from __future__ import annotations

from collections.abc import Sequence

from persfl.errors import need


def other_epsilon(multipliers: Sequence[float], delta: float) -> float:
    """The epsilon of answers with these noise multipliers; an upper bound, rounded up to a
    grid.
    """
    need("dp_accounting", extra="privacy", why="a second opinion")
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    book = PLDAccountant()
    for multiplier in multipliers:
        book.compose(dp_accounting.GaussianDpEvent(multiplier))
    return float(book.get_epsilon(delta))
