"""Sums once, or steps: a rule by what everybody may know, never by the rows.

Noised sums of products answer every question of squared loss at once, but their noise is spread
over the square of the number of columns: its largest direction is about (d + 2)^1.5 multipliers,
against as many as there are rows. Noised steps go one direction at a time.
"""

from __future__ import annotations

# How many spreads wide a declared range is taken to be: bell-shaped values have about 6 (even ones
# 3.5, two values 2, and rows that are longer for it are scaled down)
WIDTH = 6.0
FEW = 10  # columns up to which sums are told whatever is known of rows
ROOM = (
    2.0  # rows, where their number is public, per unit of the noise's largest direction
)


def prefers_sums(features: int, rows: float, noise: float) -> bool:
    """Whether sums over rows are told, of so many columns and about so many rows (0: not
    known), with this noise multiplier.

    >>> prefers_sums(5, 0, 1.4), prefers_sums(28, 100, 1.4), prefers_sums(28, 1000, 1.4)
    (True, False, True)
    """
    if features <= FEW:
        return True
    return bool(rows >= ROOM * noise * (features + 2.0) ** 1.5)
