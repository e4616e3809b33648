"""The command line. Heavy imports wait until a command needs them, so that `persfl --help`
answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from persfl.errors import PersflError, PersflWarning
from persfl.terminal import visible

# exit status: something handed in is unusable; persfl itself is wrong
WRONG, DEFECT = 2, 70
MODELS = ("linear", "mlp", "tree", "forest", "boosting")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    known = parser()
    chosen = known.parse_args(arguments)
    if not hasattr(chosen, "command"):
        known.print_help()
        return 0
    try:
        with warnings.catch_warnings(), _own_modules():
            warnings.simplefilter("default", PersflWarning)
            warnings.showwarning = _warned  # type: ignore[assignment]
            return int(chosen.command(chosen) or 0)
    except BrokenPipeError:  # the reader of our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        kept = (
            " What is done is kept: the same command goes on from there."
            if hasattr(chosen, "runs")
            else ""
        )
        print(f"\npersfl: stopped.{kept}", file=sys.stderr)
        return 130
    except Exception as error:
        if getattr(chosen, "debug", False):
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
    if isinstance(error, OSError) and not _ours(error):
        return f"{error}. Check the path and its permissions.", WRONG
    if isinstance(error, MemoryError):
        return (
            (
                "there is not enough memory for this table. Use fewer columns (--features) or fewer"
                " peers."
            ),
            WRONG,
        )
    what = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}".rstrip(
        ": "
    )
    theirs = [
        getattr(chosen, "model", None) or "",
        getattr(chosen, "module", None) or "",
    ]
    file = next((text for text in theirs if ".py" in text), "")
    if file:
        return (
            f"{what}. This is a defect of {file} or of persfl; --debug shows where.",
            DEFECT,
        )
    return (
        f"{what}. This is a defect of persfl, please report it; --debug shows where.",
        DEFECT,
    )


def _ours(error: OSError) -> bool:
    """Whether a file of the package itself is what could not be read."""
    name, package = error.filename, Path(__file__).resolve().parent
    return isinstance(name, (str, os.PathLike)) and Path(name).resolve().is_relative_to(
        package
    )


def _warned(message: Any, category: Any, *_: Any) -> None:
    """A person at a terminal needs the sentence, not the line of code."""
    if issubclass(category, PersflWarning):
        print(f"persfl: {visible(str(message))}", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; --debug may stand before or after the command."""

    def __init__(self, *words: Any, **settings: Any) -> None:
        super().__init__(
            *words,
            **{"formatter_class": argparse.RawDescriptionHelpFormatter} | settings,
        )
        self.add_argument(
            "--debug",
            action="store_true",
            default=argparse.SUPPRESS,
            help="show where an error came from",
        )

    def error(self, message: str) -> NoReturn:
        """Stop with exit status 2."""
        self.exit(WRONG, f"{self.prog}: {message}. See {self.prog} --help.\n")


EXAMPLES = """\
examples:
  persfl demo
  persfl fit rows.csv --device who --label y --out run
  persfl helpers run --device ann
  persfl predict run new.csv --out predictions.csv
  persfl COMMAND --help                               all options of a command
"""


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    from persfl import __version__

    made = Parser(
        prog="persfl",
        usage="persfl COMMAND ...",
        description="Personalized federated learning by finding out who really helps.",
    )
    made.add_argument("--version", action="version", version=f"persfl {__version__}")
    made.set_defaults(began=time.perf_counter())
    commands = Commands(
        made.add_subparsers(prog="persfl", metavar="COMMAND", help=argparse.SUPPRESS)
    )
    _table_commands(commands)
    _experiment_commands(commands)
    _federation_commands(commands)
    made.epilog = f"{commands.listed}\n{EXAMPLES}"
    return made


GROUPS = {
    "from a table": (
        "demo",
        "fit",
        "helpers",
        "predict",
        "report",
        "compare",
        "methods",
    ),
    "between machines": ("federation", "node", "federate", "ledger"),
    "experiments": ("reproduce", "run", "tune"),
}


