"""Texts that somebody else chose, on a terminal.

A terminal takes some characters for commands: they move the cursor, rewrite lines that were shown
before, set the title of the window, turn the direction of reading. Names of devices and classes
come from tables and folders of others, so they are shown with such characters spelled out.
"""

from __future__ import annotations


def visible(text: str) -> str:
    r"""The text with nothing in it that a terminal obeys; line ends stay.

    >>> visible("Zoë\x1b[2J"), visible("one\ntwo"), visible("\u202eback")
    ('Zoë\\x1b[2J', 'one\ntwo', '\\u202eback')
    """
    if text.isprintable():
        return text
    return "".join(map(_spelled, text))


def shown(name: str) -> str:
    r"""A name for one line: line ends are spelled out too.

    >>> shown("ann\nbob")
    'ann\\nbob'
    """
    return visible(name).replace("\n", "\\n")


def _spelled(letter: str) -> str:
    return letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1]
