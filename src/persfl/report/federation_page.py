"""The federation's own page: who was asked, who answered, and who saw what. Plain HTML without
a script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from persfl.files import write_whole
from persfl.report.html import part, source_digest

_KICKER = '<p class="kicker">persfl report</p>'
_NARROW = "62rem"  # below this the table of all questions, a dozen columns, has no room
# What the coordinator sees beside models, answers and losses.
_OWN = {
    "kin": ", every target's own step",
    "blend": (
        ", what every target would answer itself without each fold of its rows, how well offers"
        " predict each fold"
    ),
}
_NOBODY = (
    "was sent a row of another device. But unprotected answers can determine rows: about as many"
    " answers as there are features give away a linear device's second moments, and leaves of trees"
    " are means of few private labels."
)


_NO_ROW = (
    "was sent a row of another device. But where a part has hardly more rows than there are"
    " columns, its second moments nearly are the rows."
)


def sight(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Who saw what in a run, in plain sentences.

    >>> [
    ...     who
    ...     for who, _ in sight(
    ...         {"algorithm": 1, "home": [], "sums": True, "holdout": 0.25}
    ...     )
    ... ]
    ['A peer', 'A target', 'The coordinator', 'Nobody']
    """
    home = bool(info["home"])
    probe = "the models"
    if info["algorithm"] != 1:
        probe = "what the models say at the public points"
    sums = ""
    if info["sums"]:
        sums = " It also saw each device's column sums, from which the shared units are made."
    held = ""
    if info["holdout"]:
        held = " and, at the end, its errors on the rows it held back and sums of their labels"
    if info.get("from_sums"):
        return [
            ("A device", "saw the model that it got, and nothing of what others told."),
            (
                "The coordinator",
                "made all models, and so saw them, and for each part of every device's rows the"
                " sums of products of its columns and its label: their second moments, of at least"
                f" the owner's 'rows' rows each{held}.{sums}",
            ),
            ("Nobody", _NO_ROW),
        ]
    if info.get("common"):
        return [
            (
                "A device",
                "saw the common models, and the model that it got. It did not see what others"
                " answered.",
            ),
            (
                "The coordinator",
                "makes the common models, and so saw where each device's rows take them, and every"
                f" loss{held}.{sums}",
            ),
            ("Nobody", _NOBODY),
        ]
    own = _OWN.get(str(info.get("method")), "")
    seen = (
        f"relays, and so saw {probe} of all targets, every answer{own}, every loss{held}, who was"
        " asked and who was adopted."
    )
    answers = (
        "saw the answers of the peers it asked, each a model computed from that peer's rows, but"
        " not whose they were."
    )
    if home:
        answers = "at home saw every answer and whose it was."
        seen = (
            f"saw {probe} of the target at home go out, every answer come in, who was asked and who"
            " was adopted."
        )
    return [
        (
            "A peer",
            f"saw {probe} of the targets that asked it, and their names. It did not learn whether"
            " its answer was adopted.",
        ),
        ("A target", answers),
        ("The coordinator", f"{seen}{sums}"),
        ("Nobody", _NOBODY),
    ]


def federation_page(info: Mapping[str, Any]) -> str:
    """The page as text."""
    style = part("page.css")
    cards = part("page.cards.css")
    styles = f"'{source_digest(style)}' '{source_digest(cards)}'"
    policy = f"default-src 'none'; img-src data:; style-src {styles}"
    ways = list(info["ways"])
    rows = [
        [row["device"], info["rows"].get(row["device"], 0), *(row[way] for way in ways)]
        for row in info["counts"]
    ]
    total = [
        "all",
        sum(info["rows"].values()),
        *(sum(row[way] for row in info["counts"]) for way in ways),
    ]
    settings = [
        ("rounds", info["rounds"]),
        ("messages", info["messages"]),
        ("model", info["model"]),
        ("algorithm", info["algorithm"]),
        ("method", info.get("method", "paper")),
        ("deadline of a round, s", info["deadline"]),
        ("quorum", info["quorum"]),
        ("guard: new loss at most this many times the old", info["growth"]),
        ("guard: step at most this many times the usual", info["reach"]),
    ]
    parts = [
        _families(info.get("families", {})),
        "<section><h2>Who was asked, and what came of it</h2>",
        _table(["device", "rows", *ways], [*rows, total]),
        "<dl>"
        + "".join(
            f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in info["ways"].items()
        )
        + "</dl></section>",
        "<section><h2>Who saw what</h2><dl>",
        "".join(
            f"<dt>{escape(who)}</dt><dd>{escape(what)}</dd>"
            for who, what in sight(info)
        ),
        "</dl></section><section><h2>Settings</h2>",
        _table(["setting", "value"], settings),
        "</section>",
    ]
    notes = "".join(f"<p>{escape(note)}</p>" for note in info["notes"])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta'
        ' name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="data:,">\n<title>The federation</title>\n<style>{style}</style>\n'
        f'<style media="(max-width: {_NARROW})">{cards}</style>\n</head>\n<body>\n'
        f'<header class="top">{_KICKER}<h1>The federation</h1>'
        f'<p class="asked">{len(info["devices"])} devices, {len(info["targets"])} of them targets, '
        f"{escape(str(info['rounds']))} rounds. "
        '<a href="report.html">The report of the run</a></p></header>\n'
        f'<main id="main">{notes}{"".join(parts)}</main>\n</body>\n</html>\n'
    )


def _families(families: Mapping[str, Mapping[str, str]]) -> str:
    """Which family each device named, and which its model ended with."""
    if not families:
        return ""
    rows = [(name, one["named"], one["ended"]) for name, one in families.items()]
    head = ["device", "family that its node names", "family of its model"]
    return f"<section><h2>Families</h2>{_table(head, rows)}</section>"


def is_ours(path: Path) -> bool:
    """Whether a file is such a page, which another may replace."""
    return path.is_file() and _KICKER.encode() in path.read_bytes()


def write_federation(info: Mapping[str, Any], path: Path) -> Path:
    """Write the page and return where it is."""
    write_whole(path, federation_page(info).encode())
    return path


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; on a narrow screen a card for each row, so every cell says which column it is of."""
    names = [escape(str(name)) for name in head]
    top = "".join(f'<th scope="col" role="columnheader">{name}</th>' for name in names)
    body = "".join(f'<tr role="row">{_cells(names, row)}</tr>' for row in rows)
    return (
        '<table class="cards" role="table">'
        f'<thead role="rowgroup"><tr role="row">{top}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table>'
    )


def _cells(names: Sequence[str], row: Sequence[Any]) -> str:
    first, *others = (escape(str(cell)) for cell in row)
    pairs = zip(names[1:], others, strict=True)
    cells = [f'<td role="cell" data-label="{name}">{cell}</td>' for name, cell in pairs]
    return f'<th scope="row" role="rowheader">{first}</th>{"".join(cells)}'
