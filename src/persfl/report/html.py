"""The report as one HTML file: no server, no network, nothing beside it.

`page.html`, `page.css`, `page.cards.css` (tables on narrow screens) and `page.js` lie beside this
module and are put together with the numbers here. Names of devices come from
a user's table, so the page never reads them as markup: they travel as JSON in which no `<` is left,
the script inserts them as text, and a content security policy lets nothing run but the page's own
script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from persfl.files import write_whole
from persfl.report.about_run import about_html
from persfl.terminal import visible

_FEDERATION = (
    '<p class="asked">This was a federation: every device\'s rows stayed where they are. '
    '<a href="federation.html">Who was asked, and who saw what</a></p>'
)
REPORT = "report.html"  # its name in the folder of a run
_DIGITS = 5  # of numbers that are only drawn: curves and the heat map


def write_report(info: Mapping[str, Any], path: Path) -> Path:
    """Write the page about these numbers and return where it is; a page that was there is
    replaced in one step.
    """
    path = Path(path)
    write_whole(path, page(info).encode(errors="replace"))
    return path


def page(info: Mapping[str, Any]) -> str:
    """The whole page as text."""
    style = "\n".join(map(part, ("page.css", "page.cards.css")))
    script = part("page.js")
    worth = info["worth"]
    allowed = (
        f"style-src '{source_digest(style)}'; script-src '{source_digest(script)}'"
    )
    parts = {
        "title": escape(str(info["title"])),
        "asked": _together(escape(str(info["asked"]))),
        "about": about_html(info.get("about", [])),
        "answer": _together(escape(str(worth["headline"]["found"]))) if worth else "",
        "advice": _advice(worth["headline"]) if worth else "",
        "federation": _FEDERATION if info.get("federation") else "",
        "version": escape(str(info["version"])),
        "policy": f"default-src 'none'; img-src data:; {allowed}",
        "style": style,
        "script": script,
        "data": embedded(_shortened(info)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], part("page.html"))


def _advice(told: Mapping[str, Any]) -> str:
    """The rest of the headline: what to do, how, and how it is against own rows."""
    lines = [f'<p class="advice" id="advice">{_together(escape(told["advice"]))}</p>']
    if told["how"]:
        lines.append(f'<pre id="how"><code>{escape(visible(told["how"]))}</code></pre>')
    if told["alone"]:
        lines.append(f'<p id="alone">{_together(escape(told["alone"]))}</p>')
    return "\n".join(lines)


def _together(text: str) -> str:
    """A number and its % stay on one line; what the script writes is treated the same way there."""
    return re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", text)


def embedded(value: object) -> str:
    r"""JSON that is safe inside a script element: whatever a name holds, nothing in it ends the
    element. NaN is null.

    >>> embedded({"id": "</script><!--", "gain": float("nan")})
    '{"id":"\\u003c/script\\u003e\\u003c!--","gain":null}'
    """
    text = json.dumps(
        _finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _shortened(info: Mapping[str, Any]) -> dict[str, Any]:
    """The same numbers, with the many that are only drawn cut to what a screen can show: 2,000
    devices fit in a small file.
    """
    loss = info["loss"]
    made = info.get("made_of")
    matrix = info["help"]["matrix"]
    short = {
        "loss": {**loss, "device": _cut(loss["device"])},
        "help": {
            **info["help"],
            "matrix": {**matrix, "values": _cut(matrix["values"])},
        },
    }
    if made:
        parts = {name: _cut(made[name]) for name in ("shares", "near")}
        short["made_of"] = {**made, **parts}
    return {**info, **short}


def _cut(value: object) -> object:
    """Numbers with few digits, in lists of any depth; positions stay what they are."""
    if isinstance(value, list):
        return [_cut(inner) for inner in value]
    if not isinstance(value, float) or not math.isfinite(value):
        return _finite(value)
    return float(f"{value:.{_DIGITS}g}")


def _finite(value: object) -> object:
    """The same without numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def part(name: str) -> str:
    """The text of a file beside this module."""
    return (files("persfl.report") / name).read_text(encoding="utf-8").strip()


def source_digest(text: str) -> str:
    """What a content security policy calls this text by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
