"""The front door on the command line: help, options, and whose mistake it is."""

import os
import pkgutil

import pytest

from persfl import cli
from persfl.cli import main, parser
from persfl.commands.command_table import COMMANDS
from persfl.commands.option_tables import FIT
from persfl.commands.options import defaults
from persfl.errors import InputError


def test_a_missing_option_is_one_line(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["fit", "t.csv", "--device", "who", "--out", "x"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert (
        said
        == "persfl fit: the following arguments are required: --label. See persfl fit --help.\n"
    )


def test_help_has_every_command_in_a_group_and_an_example():
    text = parser().format_help()
    named = [command.name for group in COMMANDS.values() for command in group]
    known = next(a for a in parser()._actions if a.metavar == "COMMAND").choices
    assert sorted(named) == sorted(known)
    assert "examples:\n  persfl demo\n" in text
    assert all(f"\n  {name} " in text for name in named)


def test_every_command_of_the_table_is_there():
    listed = [command for group in COMMANDS.values() for command in group]
    for command in [*listed, *(inner for one in listed for inner in one.commands)]:
        if command.run:
            assert callable(pkgutil.resolve_name(f"persfl.commands.{command.run}"))
        else:
            assert command.commands


def test_the_demo_is_a_fit_where_nothing_else_is_said():
    words = ["fit", "t.csv", "--device", "d", "--label", "y", "--out", "o"]
    asked = vars(parser().parse_args(words))
    usual = defaults(FIT)
    assert usual == {name: asked[name] for name in usual} | dict.fromkeys(
        ("device", "label", "out")
    )


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (
            InputError("peers must be at most 3."),
            2,
            "persfl: peers must be at most 3.\n",
        ),
        (
            PermissionError(13, "Permission denied", "/data/x"),
            2,
            "Check the path and its permissions.",
        ),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (MemoryError(), 2, "not enough memory"),
        (
            ValueError("shapes (3,) and (4,)"),
            70,
            "ValueError: shapes (3,) and (4,). This is a defect of persfl, please report",
        ),
        (KeyError("models"), 70, "KeyError: 'models'. This is a defect of persfl"),
        (
            FileNotFoundError(2, "No such file", cli.__file__ + ".gone"),
            70,
            "FileNotFoundError",
        ),
    ],
)
@pytest.mark.parametrize("debug", [[], ["before"], ["after"]])
def test_mistakes_and_defects_are_told_apart(
    monkeypatch, capsys, error, status, words, debug
):
    def broken(chosen):
        raise error

    monkeypatch.setattr("persfl.commands.run_output.write_report_again", broken)
    if cli.__file__ in str(error) and isinstance(error, FileNotFoundError):
        monkeypatch.setattr(
            error, "filename", os.path.join(os.path.dirname(cli.__file__), "page.gone")
        )
    before, after = (
        ["--debug"] if where in debug else [] for where in ("before", "after")
    )
    assert main([*before, "report", "run", *after]) == status
    said = capsys.readouterr().err
    assert words in said
    assert ("Traceback" in said) == bool(debug)
    assert len(said.splitlines()) == 1 or debug


def test_a_module_of_ones_own_is_not_called_ours():
    chosen = parser().parse_args(
        [
            "fit",
            "t.csv",
            "--device",
            "a",
            "--label",
            "b",
            "--out",
            "c",
            "--model",
            "net.py:Net",
        ]
    )
    sentence, status = cli.explained(RuntimeError("size mismatch"), chosen)
    assert (status, "a defect of net.py:Net or of persfl" in sentence) == (70, True)


def test_a_command_that_is_not_there_is_named_with_the_nearest(capsys):
    for words, said in (
        (["ft", "rows.csv"], "there is no command 'ft'. Did you mean 'fit'?"),
        (["federation", "upp"], "there is no command 'upp'. Did you mean 'up'?"),
        (["quux"], "there is no command 'quux'. See"),
    ):
        with pytest.raises(SystemExit):
            main(words)
        found = capsys.readouterr().err
        assert said in found
        assert found.count("\n") == 1
