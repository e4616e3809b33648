"""An extension of griffe, which reads docstrings for the API pages: ours are prose with doctests,
which markdown wants fenced.

Doctests become fenced blocks, and `name : meaning` lines under Parameters and Attributes become a
list.
"""

import re
from typing import Any

import griffe


class Prose(griffe.Extension):
    """Rewrites every docstring of a package once it is read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Walk through everything the package defines itself."""
        _walk(pkg)


def _walk(thing: Any) -> None:
    if thing.docstring:
        thing.docstring.value = rewritten(thing.docstring.value)
    for member in thing.members.values():
        if not member.is_alias:
            _walk(member)


def rewritten(text: str) -> str:
    """The same docstring as markdown.

    >>> rewritten("Adds.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    text = re.sub(
        r"^(Parameters|Attributes)\n-+\n((?:.+\n?)+)", _listed, text, flags=re.M
    )
    return re.sub(
        r"^>>> (?:.+\n?)+",
        lambda found: f"```pycon\n{found[0].rstrip()}\n```\n",
        text,
        flags=re.M,
    ).rstrip()


def _listed(section: re.Match[str]) -> str:
    joined = re.sub(r"\n\s+", " ", section[2].strip())
    joined = re.sub(r"\. (\w+) : ", r".\n\1 : ", joined)
    lines = [
        re.sub(r"^([\w, ]+?) : ", r"**\1**: ", line) for line in joined.split("\n")
    ]
    return f"**{section[1]}**\n\n" + "\n".join(f"- {line}" for line in lines) + "\n"