class Commands:
    """Adds commands and remembers the line of each: argparse itself would list them in one long
    group.
    """

    def __init__(self, made: Any) -> None:
        self.made, self.lines = made, dict[str, str]()

    def add_parser(
        self, name: str, *, help: str, **settings: Any
    ) -> argparse.ArgumentParser:
        """As argparse has it."""
        self.lines[name] = help
        about = {"description": f"{help[0].upper()}{help[1:]}."} | settings
        found: argparse.ArgumentParser = self.made.add_parser(name, **about)
        return found

    @property
    def listed(self) -> str:
        """All commands, in groups."""
        width = max(map(len, self.lines))
        parts = []
        for title, names in GROUPS.items():
            parts += [
                f"{title}:",
                *(f"  {name:{width}}  {self.lines[name]}" for name in names),
                "",
            ]
        return "\n".join(parts)


def _late(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    """A command that is imported when it runs."""

    def run(chosen: argparse.Namespace) -> int:
        return int(
            getattr(importlib.import_module(f"persfl.commands.{module}"), name)(chosen)
        )

    return run


def _table_commands(commands: Any) -> None:
    demo = commands.add_parser(
        "demo", help="bundled real data, from table to report, in a minute"
    )
    demo.add_argument(
        "--out",
        default="persfl-demo",
        metavar="FOLDER",
        help="where it goes (default persfl-demo)",
    )
    demo.add_argument(
        "--json", action="store_true", help="progress and result as JSON lines"
    )
    demo.set_defaults(command=_late("tables", "demo"))

    fit = commands.add_parser(
        "fit",
        help="a model for every device of a table, and a report of who helps whom",
        description=(
            "A model for every device of a table, kept in a folder with a report. Every device's"
            " rows stay its own; peers answer from theirs."
        ),
    )
    _table(fit)
    fit.add_argument(
        "--out", required=True, metavar="FOLDER", help="the run folder to make"
    )
    fit.add_argument(
        "--resume",
        action="store_true",
        help="go on with an interrupted run: the result is the same to the last bit",
    )
    fit.add_argument(
        "--force", action="store_true", help="replace a run folder that is there"
    )
    fit.add_argument(
        "--no-report", action="store_true", help="do not write report.html"
    )
    fit.add_argument(
        "--fallback",
        action="store_true",
        help="keep a device's own model where the fleet's evidence favours it",
    )
    fit.add_argument(
        "--unseen",
        choices=("pooled", "error"),
        default="pooled",
        help=(
            "devices first seen when predicting: one model for all of them, or an error (default"
            " pooled)"
        ),
    )
    fit.set_defaults(command=_late("tables", "fit"))

    helpers = commands.add_parser("helpers", help="who helps a device, ranked")
    _run_folder(helpers)
    helpers.add_argument(
        "--device",
        metavar="ID",
        help="whose helpers (default: the best helper of every device)",
    )
    helpers.add_argument(
        "--top",
        type=_whole,
        default=20,
        metavar="N",
        help="how many lines (default 20)",
    )
    helpers.add_argument(
        "--export",
        metavar="FILE",
        help="write all pairs as .csv, or adopted pairs as .graphml",
    )
    _verbatim(helpers)
    helpers.add_argument("--json", action="store_true", help="all pairs as JSON")
    helpers.set_defaults(command=_late("tables", "helpers"))

    predict = commands.add_parser(
        "predict", help="predictions for new rows, each by its own device's model"
    )
    _run_folder(predict)
    predict.add_argument("table", help="rows with the same columns (CSV or Parquet)")
    predict.add_argument(
        "--out", metavar="FILE", help="a .csv or .parquet file (default: print CSV)"
    )
    predict.add_argument(
        "--keep",
        type=_names,
        default=[],
        metavar="A,B",
        help=(
            "columns of the table to write beside row, device and prediction; 'all' for all of them"
        ),
    )
    predict.add_argument(
        "--unseen",
        choices=("pooled", "error", "skip"),
        help=(
            "devices that were not there when fitting: one model for all, stop, or no prediction"
            " (default: as fitted)"
        ),
    )
    predict.add_argument(
        "--missing",
        choices=("error", "skip"),
        default="error",
        help="rows with missing or infinite values: stop, or no prediction (default error)",
    )
    _verbatim(predict)
    predict.set_defaults(command=_late("predicting", "predict"))

    report = commands.add_parser("report", help="write a run's report, one HTML file")
    _run_folder(report)
    report.add_argument(
        "--out", metavar="FILE", help="where (default: report.html in the run folder)"
    )
    report.set_defaults(command=_late("tables", "report"))

    compare = commands.add_parser(
        "compare",
        help="local, pooled, FedAvg + fine-tuning, IFCA and ours on the same held-out rows",
    )
    _table(compare)
    compare.add_argument(
        "--out",
        metavar="FILE",
        help="every device's errors as .csv; over seeds also all results as .json",
    )
    _verbatim(compare)
    over = compare.add_argument_group(
        "every method on equal terms, over seeds (linear models; any of these options)"
    )
    over.add_argument(
        "--seeds",
        type=_whole,
        metavar="N",
        help="deal rows so many times, from --seed on (default 5)",
    )
    over.add_argument(
        "--few",
        type=int,
        metavar="N",
        help=(
            "rows of each device to learn from, the others to judge by (default: all but --holdout;"
            " 0: one of every class)"
        ),
    )
    over.add_argument(
        "--methods",
        type=_names,
        metavar="A,B",
        help=(
            "some of local, pooled, clustered, fine-tuned, FedAvg, FedAvg + fine-tuning, IFCA (2),"
            " IFCA (4), Ditto, paper, kin, blend (default all)"
        ),
    )
    over.add_argument(
        "--reference",
        metavar="NAME",
        help="the method the others are compared with (default blend)",
    )
    compare.set_defaults(command=_late("tables", "compare"))

    methods = commands.add_parser("methods", help="the ways to personalize there are")
    methods.add_argument("name", nargs="?", help="one of them, with its settings")
    methods.add_argument("--json", action="store_true", help="as JSON")
    methods.set_defaults(command=_late("method_list", "methods"))


def _table(made: argparse.ArgumentParser) -> None:
    made.add_argument("table", help="a table: .csv, .tsv, .csv.gz or .parquet")
    made.add_argument(
        "--device",
        required=True,
        metavar="COLUMN",
        help="the column that says whose row it is",
    )
    made.add_argument(
        "--label", required=True, metavar="COLUMN", help="the column to predict"
    )
    made.add_argument(
        "--model",
        type=_kind,
        default="linear",
        help=(
            f"what a model is: {', '.join(MODELS)}, or FILE.py:NAME, a torch module of your own"
            " (default linear)"
        ),
    )
    made.add_argument(
        "--task",
        choices=("auto", "regression", "classification"),
        default="auto",
        help="default: as the label looks",
    )
    made.add_argument(
        "--features",
        type=_names,
        default=[],
        metavar="A,B",
        help="columns to predict from (default: all others)",
    )
    made.add_argument(
        "--drop", type=_names, default=[], metavar="A,B", help="columns to leave out"
    )
    made.add_argument("--weight", metavar="COLUMN", help="how much each row counts")
    made.add_argument(
        "--group",
        metavar="COLUMN",
        help="groups of devices that get a verdict of their own; not a feature",
    )
    made.add_argument(
        "--impute",
        action="store_true",
        help="fill missing values with column means or most frequent categories",
    )
    made.add_argument(
        "--separator",
        metavar="CHAR",
        help="between the columns of a CSV (default: found in its first line)",
    )
    made.add_argument(
        "--decimal",
        default=".",
        metavar="CHAR",
        help="decimal mark of a CSV (default .)",
    )
    made.add_argument(
        "--thousands",
        metavar="CHAR",
        help="mark between thousands in a CSV (default: none)",
    )
    made.add_argument(
        "--peers",
        type=_number,
        default="auto",
        metavar="N",
        help="of the paper's loop: peers asked per round (default 20)",
    )
    made.add_argument(
        "--rounds",
        type=_number,
        default="auto",
        metavar="N",
        help="of the paper's loop: rounds (default 100; 20 for trees)",
    )
    made.add_argument(
        "--step-size",
        type=_number,
        default="auto",
        metavar="X",
        help="of the paper's loop: length of a step (default: chosen)",
    )
    made.add_argument(
        "--method",
        choices=("auto", "blend", "paper", "kin"),
        default="auto",
        help=(
            "how to learn: auto is blend, unless an option of the paper's loop is given (default"
            " auto)"
        ),
    )
    made.add_argument(
        "--budget",
        type=_whole,
        default=640,
        metavar="N",
        help="questions per device, with blend (default 640)",
    )
    made.add_argument(
        "--ordered",
        action="store_true",
        help="rows come in the order of time (for blend)",
    )
    made.add_argument(
        "--units",
        choices=("auto", "shared", "centred", "raw"),
        default="auto",
        help="scale of features and label",
    )
    made.add_argument(
        "--public",
        metavar="FILE",
        help="public points for trees, forests, boosting (default: made up)",
    )
    made.add_argument(
        "--holdout",
        type=float,
        default=0.25,
        metavar="SHARE",
        help="rows held back to judge by (default 0.25)",
    )
    made.add_argument(
        "--trials",
        type=_number,
        default="auto",
        metavar="N",
        help="how often to hold back other rows",
    )
    made.add_argument(
        "--seed",
        type=int,
        default=0,
        help="the same seed gives the same result (default 0)",
    )
    made.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="parallel processes for trees, forests, boosting (default 1)",
    )
    made.add_argument(
        "--compute",
        metavar="WHERE",
        help="where steps are computed: cuda for a GPU (default: this processor)",
    )
    made.add_argument(
        "--json", action="store_true", help="progress and result as JSON lines"
    )


