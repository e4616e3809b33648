"""The pages that experiments leave: figures beside the reference (HTML), comparisons (Markdown).

`reproduction.html` is one file that works offline.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.errors import InputError
from persfl.files import read_whole, write_whole
from persfl.lab.agreement import SeriesVerdict, verdicts
from persfl.lab.claims import claims
from persfl.lab.comparison_tables import (
    equal_table,
    failures,
    questions_table,
    regret_table,
    removed_table,
    seconds_line,
    variants_table,
)
from persfl.lab.figure_files import ABOUT, figure_told
from persfl.lab.standings import REFERENCE, CellsBySet
from persfl.report.html import source_digest

if TYPE_CHECKING:
    from persfl.lab.figure_runs import Result

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--good:#1b7f5c;--bad:#b3261e}
body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem}h2{margin-top:3rem;border-top:1px solid var(--line);padding-top:1.5rem}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
th,td{padding:.3rem .8rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}
img{max-width:100%;background:#fff;border-radius:6px}
.pair{display:grid;gap:1rem;align-items:start}
.pair{grid-template-columns:repeat(auto-fit,minmax(26rem,1fr))}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}
@media(prefers-color-scheme:dark){:root{--good:#6fcf9f;--bad:#ff8a80}}
@media print{h2{break-before:page}}
"""
_POLICY = f"default-src 'none'; img-src data:; style-src '{source_digest(_STYLE)}'"
_TITLE = "<title>persfl: the paper, regenerated</title>"
_HEAD = f"""<!doctype html><html lang=en><meta charset=utf-8>
<meta http-equiv=Content-Security-Policy content="{_POLICY}">
<meta name=viewport content='width=device-width'>
{_TITLE}<style>{_STYLE}</style><h1>The paper, regenerated</h1>
<p>Median and 10-90 % band over runs. Points with bars are what the authors' notebook gave (median,
10-90 %). A series <b>agrees</b> where in every listed round with a reference above 1e-20 our median
lies within a factor 10 of theirs (trees: 1.5) or inside their band, and both end at the same
floor.</p>"""
_SHORT = """<p class=bad>A short run: fewer rounds than the paper's. It shows that things work and
proves nothing.</p>"""
_PICTURES = {"figure.png": "ours", "comparison.png": "ours and the reference"}


# The paper, regenerated


def reproduction_page(out: Path) -> Path:
    """Where the page goes; a page of another kind that is there is somebody's own."""
    page = out / "reproduction.html"
    if page.exists() and _TITLE.encode() not in read_whole(page):
        what = f"{str(page)!r} is there and was not made by persfl"
        raise InputError(f"{what}. Choose another --out.")
    return page


def write_reproduction(
    results: Mapping[str, Result], out: Path, *, short: bool
) -> Path:
    """Write the page about these results and return where it is.

    Figures that earlier commands left below `out` stay on it.
    """
    page = reproduction_page(out)
    parts = [_HEAD]
    if short:
        parts.append(_SHORT)
    parts.append(_overview(results))
    if not short:
        parts.append(_claims(results))
    parts += [_figure(name, result, out / name) for name, result in results.items()]
    for about in sorted(out.glob(f"*/{ABOUT}")):
        told = None if about.parent.name in results else figure_told(about)
        if told is not None:
            parts.append(_earlier(about.parent, told))
    write_whole(page, "\n".join(parts).encode())
    return page


def _table(head: str, rows: Iterable[str]) -> str:
    """Column names, parted by |, and rows of cells that begin with their own <td>."""
    columns = "".join(f"<th>{name}" for name in head.split("|"))
    return f"<table><tr>{columns}{''.join(f'<tr>{row}' for row in rows)}</table>"


def _overview(results: Mapping[str, Result]) -> str:
    rows = []
    for figure, result in results.items():
        name = escape(figure)
        title = escape(result.spec.title)
        what = f"<td><a href='#{name}'>{name}</a><td>{title}<td class=n>{result.runs}"
        rows.append(f"{what}<td>{_agreeing(verdicts(result))}")
    return _table("figure|what|runs|against the reference", rows)


