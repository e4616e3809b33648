"""The report of a run over shards: summaries and quantiles of all devices, and a search.

The page holds a few kilobytes, however many devices there are. To find one of them it reads one
small file of the folder of its own name beside it, which holds a range of ids.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from persfl import __version__
from persfl.checks import many, percent
from persfl.evaluation.error_table import error_lines
from persfl.evaluation.intervals import Verdict
from persfl.files import write_whole
from persfl.methods import METHODS
from persfl.report.html import REPORT
from persfl.report.sharded_words import against_own_rows
from persfl.scale.model_table import PARTS, ModelTable
from persfl.scale.sharded_run import ShardedRun
from persfl.terminal import shown
from persfl.types import Array

DRAWER = 2_000  # devices in one of its files
SEARCHED = 2_000_000  # devices that a search is written for
SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
COLUMNS = {
    "rows": "rows",
    "error": "error on rows held back",
    "error_pooled": "error of one model for all",
    "own": "own rows in the model",
    "fleet": "fleet in the model",
    "neighbours": "neighbours in the model",
}
ON_PHONES = (0.1, 0.5, 0.9)  # quantiles that there is room for
BARS = 24
_PLACE = Path(__file__).parent


def write_sharded_page(table: ModelTable, path: Path | None = None) -> Path:
    """Write the page of a run, and what its search reads."""
    page = path or table.run.folder / REPORT
    numbers = {name: table.column(name) for name in COLUMNS}
    drawers = _write_drawers(table, numbers, page.with_suffix(""))
    text = (_PLACE / "sharded.html").read_text(encoding="utf-8")
    filled = {
        "version": __version__,
        "title": _escaped(_title(table)),
        "answer": _escaped(_answer(table)),
        "facts": _facts(table),
        "errors": _errors(table.run),
        "heads": _heads(),
        "quantiles": _quantiles(numbers),
        "bars": _bars(numbers["error"]),
        "drawers": _script(drawers),
        "names": _script(list(COLUMNS.values())),
        "folder": _script(page.stem),
        "whole": _script(_are_whole(table)),
    }
    # all at once: what a device is called must not be filled in again
    text = re.sub("{{([a-z]+)}}", lambda gap: filled[gap[1]], text)
    write_whole(page, text.encode())
    return page


def _title(table: ModelTable) -> str:
    spec = table.run.spec
    return (
        f"{spec['label']} by {spec['device']}: {many(int(spec['devices']), 'device')}"
    )


def _answer(table: ModelTable) -> str:
    facts = table.run.facts
    worth = facts.get("worth")
    if not worth:
        return "No rows were held back, so nothing was measured (holdout 0)."
    said = against_own_rows(kept_verdict(table.run), int(worth["held"]))
    devices = int(table.run.spec["devices"])
    if facts["panel"] < devices:
        some = many(int(facts["panel"]), "device")
        said += f" Measured on {some}, drawn by the seed, of {devices:,}."
    return said


def kept_verdict(run: ShardedRun) -> Verdict:
    """The verdict of a run, as it was kept; somebody else may have written it."""
    told = run.facts["worth"]["verdict"]
    known: dict[str, Any] = {
        name: np.nan if told[name] is None else told[name] for name in told
    }
    return Verdict(**known)


def models_made_of(table: ModelTable) -> str:
    """What models are made of in the mean, in a sentence."""
    shares = [table.mean_share(part) for part in PARTS]
    if None in shares:
        name = str(table.run.spec["method"])
        about = f": {METHODS[name].about}" if name in METHODS else ""
        return f"Method {shown(name)}{about}."
    own, fleet, near = (percent(share or 0.0) for share in shares)
    return (
        "Models are mixed from what own rows, the fleet and neighbours offer. In the mean over"
        f" devices a model is {own} own rows, {fleet} fleet and {near} neighbours, by how much each"
        " decides of it."
    )


def _facts(table: ModelTable) -> str:
    """What was asked, and the offers that models are mixed from."""
    spec = table.run.spec
    lines = {
        "devices": f"{int(spec['devices']):,}",
        "rows": f"{int(spec['rows']):,}",
        "features": ", ".join(map(str, spec["features"])),
        "method": str(spec["method"]),
        "seed": str(spec["seed"]),
        "held back": percent(float(spec["holdout"])),
        "models": models_made_of(table),
    }
    offers = [(str(name), float(share)) for name, share in table.run.facts["offers"]]
    mixed = (f"{name} {percent(share)}" for name, share in offers if share >= 0.005)
    if offers:
        lines["offers mixed"] = ", ".join(mixed)
    return "".join(
        f"<tr><th>{_escaped(name)}</th><td>{_escaped(value)}</td></tr>"
        for name, value in lines.items()
    )


def _escaped(text: str) -> str:
    """Text for the page; numbers stay with their unit."""
    return html.escape(text).replace(" %", "\N{NO-BREAK SPACE}%")


def _errors(run: ShardedRun) -> str:
    """The rows of the table of errors."""
    if not run.facts.get("worth"):
        return ""
    head, *lines = error_lines(run.facts["worth"]["arms"])
    rows = [_row(line, head) for line in lines]
    names = "".join(f'<th scope="col">{_escaped(name)}</th>' for name in head)
    return f"<thead><tr>{names}</tr></thead><tbody>{''.join(rows)}</tbody>"


def _row(cells: Sequence[str], names: Sequence[str]) -> str:
    """The first is whose the others are, each by its name."""
    shown = "".join(
        f'<td data-name="{_escaped(name)}">{_escaped(cell)}</td>'
        for name, cell in zip(names[1:], cells[1:], strict=True)
        if cell
    )
    return f'<tr><th scope="row">{_escaped(cells[0])}</th>{shown}</tr>'


def _heads() -> str:
    """The names of the columns of quantiles."""
    names = {0.5: "median"}
    shown = [names.get(share, percent(share)) for share in SHARES]
    cells = zip(shown, _where(), strict=True)
    return "".join(f"<td{where}>{_escaped(name)}</td>" for name, where in cells)


def _where() -> list[str]:
    """What a phone leaves out."""
    return ["" if share in ON_PHONES else ' class="more"' for share in SHARES]


def _quantiles(numbers: dict[str, Array]) -> str:
    """A row of the table for each column."""
    rows = []
    for name, values in numbers.items():
        known = values[np.isfinite(values)]
        if not len(known):
            continue
        told = percent if name in PARTS else _number
        cells = [told(cell) for cell in np.quantile(known, SHARES).tolist()]
        shown = "".join(
            f"<td{where}>{_escaped(cell)}</td>"
            for cell, where in zip(cells, _where(), strict=True)
        )
        mean = _escaped(told(float(known.mean())))
        rows.append(
            f"<tr><th>{_escaped(COLUMNS[name])}</th><td>{mean}</td>{shown}</tr>"
        )
    return "".join(rows)


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.3g}"


def _bars(errors: Array) -> str:
    """A histogram of errors up to the 99th percentile, as SVG."""
    known = errors[np.isfinite(errors)]
    if not len(known):
        return ""
    top = float(np.quantile(known, 0.99)) or 1.0
    counts, _ = np.histogram(known, bins=BARS, range=(0.0, top))
    high = max(int(counts.max()), 1)
    wide = 600 / BARS
    drawn = "".join(
        f'<rect x="{k * wide:.1f}" y="{120 - 110 * count / high:.1f}"'
        f' width="{wide - 2:.1f}" height="{110 * count / high:.1f}"/>'
        for k, count in enumerate(counts.tolist())
    )
    ends = f'<text x="0" y="136">0</text><text x="600" y="136">{_number(top)}</text>'
    return f'<svg viewBox="0 0 620 140" role="img">{drawn}{ends}</svg>'


def _write_drawers(
    table: ModelTable, numbers: dict[str, Array], folder: Path
) -> list[Any]:
    """Files that a search reads; the first id of each."""
    ids = table.ids()
    if len(ids) > SEARCHED:
        return []
    first = []
    for k, rows in enumerate(_drawers(ids, numbers)):
        first.append(rows[0][0])
        text = f"found({_script(rows)});"
        write_whole(folder / f"{k:05d}.js", text.encode())
    return first


def _are_whole(table: ModelTable) -> bool:
    """Whether ids are numbers."""
    import pyarrow as pa

    return bool(pa.types.is_integer(table.ids().type))


def _drawers(ids: Any, numbers: dict[str, Array]) -> Iterator[list[list[Any]]]:
    columns = list(numbers.values())
    for begin in range(0, len(ids), DRAWER):
        names = ids[begin : begin + DRAWER].to_pylist()
        values = np.stack([each[begin : begin + DRAWER] for each in columns], axis=1)
        plain = [[_short(value) for value in row] for row in values.tolist()]
        yield [[str(name), *row] for name, row in zip(names, plain, strict=True)]


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if np.isfinite(value) else None


def _script(value: Any) -> str:
    """JSON that may stand in a script."""
    return json.dumps(value).replace("<", "\\u003c").replace("\u2028", "\\u2028")
