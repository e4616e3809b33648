"""Trees as arrays: five for each, those of many trees one after the other.

Whatever walks a tree trusts its indices. So none may lead out of it or back up, and none is deeper
than its learner grows them: a long chain would take long to walk.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from persfl.errors import InputError
from persfl.learners.storage.named_arrays import AnyArray, Arrays, check_form
from persfl.learners.tree import Grown, Tree

FORMS = {
    "feature": "i8 N",
    "threshold": "f8 N",
    "left": "i8 N",
    "right": "i8 N",
    "value": "f8 N",
}
# In a run folder whole numbers may be those of another machine.
LOOSE = {name: form.replace("8", "") for name, form in FORMS.items()} | {"nodes": "i T"}


def in_a_row(trees: Sequence[Grown]) -> dict[str, AnyArray]:
    """How many nodes each tree has, and the nodes of all."""
    arrays: dict[str, AnyArray] = {
        "nodes": np.array([tree.feature.size for tree in trees])
    }
    for name, parts in zip(Grown._fields, zip(*trees, strict=True), strict=True):
        arrays[name] = np.concatenate(parts)
    return arrays


def apart(arrays: Arrays, features: int) -> list[Grown]:
    """The inverse of `in_a_row`; every index is checked, values are left to the caller."""
    nodes = arrays["nodes"]
    count = len(arrays["feature"])
    # each before their sum: a sum of absurd numbers may be any number
    check_form(len(nodes) > 0 and ((nodes >= 1) & (nodes <= count)).all())
    check_form(nodes.sum() == count)
    ends = np.cumsum(nodes)[:-1]
    pieces = [np.split(arrays[name], ends) for name in Grown._fields]
    trees = [Grown(*parts) for parts in zip(*pieces, strict=True)]
    for tree in trees:
        # values may have several columns, which `check` does not know
        Tree().check(tree._replace(value=np.zeros(len(tree.feature))), features)
    return trees


def check_depth(tree: Grown, most: int) -> None:
    """Stop where a tree is deeper than this."""
    # one of so few nodes cannot be
    if len(tree.feature) <= 2 * most + 1:
        return
    found = depth(tree)
    if found > most:
        raise InputError(
            f"a tree of this family asks at most {most} questions on the way down. Got one of"
            f" {found}."
        )


def depth(tree: Grown) -> int:
    """How many questions the longest way down has; parents come before children."""
    found = np.zeros(len(tree.feature), dtype=np.int64)
    for i in np.flatnonzero(tree.feature >= 0).tolist():
        found[tree.left[i]] = found[tree.right[i]] = found[i] + 1
    return int(found.max())
