"""Methods as plain data, for whoever shows them."""

from __future__ import annotations

import sys
from typing import Any

from persfl.errors import InputError
from persfl.methods import METHODS, cannot_run
from persfl.methods.method_fields import settings_of
from persfl.methods.protocol import Method


def description(method: Method) -> dict[str, Any]:
    """What a method does, needs and sends, and its settings.

    >>> from persfl.methods import IFCA
    >>> found = description(IFCA())
    >>> found["told"], found["models"], found["settings"][0]["default"]
    ('the number of clusters', 'with gradients', 2)
    """
    needs = method.needs()
    return {
        "name": method.name,
        "about": method.about,
        "source": getattr(method, "source", ""),
        "told": needs.told,
        "models": "with gradients" if needs.gradients else "any",
        "leaves": needs.leaves,
        "federated": not cannot_run(method, federated=True),
        "why_not_federated": cannot_run(method, federated=True),
        "details": details(method),
        "settings": [one._asdict() for one in settings_of(method)],
    }


def details(method: Method) -> str:
    """What the file of a method begins with: its equation, and where it differs from what its
    authors printed.

    >>> from persfl.methods import CFL
    >>> "the authors' code numbers them within the cluster" in " ".join(
    ...     details(CFL()).split()
    ... )
    True
    """
    module = sys.modules.get(type(method).__module__)
    return (getattr(module, "__doc__", None) or "").strip()


def descriptions(name: str | None = None) -> list[dict[str, Any]]:
    """All methods of the list, or the one of this name."""
    if name is not None and name not in METHODS:
        raise InputError(
            f"there is no method {name!r}. There are: {', '.join(METHODS)}."
        )
    names = METHODS if name is None else [name]
    return [description(METHODS[one]()) for one in names]
