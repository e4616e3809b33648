"""A model card: one Markdown page that says what a fit is, what it is worth, and its limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from persfl.checks import many, percent
from persfl.evaluation.error_table import OF_CLASSES, OF_NUMBERS, error_lines
from persfl.evaluation.headline import NOTHING, expected_words, headline
from persfl.methods import settings_of
from persfl.report.about_run import rows_each
from persfl.report.worth_info import PRIVACY
from persfl.terminal import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from persfl.evaluation.verdicts import Worth
    from persfl.fitting.fitted import Fitted


def model_card(fitted: Fitted, spec: Mapping[str, Any]) -> str:
    """Markdown; `spec` names the table's device and label columns, as a run folder has them."""
    n = len(fitted.devices)
    label = str(spec["label"])
    parts = [
        f"# Models of {_code(label)}, one for each of {many(n, 'device')}",
        "## Data",
        _data(fitted, spec),
        "## Method",
        _method(fitted),
        "## Is it worth it?",
        _worth(fitted.worth),
        "## Privacy",
        "\n".join(f"- {line}" for line in PRIVACY[:2]),
        "## Limits",
        _limits(fitted),
    ]
    return "\n\n".join(parts) + "\n"


def _code(name: str) -> str:
    """A name from somebody's table, which may hold marks that Markdown reads."""
    return "`" + shown(name).replace("`", "'") + "`"


def _plain(text: str) -> str:
    r"""A sentence with names in it, as text alone: no links, pictures or markup.

    >>> _plain("![x](//a) <b>\n# b")
    '!\\[x](//a) \\<b>\\\\n# b'
    """
    return re.sub(r"([\\`\[<])", r"\\\1", shown(text))


def _data(fitted: Fitted, spec: Mapping[str, Any]) -> str:
    rows = fitted.rows
    columns = ", ".join(_code(name) for name in fitted.schema.inputs)
    classes = fitted.schema.labels.classes
    lines = [
        f"- Devices: column {_code(str(spec['device']))}, {many(len(rows), 'device')}.",
        f"- Rows: {int(rows.sum()):,} in all, {rows_each(rows)}.",
        f"- Label: {_code(str(spec['label']))}.",
        f"- Features: {columns}.",
    ]
    if classes is not None:
        names = ", ".join(_code(str(name)) for name in classes.tolist())
        lines.append(f"- Classes: {names}.")
    return "\n".join(lines)


def _method(fitted: Fitted) -> str:
    settings = ", ".join(
        f"{one.name}={one.value!r}" for one in settings_of(fitted.method)
    )
    lines = [
        f"- Method: {fitted.ran}" + (f" ({settings})." if settings else "."),
        *(f"- {_plain(note)}" for note in fitted.notes[:1]),
        f"- A model is {_code(repr(fitted.learner))}.",
        f"- Seed: {fitted.settings.seed}. The same seed gives the same models.",
    ]
    return "\n".join(lines)


def _worth(worth: Worth | None) -> str:
    if worth is None:
        return NOTHING
    said = headline(worth).sentences
    head, *arms = error_lines(worth.summary(), ahead=worth.ahead)
    rule = ["---"] * len(head)
    table = ["| " + " | ".join(row) + " |" for row in (head, rule, *arms)]
    what = f"Errors are the {OF_CLASSES if worth.classes else OF_NUMBERS}."
    if not worth.classes:
        what += ' "Off by" is in the label\'s own units.'
    return "\n".join(
        [" ".join(said), "", *table, "", f"{what} {expected_words(worth)}".strip()]
    )


def _limits(fitted: Fitted) -> str:
    new = (
        "A device that was not there when fitting gets the fleet's model."
        if fitted.pooled is not None
        else "A device that was not there when fitting has no model."
    )
    lines = [*fitted.notes[1:], new]
    if fitted.worth is not None:
        share = percent(fitted.settings.holdout)
        lines.append(
            f"Errors were measured by models that learned without {share} of the rows; these models"
            " learned from all rows."
        )
    return "\n".join(f"- {_plain(line)}" for line in lines)
