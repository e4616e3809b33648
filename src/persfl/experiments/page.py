"""reproduction.html: every figure beside the reference, with a plain verdict. One file, works offline."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from pathlib import Path

import numpy as np

from persfl.experiments.agreement import verdicts
from persfl.experiments.claims import claims
from persfl.experiments.runner import Result

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--good:#1b7f5c;--bad:#b3261e}
body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem}h2{margin-top:3rem;border-top:1px solid var(--line);padding-top:1.5rem}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
th,td{padding:.3rem .8rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}
img{max-width:100%;background:#fff;border-radius:6px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:1rem;align-items:start}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}
@media(prefers-color-scheme:dark){:root{--good:#6fcf9f;--bad:#ff8a80}}
@media print{h2{break-before:page}}
"""


def write_page(results: Mapping[str, Result], out: Path, *, quick: bool) -> Path:
    """Write the page from the figures' folders below `out`."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>persfl: the paper, regenerated</title><style>{_STYLE}</style><h1>The paper, regenerated</h1>",
        "<p>Median and 10-90 % band over runs. Points with bars are what the authors' notebook gave (median, 10-90 %). A series ",
        "<b>agrees</b> where in every listed round with a reference above 1e-20 our median lies within a factor 10 of theirs or ",
        "inside their band, and both end at the same floor.</p>",
    ]
    if quick:
        parts.append("<p class=bad>A quick run: few rounds and runs. It shows that everything works and proves nothing.</p>")
    parts.append(_overview(results))
    if not quick:
        parts.append(_claims(results))
    for name, result in results.items():
        parts.append(_figure(name, result, out / name))
    page = out / "reproduction.html"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _overview(results: Mapping[str, Result]) -> str:
    rows = []
    for name, result in results.items():
        found = verdicts(result)
        if found:
            good = sum(v.agrees for v in found)
            word = f"<span class={'good' if good == len(found) else 'bad'}>{good} of {len(found)} series agree</span>"
        else:
            word = "no reference"
        rows.append(f"<tr><td><a href='#{name}'>{name}</a><td>{escape(result.spec.title)}<td class=n>{result.runs}<td>{word}")
    return "<table><tr><th>figure<th>what<th>runs<th>against the reference" + "".join(rows) + "</table>"


def _claims(results: Mapping[str, Result]) -> str:
    rows = [
        f"<tr><td>{claim.figure}<td>{escape(claim.sentence)}<td class={'good' if claim.holds else 'bad'}>"
        f"{'holds' if claim.holds else 'does not hold'}<td>{escape(claim.numbers)}"
        for claim in claims(results)
    ]
    if not rows:
        return ""
    return "<h2>What the paper says in words</h2><table><tr><th>figure<th>claim<th><th>numbers" + "".join(rows) + "</table>"


def _figure(name: str, result: Result, folder: Path) -> str:
    pictures = [(folder / file, words) for file, words in (("figure.png", "ours"), ("comparison.png", "ours and the reference"))]
    images = "".join(
        f"<figure><img alt='{escape(result.spec.title)}: {words}' src='data:image/png;base64,"
        f"{base64.b64encode(path.read_bytes()).decode()}'><figcaption>{words}</figcaption></figure>"
        for path, words in pictures
        if path.exists()
    )
    known = {verdict.series: verdict for verdict in verdicts(result)}
    rows = []
    for series in result.spec.series:
        low, middle, high = np.quantile(result.curves[series.name][:, -1], [0.1, 0.5, 0.9])
        verdict = known.get(series.name)
        said = "" if verdict is None else f"<span class={'good' if verdict.agrees else 'bad'}>{escape(str(verdict))}</span>"
        rows.append(
            f"<tr><td>{escape(series.name)}<td class=n>{series.settings.rounds}<td class=n>{middle:.3g}"
            f"<td class=n>{low:.3g} to {high:.3g}<td>{said}"
        )
    head = "<tr><th>series<th>rounds<th>median at the end<th>10-90 %<th>verdict"
    return (
        f"<h2 id='{name}'>{escape(result.spec.title)}</h2><p>{escape(result.spec.about)}</p>"
        f"<div class=pair>{images}</div><table>{head}{''.join(rows)}</table>"
    )
