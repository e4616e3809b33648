"""The command line. Heavy imports wait until a command needs them, so that `persfl --help`
answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import pkgutil
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from persfl.commands.command_table import COMMANDS, Command
from persfl.commands.options import add_options
from persfl.errors import PersflError, PersflWarning
from persfl.terminal import visible

# exit status: something handed in is unusable; persfl itself is wrong
WRONG = 2
DEFECT = 70
_FULL = (errno.ENOSPC, errno.EDQUOT)  # what a disk without room says
EXAMPLES = """\
examples:
  persfl demo
  persfl fit rows.csv --device who --label y --out run
  persfl helpers run --device ann
  persfl predict run new.csv --out predictions.csv
  persfl COMMAND --help                               all options of a command
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    known = parser()
    chosen = known.parse_args(arguments)
    if chosen.command is None:
        known.print_help()
        return 0
    try:
        with warnings.catch_warnings(), _own_modules():
            warnings.simplefilter("default", PersflWarning)
            warnings.showwarning = _print_warning  # type: ignore[assignment]
            return int(chosen.command(chosen) or 0)
    except BrokenPipeError:  # the reader of our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        goes_on = " What is done is kept: the same command goes on from there."
        text = goes_on if "runs" in chosen else ""
        print(f"\npersfl: stopped.{text}", file=sys.stderr)
        return 130
    except Exception as error:
        if chosen.debug:
            traceback.print_exc()
        sentence, status = explained(error, chosen)
        print(f"persfl: {visible(sentence)}", file=sys.stderr)
        return status


@contextlib.contextmanager
def _own_modules() -> Iterator[None]:
    """Processes that a command starts read no modules from the folder that the person stands in.

    A table may have come with other files, and one of them may be called joblib.
    """
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def explained(error: Exception, chosen: argparse.Namespace) -> tuple[str, int]:
    """What to say of an error, and the exit status: the person's to mend, or ours."""
    if isinstance(error, PersflError):
        return str(error), WRONG
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"{error}. Free some there, or write elsewhere.", WRONG
    if isinstance(error, OSError) and not _ours(error):
        return f"{error}. Check the path and its permissions.", WRONG
    if isinstance(error, MemoryError):
        less = "Use fewer columns (--features) or fewer peers."
        return f"there is not enough memory for this table. {less}", WRONG
    first = next(iter(str(error).strip().splitlines()), "")
    what = f"{type(error).__name__}: {first}".rstrip(": ")
    words = vars(chosen)
    theirs = [str(words.get(name) or "") for name in ("model", "module")]
    file = next((text for text in theirs if ".py" in text), "")
    whose = f"{file} or of persfl" if file else "persfl, please report it"
    return f"{what}. This is a defect of {whose}; --debug shows where.", DEFECT


def _ours(error: OSError) -> bool:
    """Whether a file of the package itself is what could not be read."""
    name = error.filename
    package = Path(__file__).resolve().parent
    if not isinstance(name, (str, os.PathLike)):
        return False
    return Path(name).resolve().is_relative_to(package)


def _print_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    """A person at a terminal needs the sentence, not the line of code."""
    if issubclass(category, PersflWarning):
        print(f"persfl: {visible(str(message))}", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; --debug may stand before or after the command."""

    def error(self, message: str) -> NoReturn:
        """Stop with exit status 2."""
        unknown = re.match(r"argument COMMAND: invalid choice: '(.*?)' \(", message)
        if unknown:
            message = _no_command(unknown[1])
        end = "" if message.endswith(("?", ".")) else "."
        self.exit(WRONG, f"{self.prog}: {message}{end} See {self.prog} --help.\n")


def _no_command(word: str) -> str:
    """That there is no such command, and which one may be meant.

    >>> _no_command("ft")
    "there is no command 'ft'. Did you mean 'fit'?"
    """
    import difflib  # of no use where all is well

    rows = [command for group in COMMANDS.values() for command in group]
    names = [each.name for row in rows for each in (row, *row.commands)]
    near = difflib.get_close_matches(word, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"there is no command {word!r}.{hint}"


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    from persfl import __version__

    made = Parser(
        prog="persfl",
        usage="persfl COMMAND ...",
        description="Personalized federated learning by finding out who really helps.",
        epilog=f"{_listed()}\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_debug(made)
    made.add_argument("--version", action="version", version=f"persfl {__version__}")
    made.set_defaults(began=time.perf_counter(), command=None, debug=False)
    places = made.add_subparsers(
        prog="persfl", metavar="COMMAND", help=argparse.SUPPRESS
    )
    for group in COMMANDS.values():
        for command in group:
            about = command.description or f"{_capital(command.about)}."
            _fill(places.add_parser(command.name, description=about), command)
    return made


def _fill(made: argparse.ArgumentParser, command: Command) -> None:
    """Give a command's parser its options, what it runs, and the commands below it."""
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    _add_debug(made)
    add_options(made, command.options)
    if command.run:
        made.set_defaults(command=_late(command.run))
    if command.commands:
        places = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
        for inner in command.commands:
            about = f"{_capital(inner.about)}."
            _fill(
                places.add_parser(inner.name, help=inner.about, description=about),
                inner,
            )


def _add_debug(made: argparse.ArgumentParser) -> None:
    # no default: behind the command it would undo what stands before it
    made.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show where an error came from",
    )


def _listed() -> str:
    """All commands, in groups: argparse itself would list them in one."""
    rows = [command for group in COMMANDS.values() for command in group]
    width = max(len(command.name) for command in rows)
    lines = []
    for title, group in COMMANDS.items():
        commands = [f"  {one.name:{width}}  {one.about}" for one in group]
        lines += [f"{title}:", *commands, ""]
    return "\n".join(lines)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _late(where: str) -> Callable[[argparse.Namespace], int]:
    """A command that is imported when it runs."""

    def run(chosen: argparse.Namespace) -> int:
        return int(pkgutil.resolve_name(f"persfl.commands.{where}")(chosen))

    return run


if __name__ == "__main__":
    sys.exit(main())