def _agreeing(found: list[SeriesVerdict]) -> str:
    if not found:
        return "no reference"
    good = sum(verdict.agrees for verdict in found)
    if not all(verdict.complete for verdict in found):
        return f"<span class=open>{good} of {len(found)} series agree so far</span>"
    kind = "good" if good == len(found) else "bad"
    return f"<span class={kind}>{good} of {len(found)} series agree</span>"


def _claims(results: Mapping[str, Result]) -> str:
    rows = []
    for claim in claims(results):
        kind, word = ("good", "holds") if claim.holds else ("bad", "does not hold")
        sentence = f"<td>{claim.figure}<td>{escape(claim.sentence)}"
        rows.append(f"{sentence}<td class={kind}>{word}<td>{escape(claim.numbers)}")
    if not rows:
        return ""
    return "<h2>What the paper says in words</h2>" + _table(
        "figure|claim||numbers", rows
    )


def _figure(name: str, result: Result, folder: Path) -> str:
    known = {verdict.series: verdict for verdict in verdicts(result)}
    rows = []
    for series in result.spec.series:
        low, middle, high = np.quantile(
            result.curves[series.name][:, -1], [0.1, 0.5, 0.9]
        )
        what = f"<td>{escape(series.name)}<td class=n>{series.settings.rounds}"
        ends = f"<td class=n>{middle:.3g}<td class=n>{low:.3g} to {high:.3g}"
        rows.append(f"{what}{ends}<td>{_verdict(known.get(series.name))}")
    title = escape(result.spec.title)
    head = f"<h2 id='{escape(name)}'>{title}</h2><p>{escape(result.spec.about)}</p>"
    table = _table("series|rounds|median at the end|10-90 %|verdict", rows)
    return f"{head}{_images(title, folder)}{table}"


def _verdict(verdict: SeriesVerdict | None) -> str:
    if verdict is None:
        return ""
    kind = "open" if not verdict.complete else "good" if verdict.agrees else "bad"
    return f"<span class={kind}>{escape(str(verdict))}</span>"


def _earlier(folder: Path, told: Mapping[str, Any]) -> str:
    """A figure of an earlier command, as it was left on disk, by whomever."""
    name = escape(folder.name)
    run = escape(f"an earlier run: seed {told['seed']}, {told['runs']} runs")
    said = told["verdicts"].items()
    rows = [f"<td>{escape(series)}<td>{escape(str(word))}" for series, word in said]
    table = _table("series|verdict", rows) if rows else ""
    return f"<h2 id='{name}'>{name} ({run})</h2>{_images(name, folder)}{table}"


def _images(title: str, folder: Path) -> str:
    """The pictures that are there, inside the page."""
    shown = []
    for file, words in _PICTURES.items():
        with contextlib.suppress(FileNotFoundError, InputError):  # not there, or a link
            data = base64.b64encode(read_whole(folder / file)).decode()
            image = f"<img alt='{title}: {words}' src='data:image/png;base64,{data}'>"
            shown.append(f"<figure>{image}<figcaption>{words}</figcaption></figure>")
    return f"<div class=pair>{''.join(shown)}</div>"


# A comparison


def comparison_page(
    title: str, about: str, cells: CellsBySet, reference: str = REFERENCE
) -> str:
    """The whole page of a comparison."""
    seeds = sorted({cell["seed"] for some in cells.values() for cell in some})
    return f"""# {title}

{about}

{len(seeds)} seeds ({seeds[0]} to {seeds[-1]}). Errors are means over devices, then over seeds: \
squared error over the label's variance, or the share of wrong labels. Settings and units of every \
method were chosen on a hidden quarter of the rows to learn from. Regret is log(error of \
{reference} / least error of the others), with Student's 95 % interval over seeds.

{regret_table(cells, reference)}

## What {reference} removes of the others' error

Device by device, typical share, 95 % interval over seeds. Bold: clearly worse than that method.

{removed_table(cells, reference)}

## With equal questions

As many answers of each device for everybody as rounds can be made to fit, at most four times a
method's own; methods that need sums or rows once are as above.

{equal_table(cells, reference)}

## What is asked, sent and tried

{questions_table(cells)}

{failures(cells)}

## Settings that were chosen most often

{variants_table(cells)}

{seconds_line(cells)}
"""