def _verbatim(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--verbatim",
        action="store_true",
        help=(
            "texts in a .csv as they are (default: a ' before those that a spreadsheet would run as"
            " a formula)"
        ),
    )


def _run_folder(made: argparse.ArgumentParser) -> None:
    made.add_argument("run", help="a run folder, as `persfl fit --out` makes it")
    made.add_argument(
        "--module",
        metavar="FILE.py:NAME",
        help="the torch module of a run that was fitted with one of your own",
    )


def _kind(text: str) -> str:
    """A model's name, or a file with one; the file itself is looked at when the command runs."""
    if text not in MODELS and ".py" not in text:
        raise argparse.ArgumentTypeError(
            f"must be one of {', '.join(MODELS)}, or FILE.py:NAME, not {text!r}"
        )
    return text


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            f"must be a whole number above 0, not {text!r}"
        )
    return number


def _number(text: str) -> Any:
    """ "auto", or a number."""
    if text == "auto":
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise argparse.ArgumentTypeError(f"must be 'auto' or a number, not {text!r}")


def _experiment_commands(commands: Any) -> None:
    reproduce = commands.add_parser(
        "reproduce", help="regenerate the paper's figures (without a name: list them)"
    )
    reproduce.add_argument(
        "figures", nargs="*", metavar="FIGURE", help="names as listed, or 'all'"
    )
    _running(reproduce, out="reproduction")
    reproduce.set_defaults(command=_late("experiments", "reproduce"))

    run = commands.add_parser(
        "run", help="run an experiment of your own from a .toml spec"
    )
    run.add_argument("spec", help="the path of a spec, or the name of a built-in one")
    run.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="change a setting of every series",
    )
    run.add_argument(
        "--data", metavar="FOLDER", help="where the tables are that a comparison names"
    )
    run.add_argument(
        "--only",
        type=_names,
        default=[],
        metavar="A,B",
        help="some of the data sets of a comparison",
    )
    _running(run, out="runs")
    run.set_defaults(command=_late("experiments", "run"))

    tune = commands.add_parser(
        "tune", help="choose settings from the grids of a spec, on seeds of their own"
    )
    tune.add_argument("spec", help="the path of a spec, or the name of a built-in one")
    tune.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="change a setting of every series",
    )
    _running(tune, out="tuned", seed=106)
    tune.set_defaults(command=_late("experiments", "tune"))


