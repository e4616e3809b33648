"""Options as tables of text: what a row becomes."""

import argparse

import pytest

from persfl.commands.command_table import COMMANDS
from persfl.commands.options import KINDS, add_options, options

TABLE = """
table         text         needed  rows
--peers N     number       auto    how many are
    asked (default %(default)s)
--model       tree|linear  linear  what a model is
--set K=V     setting*     -       settings
--features A  names        ''      columns
--ordered     switch       -       in the order of time
further ones:
--top N       whole        20      lines
"""


def parsed(*words):
    made = argparse.ArgumentParser(exit_on_error=False)
    add_options(made, TABLE)
    return made.parse_args(words)


def test_a_table_says_kinds_and_defaults():
    usual = vars(parsed("t.csv"))
    assert usual == {
        "table": "t.csv",
        "peers": "auto",
        "model": "linear",
        "set": [],
        "features": [],
        "ordered": False,
        "top": 20,
    }
    words = ["--peers", "3", "--set", "a=0.5", "--set", "b=x", "--features", "u, v"]
    asked = parsed("t.csv", *words, "--ordered")
    assert (asked.peers, asked.ordered) == (3, True)
    assert asked.set == [("a", 0.5), ("b", "x")]
    assert asked.features == ["u", "v"]
    deep = "[" * 3000
    assert parsed("t.csv", "--set", f"a={deep}").set == [("a", deep)]
    assert parsed("t.csv", "--set", "a=[[1], []]").set == [("a", [[1], []])]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--top", "0"], "must be a whole number above 0, not '0'"),
        (["--peers", "some"], "must be 'auto' or a number, not 'some'"),
        (["--set", "a"], "must be KEY=VALUE, not 'a'"),
        (["--set", "a=2020-01-01"], "a must be a number.*, not '2020-01-01'"),
        (["--set", "a=[1, 10:00:00]"], "a must be a number, true, false, text or a"),
        (["--set", "a={b = 1}"], "a must be a number, true, false, text or a list"),
        (["--model", "forest"], "invalid choice: 'forest'"),
    ],
)
def test_a_value_of_another_kind_is_refused(words, why):
    with pytest.raises(argparse.ArgumentError, match=why):
        parsed("t.csv", *words)


def test_every_row_of_every_command_can_be_read():
    listed = [command for group in COMMANDS.values() for command in group]
    for command in [*listed, *(inner for one in listed for inner in one.commands)]:
        for row in options(command.options):
            kind = row.kind.removesuffix("*")
            assert not row.words or kind in (*KINDS, "switch") or "|" in kind
            assert row.meaning
