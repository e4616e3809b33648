"""A fit as a notebook shows it: what it is, what it is worth, how losses went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from persfl.checks import many, some
from persfl.evaluation.html_tables import curve, html_table, paragraphs

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted

MOST_NAMES = 8  # of features


def fitted_html(fitted: Fitted) -> str:
    """HTML without a file beside it."""
    rows = fitted.rows
    names = some(list(fitted.schema.inputs), MOST_NAMES).replace("'", "")
    facts = [
        ("devices", f"{len(rows):,}"),
        (
            "rows",
            f"{int(rows.sum()):,}, {many(int(np.median(rows)), 'row')} at the median device",
        ),
        ("features", names or f"{fitted.schema.features:,}"),
        ("a model is", repr(fitted.learner)),
        ("method", fitted.ran),
        ("seed", str(fitted.settings.seed)),
    ]
    if len(fitted.losses) > 1:
        median = np.nanmedian(fitted.losses, axis=1)
        facts.append(("median loss", curve(median.tolist())))
    worth = "" if fitted.worth is None else fitted.worth._repr_html_()
    table = html_table(["fit", ""], facts)
    return table + paragraphs(fitted.notes) + worth
