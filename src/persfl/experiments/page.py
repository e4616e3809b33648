"""reproduction.html: every figure beside the reference, with a plain verdict. One file, works offline."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path

import numpy as np

from persfl.experiments.agreement import Verdict, verdicts
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


def write_page(results: Mapping[str, Result], out: Path, *, short: bool) -> Path:
    """Write the page about these results; figures that earlier commands left below `out` stay on it."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>persfl: the paper, regenerated</title><style>{_STYLE}</style><h1>The paper, regenerated</h1>",
        "<p>Median and 10-90 % band over runs. Points with bars are what the authors' notebook gave (median, 10-90 %). A series ",
        "<b>agrees</b> where in every listed round with a reference above 1e-20 our median lies within a factor 10 of theirs ",
        "(trees: 1.5) or inside their band, and both end at the same floor.</p>",
    ]
    if short:
        parts.append("<p class=bad>A short run: fewer rounds than the paper's. It shows that things work and proves nothing.</p>")
    parts.append(_overview(results))
    if not short:
        parts.append(_claims(results))
    for name, result in results.items():
        parts.append(_figure(name, result, out / name))
    for about in sorted(out.glob("*/run.json")):
        if about.parent.name not in results:
            parts.append(_earlier(about))
    page = out / "reproduction.html"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _overview(results: Mapping[str, Result]) -> str:
    rows = []
    for name, result in results.items():
        found = verdicts(result)
        if found:
            good, whole = sum(v.agrees for v in found), all(v.complete for v in found)
            kind = ("good" if good == len(found) else "bad") if whole else "open"
            word = f"<span class={kind}>{good} of {len(found)} series agree{'' if whole else ' so far'}</span>"
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


def _kind(verdict: Verdict) -> str:
    return "open" if not verdict.complete else "good" if verdict.agrees else "bad"


def _images(title: str, folder: Path) -> str:
    pictures = [(folder / file, words) for file, words in (("figure.png", "ours"), ("comparison.png", "ours and the reference"))]
    return "".join(
        f"<figure><img alt='{escape(title)}: {words}' src='data:image/png;base64,"
        f"{base64.b64encode(path.read_bytes()).decode()}'><figcaption>{words}</figcaption></figure>"
        for path, words in pictures
        if path.exists()
    )


def _earlier(about: Path) -> str:
    """A figure of an earlier command, as it was left on disk."""
    kept = json.loads(about.read_text(encoding="utf-8"))
    name = about.parent.name
    rows = "".join(f"<tr><td>{escape(series)}<td>{escape(said)}" for series, said in kept.get("verdicts", {}).items())
    table = f"<table><tr><th>series<th>verdict{rows}</table>" if rows else ""
    head = f"<h2 id='{escape(name)}'>{escape(name)} (an earlier run: seed {kept.get('seed')}, {kept.get('runs')} runs)</h2>"
    return f"{head}<div class=pair>{_images(name, about.parent)}</div>{table}"


def _figure(name: str, result: Result, folder: Path) -> str:
    images = _images(result.spec.title, folder)
    known = {verdict.series: verdict for verdict in verdicts(result)}
    rows = []
    for series in result.spec.series:
        low, middle, high = np.quantile(result.curves[series.name][:, -1], [0.1, 0.5, 0.9])
        verdict = known.get(series.name)
        said = "" if verdict is None else f"<span class={_kind(verdict)}>{escape(str(verdict))}</span>"
        rows.append(
            f"<tr><td>{escape(series.name)}<td class=n>{series.settings.rounds}<td class=n>{middle:.3g}"
            f"<td class=n>{low:.3g} to {high:.3g}<td>{said}"
        )
    head = "<tr><th>series<th>rounds<th>median at the end<th>10-90 %<th>verdict"
    return (
        f"<h2 id='{name}'>{escape(result.spec.title)}</h2><p>{escape(result.spec.about)}</p>"
        f"<div class=pair>{images}</div><table>{head}{''.join(rows)}</table>"
    )
