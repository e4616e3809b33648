"""Small tables and pictures for notebooks: text in, HTML out, with no file beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDE = 120  # pixels of a picture
TALL = 14
BLUE = "#2f7bbd"
GREY = "#868e98"
ORANGE = "#d2691e"


class Picture(str):
    """HTML that was made here: whatever else stands in a table is taken as text."""

    __slots__ = ()


class Scale(NamedTuple):
    """What the left and the right end of a picture stand for."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where a value stands, in pixels; beyond the edge it stands at the edge.

        >>> Scale(0.0, 1.0).place(0.5), Scale(0.0, 1.0).place(7.0)
        (60.0, 117.0)
        """
        wide = self.high - self.low or 1.0
        share = min(1.0, max(0.0, (value - self.low) / wide))
        return round(3 + (WIDE - 6) * share, 1)


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, marked: int = -1
) -> str:
    """A table; the row `marked` is the one to look at.

    >>> print(html_table(["who"], [["<b>"]]))
    <table><thead><tr><th>who</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>
    """
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = []
    for k, row in enumerate(rows):
        style = ' style="font-weight:bold"' if k == marked else ""
        cells = "".join(f"<td>{markup(cell)}</td>" for cell in row)
        lines.append(f"<tr{style}>{cells}</tr>")
    body = "".join(lines)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def paragraphs(sentences: Sequence[str]) -> str:
    """Each sentence on its own.

    >>> paragraphs(["a < b"])
    '<p>a &lt; b</p>'
    """
    return "".join(f"<p>{escape(each)}</p>" for each in sentences if each)


def markup(cell: str) -> str:
    """A cell as HTML: a picture as it is, a text with nothing in it that is read as markup."""
    return cell if isinstance(cell, Picture) else escape(cell)


def share_bar(share: float, colour: str = BLUE) -> Picture:
    """A share as a bar.

    >>> share_bar(0.5).count('width="60.0"')
    1
    """
    wide = round(WIDE * min(1.0, max(0.0, share)), 1)
    return _drawn(f'<rect y="2" width="{wide}" height="10" fill="{colour}"/>')


def whisker(value: float, low: float, high: float, scale: Scale) -> Picture:
    """A value with its interval, beside 0."""
    if not math.isfinite(value):
        return _drawn("")
    middle = TALL / 2
    zero = scale.place(0.0)
    colour = BLUE if low > 0 else ORANGE if high < 0 else GREY
    parts = [f'<path d="M{zero} 0V{TALL}" stroke="{GREY}" stroke-opacity=".6"/>']
    if math.isfinite(low) and math.isfinite(high):
        ends = f"M{scale.place(low)} {middle}H{scale.place(high)}"
        parts.append(f'<path d="{ends}" stroke="{colour}" stroke-width="2"/>')
    at = scale.place(value)
    parts.append(f'<circle cx="{at}" cy="{middle}" r="3.5" fill="{colour}"/>')
    return _drawn("".join(parts))


def curve(values: Sequence[float]) -> Picture:
    """Numbers one after the other, as a line."""
    known = [value for value in values if math.isfinite(value)]
    if len(known) < 2:
        return _drawn("")
    across = Scale(0.0, len(known) - 1.0)
    least = min(known)
    wide = max(known) - least or 1.0
    points = [
        f"{across.place(k)},{round(2 + (TALL - 4) * (1 - (value - least) / wide), 1)}"
        for k, value in enumerate(known)
    ]
    line = f'points="{" ".join(points)}" fill="none" stroke="{BLUE}"'
    return _drawn(f"<polyline {line}/>")


def _drawn(inside: str) -> Picture:
    box = f'width="{WIDE}" height="{TALL}" viewBox="0 0 {WIDE} {TALL}"'
    return Picture(f'<svg {box} aria-hidden="true">{inside}</svg>')
