"""The command line. Heavy imports wait until a command needs them, so that `persfl --help` answers at once."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from persfl.errors import PersflError, PersflWarning

MODELS = ("linear", "tree", "forest", "boosting")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    known = parser()
    chosen = known.parse_args(arguments)
    if not hasattr(chosen, "command"):
        known.print_help()
        return 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", PersflWarning)
            warnings.showwarning = _warned  # type: ignore[assignment]
            return int(chosen.command(chosen) or 0)
    except PersflError as error:
        print(f"persfl: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"persfl: {error}. Check the path and its permissions.", file=sys.stderr)
        return 2
    except MemoryError:
        print("persfl: there is not enough memory for this table. Use fewer columns (--features) or fewer peers.", file=sys.stderr)
        return 2
    except ValueError as error:  # what scikit-learn or pandas say of input that our own checks let pass
        print(f"persfl: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = " What is done is kept: the same command goes on from there." if hasattr(chosen, "runs") else ""
        print(f"\npersfl: stopped.{kept}", file=sys.stderr)
        return 130


def _warned(message: Any, category: Any, *_: Any) -> None:
    """A person at a terminal needs the sentence, not the line of code."""
    if issubclass(category, PersflWarning):
        print(f"persfl: {message}", file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    from persfl import __version__

    made = argparse.ArgumentParser(prog="persfl", description="Personalized federated learning by finding out who really helps.")
    made.add_argument("--version", action="version", version=f"persfl {__version__}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND")
    _table_commands(commands)
    _experiment_commands(commands)
    return made


def _late(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    """A command that is imported when it runs."""

    def run(chosen: argparse.Namespace) -> int:
        return int(getattr(importlib.import_module(f"persfl.commands.{module}"), name)(chosen))

    return run


def _table_commands(commands: Any) -> None:
    demo = commands.add_parser("demo", help="bundled real data, from table to report, in a minute")
    demo.add_argument("--out", default="persfl-demo", metavar="FOLDER", help="where it goes (default persfl-demo)")
    demo.add_argument("--json", action="store_true", help="progress and result as JSON lines")
    demo.set_defaults(command=_late("tables", "demo"))

    fit = commands.add_parser(
        "fit", help="a model for every device of a table, and a report of who helps whom",
        description="A model for every device of a table, kept in a folder with a report. Every device's rows stay its own; "
        "peers answer from theirs.",
    )  # fmt: skip
    _table(fit)
    fit.add_argument("--out", required=True, metavar="FOLDER", help="the run folder to make")
    fit.add_argument("--resume", action="store_true", help="go on with an interrupted run: the result is the same to the last bit")
    fit.add_argument("--force", action="store_true", help="replace a run folder that is there")
    fit.add_argument("--no-report", action="store_true", help="do not write report.html")
    fit.add_argument("--fallback", action="store_true", help="keep a device's own model where the fleet's evidence favours it")
    fit.add_argument("--unseen", choices=("error", "pooled"), default="error", help="devices first seen when predicting")
    fit.set_defaults(command=_late("tables", "fit"))

    helpers = commands.add_parser("helpers", help="who helps a device, ranked")
    _run_folder(helpers)
    helpers.add_argument("--device", metavar="ID", help="whose helpers (default: the best helper of every device)")
    helpers.add_argument("--top", type=_whole, default=20, metavar="N", help="how many lines (default 20)")
    helpers.add_argument("--export", metavar="FILE", help="write all pairs as .csv, or adopted pairs as .graphml")
    helpers.add_argument("--json", action="store_true", help="all pairs as JSON")
    helpers.set_defaults(command=_late("tables", "helpers"))

    predict = commands.add_parser("predict", help="predictions for new rows, each by its own device's model")
    _run_folder(predict)
    predict.add_argument("table", help="rows with the same columns (CSV or Parquet)")
    predict.add_argument("--out", metavar="FILE", help="a .csv or .parquet file (default: print CSV)")
    predict.set_defaults(command=_late("tables", "predict"))

    report = commands.add_parser("report", help="write a run's report, one HTML file")
    _run_folder(report)
    report.add_argument("--out", metavar="FILE", help="where (default: report.html in the run folder)")
    report.set_defaults(command=_late("tables", "report"))

    compare = commands.add_parser("compare", help="local, pooled, FedAvg + fine-tuning, IFCA and ours on the same held-out rows")
    _table(compare)
    compare.add_argument("--out", metavar="FILE", help="every device's errors as .csv")
    compare.set_defaults(command=_late("tables", "compare"))


def _table(made: argparse.ArgumentParser) -> None:
    made.add_argument("table", help="a table: .csv, .tsv, .csv.gz or .parquet")
    made.add_argument("--device", required=True, metavar="COLUMN", help="the column that says whose row it is")
    made.add_argument("--label", required=True, metavar="COLUMN", help="the column to predict")
    made.add_argument("--model", choices=MODELS, default="linear", help="what a model is (default linear)")
    made.add_argument(
        "--task", choices=("auto", "regression", "classification"), default="auto", help="default: as the label looks"
    )
    made.add_argument("--features", type=_names, default=[], metavar="A,B", help="columns to predict from (default: all others)")
    made.add_argument("--drop", type=_names, default=[], metavar="A,B", help="columns to leave out")
    made.add_argument("--weight", metavar="COLUMN", help="how much each row counts")
    made.add_argument("--group", metavar="COLUMN", help="groups of devices that get a verdict of their own; not a feature")
    made.add_argument("--impute", action="store_true", help="fill missing values with column means or most frequent categories")
    made.add_argument("--separator", metavar="CHAR", help="between the columns of a CSV (default: found in its first line)")
    made.add_argument("--decimal", default=".", metavar="CHAR", help="decimal mark of a CSV (default .)")
    made.add_argument("--peers", type=_number, default="auto", metavar="N", help="peers asked per round (default 20 or all others)")
    made.add_argument("--rounds", type=_number, default="auto", metavar="N", help="rounds (default 100; 20 for other than linear)")
    made.add_argument(
        "--step-size", type=_number, default="auto", metavar="X", help="length of a step (default: chosen, then halved)"
    )
    made.add_argument("--method", choices=("paper", "kin", "blend"), default="paper", help="how to learn (default paper)")
    made.add_argument("--budget", type=_whole, default=640, metavar="N", help="questions per device, with blend (default 640)")
    made.add_argument("--ordered", action="store_true", help="rows come in the order of time (for blend)")
    made.add_argument("--units", choices=("auto", "shared", "centred", "raw"), default="auto", help="scale of features and label")
    made.add_argument("--public", metavar="FILE", help="public points for other than linear models (default: made up)")
    made.add_argument("--holdout", type=float, default=0.25, metavar="SHARE", help="rows held back to judge by (default 0.25)")
    made.add_argument("--trials", type=_number, default="auto", metavar="N", help="how often to hold back other rows")
    made.add_argument("--seed", type=int, default=0, help="the same seed gives the same result (default 0)")
    made.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="parallel processes for other than linear models (default 1)"
    )
    made.add_argument("--json", action="store_true", help="progress and result as JSON lines")


def _run_folder(made: argparse.ArgumentParser) -> None:
    made.add_argument("run", help="a run folder, as `persfl fit --out` makes it")
    made.add_argument(
        "--trust", action="append", default=[], metavar="TYPE", help="accept models of this foreign type from the folder"
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
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
    reproduce = commands.add_parser("reproduce", help="regenerate the paper's figures (without a name: list them)")
    reproduce.add_argument("figures", nargs="*", metavar="FIGURE", help="names as listed, or 'all'")
    _running(reproduce, out="reproduction")
    reproduce.set_defaults(command=_late("experiments", "reproduce"))

    run = commands.add_parser("run", help="run an experiment of your own from a .toml spec")
    run.add_argument("spec", help="the path of a spec, or the name of a built-in one")
    run.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="change a setting of every series"
    )
    _running(run, out="runs")
    run.set_defaults(command=_late("experiments", "run"))


def _running(made: argparse.ArgumentParser, *, out: str) -> None:
    made.add_argument("--runs", type=int, help="independent runs per series (default 12; 3 with --quick)")
    made.add_argument("--rounds", type=int, help="rounds per run (default: as the spec says)")
    made.add_argument("--quick", action="store_true", help="few runs and rounds: shows that it works, proves nothing")
    made.add_argument("--out", default=out, metavar="FOLDER", help=f"where results go (default {out})")
    made.add_argument("--seed", type=int, default=6, help="the same seed gives the same curves (default 6)")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel processes (default: one per core)")


if __name__ == "__main__":
    sys.exit(main())