def _running(made: argparse.ArgumentParser, *, out: str, seed: int = 6) -> None:
    made.add_argument(
        "--runs",
        type=int,
        help="independent runs per series (default 12; 3 with --quick)",
    )
    made.add_argument(
        "--rounds", type=int, help="rounds per run (default: as the spec says)"
    )
    made.add_argument(
        "--quick",
        action="store_true",
        help="few runs and rounds: shows that it works, proves nothing",
    )
    made.add_argument(
        "--out", default=out, metavar="FOLDER", help=f"where results go (default {out})"
    )
    made.add_argument(
        "--seed",
        type=int,
        default=seed,
        help=f"the same seed gives the same curves (default {seed})",
    )
    made.add_argument(
        "--numbers",
        action="store_true",
        help="numbers only: no figures, no page, no progress bar",
    )
    made.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="parallel processes (default: one per core)",
    )


def _federation_commands(commands: Any) -> None:
    federation = commands.add_parser(
        "federation",
        help="a real federation between machines, over Flower: init, up, demo",
    )
    kinds = federation.add_subparsers(
        title="commands", metavar="COMMAND", required=True
    )
    init = kinds.add_parser(
        "init",
        help="make a federation's folder: certificates, node keys, configuration",
    )
    init.add_argument("folder", help="the folder to make")
    init.add_argument(
        "--nodes",
        type=_whole,
        default=5,
        metavar="N",
        help="how many devices (default 5)",
    )
    init.add_argument(
        "--names",
        type=_names,
        default=[],
        metavar="A,B",
        help="their ids (default node-1, node-2, ...)",
    )
    init.add_argument(
        "--host",
        default="127.0.0.1",
        help="name or address by which nodes reach this machine (default 127.0.0.1)",
    )
    init.add_argument(
        "--port",
        type=_whole,
        default=9443,
        help="the port nodes come in by (default 9443)",
    )
    init.add_argument(
        "--inner-port",
        type=_whole,
        default=9444,
        help="the SuperLink's own port on this machine (default 9444)",
    )
    init.set_defaults(command=_late("federation", "init"))
    up = kinds.add_parser(
        "up", help="the SuperLink behind a proxy that lets only nodes through"
    )
    up.add_argument("folder", help="a federation's folder")
    up.set_defaults(command=_late("federation", "up"))
    demo = kinds.add_parser(
        "demo",
        help=(
            "all of it on this machine: nodes as processes, TLS, a run, its report; then cleans up"
        ),
    )
    demo.add_argument(
        "--out", required=True, metavar="FOLDER", help="the run folder to make"
    )
    demo.add_argument(
        "--nodes",
        type=_whole,
        default=5,
        metavar="N",
        help="how many nodes (default 5)",
    )
    demo.add_argument(
        "--rounds", type=_whole, default=8, metavar="N", help="rounds (default 8)"
    )
    demo.add_argument("--json", action="store_true", help="progress as JSON lines")
    demo.set_defaults(command=_late("federation", "demo"))

    node = commands.add_parser(
        "node", help="take part in a federation with the rows of a table"
    )
    node.add_argument(
        "--config",
        required=True,
        metavar="FOLDER",
        help="this device's folder, from `persfl federation init`",
    )
    node.add_argument(
        "--data",
        required=True,
        metavar="TABLE",
        help="its rows: .csv, .tsv, .csv.gz or .parquet, numbers only",
    )
    node.add_argument(
        "--label", required=True, metavar="COLUMN", help="the column to predict"
    )
    node.add_argument(
        "--drop", type=_names, default=[], metavar="A,B", help="columns to leave out"
    )
    node.add_argument("--weight", metavar="COLUMN", help="how much each row counts")
    node.add_argument(
        "--check",
        action="store_true",
        help="say what will leave this machine, and stop there",
    )
    node.set_defaults(command=_late("federation", "node"))

    federate = commands.add_parser(
        "federate", help="a run over a federation that is up"
    )
    federate.add_argument("folder", help="a federation's folder")
    federate.add_argument(
        "--out", required=True, metavar="FOLDER", help="the run folder to make"
    )
    federate.add_argument(
        "--resume",
        action="store_true",
        help="go on with an interrupted run: the result is the same",
    )
    federate.add_argument(
        "--model",
        choices=(*MODELS, "ridge", "network"),
        default="linear",
        help="what a model is (default linear)",
    )
    federate.add_argument(
        "--rounds",
        type=_whole,
        metavar="N",
        help="of the paper's loop and kin: rounds (default 60)",
    )
    federate.add_argument(
        "--peers",
        type=_whole,
        metavar="N",
        help="of the paper's loop and kin: peers asked per round (default 10)",
    )
    federate.add_argument(
        "--classes",
        type=int,
        default=0,
        metavar="N",
        help="labels 0 to N - 1 (default 0: a regression)",
    )
    federate.add_argument(
        "--method",
        choices=("auto", "blend", "paper", "kin"),
        default="auto",
        help=(
            "how to learn: auto is blend, unless an option of the paper's loop or a model that"
            " blend does not mix over a federation is given (default auto)"
        ),
    )
    federate.add_argument(
        "--budget",
        type=_whole,
        default=640,
        metavar="N",
        help="questions per device, with blend (default 640)",
    )
    federate.add_argument(
        "--ordered",
        action="store_true",
        help="rows come in the order of time (for blend)",
    )
    federate.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the model",
    )
    federate.add_argument(
        "--target",
        metavar="TABLE",
        help="target at home: this table stays here, only probes go out",
    )
    federate.add_argument(
        "--name",
        default="home",
        metavar="ID",
        help="what the target at home is called (default home)",
    )
    federate.add_argument(
        "--label", metavar="COLUMN", help="the label's name; with --target, its column"
    )
    federate.add_argument(
        "--step-size",
        type=_number,
        default="auto",
        metavar="X",
        help="length of a step (default: chosen)",
    )
    federate.add_argument(
        "--steps",
        type=_whole,
        default=1,
        metavar="N",
        help="gradient steps per answer (default 1)",
    )
    federate.add_argument(
        "--batch", type=_whole, metavar="N", help="rows per gradient step (default all)"
    )
    federate.add_argument(
        "--points",
        type=int,
        default=0,
        metavar="N",
        help="public points: Algorithm 2 (default 100 unless linear)",
    )
    federate.add_argument(
        "--units",
        choices=("auto", "shared", "raw"),
        default="auto",
        help="scale of features and label",
    )
    federate.add_argument(
        "--holdout",
        type=float,
        default=0.25,
        metavar="SHARE",
        help="rows held back to judge by (default 0.25)",
    )
    federate.add_argument(
        "--deadline",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds a round waits for answers (default 60)",
    )
    federate.add_argument(
        "--quorum",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="of those asked, who must answer (default 0.5)",
    )
    federate.add_argument(
        "--patience",
        type=float,
        default=600.0,
        metavar="S",
        help="seconds without a quorum (default 600)",
    )
    federate.add_argument(
        "--gather",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds to wait for all at the start (default 30)",
    )
    federate.add_argument(
        "--need",
        type=int,
        default=0,
        metavar="N",
        help="new rows per device before a round (default 0)",
    )
    federate.add_argument(
        "--growth",
        type=float,
        default=2.0,
        metavar="X",
        help="guard: new loss at most X times the old (default 2)",
    )
    federate.add_argument(
        "--reach",
        type=float,
        default=10.0,
        metavar="X",
        help="guard: step at most X times the usual (default 10)",
    )
    federate.add_argument(
        "--seed",
        type=int,
        default=0,
        help="the same seed gives the same result (default 0)",
    )
    federate.add_argument("--json", action="store_true", help="progress as JSON lines")
    federate.set_defaults(command=_late("federation", "federate"))

    ledger = commands.add_parser(
        "ledger",
        help="what was asked of a device, by whom, when, and how much was answered",
    )
    ledger.add_argument("folder", help="this device's folder")
    ledger.add_argument("--json", action="store_true", help="as JSON")
    ledger.set_defaults(command=_late("federation", "ledger"))


def _setting(text: str) -> tuple[str, Any]:
    """KEY=VALUE, the value as TOML has it; a bare word is text."""
    import tomllib

    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, not {text!r}")
    try:
        return key.strip(), tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


if __name__ == "__main__":
    sys.exit(main())
