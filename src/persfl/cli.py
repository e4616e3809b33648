"""The command line. Heavy imports wait until a command needs them, so that `persfl --help` answers at once."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from persfl.errors import InputError, PersflError, need


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if not hasattr(chosen, "command"):
        parser.print_help()
        return 0
    try:
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
    except KeyboardInterrupt:
        print("\npersfl: stopped. What is done is kept: the same command goes on from there.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    from persfl import __version__

    parser = argparse.ArgumentParser(prog="persfl", description="Personalized federated learning by finding out who really helps.")
    parser.add_argument("--version", action="version", version=f"persfl {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    reproduce = commands.add_parser("reproduce", help="regenerate the paper's figures (without a name: list them)")
    reproduce.add_argument("figures", nargs="*", metavar="FIGURE", help="names as listed, or 'all'")
    _running(reproduce, out="reproduction")
    reproduce.set_defaults(command=_reproduce)

    run = commands.add_parser("run", help="run an experiment of your own from a .toml spec")
    run.add_argument("spec", help="the path of a spec, or the name of a built-in one")
    run.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="change a setting of every series"
    )
    _running(run, out="runs")
    run.set_defaults(command=_run)
    return parser


def _running(parser: argparse.ArgumentParser, *, out: str) -> None:
    parser.add_argument("--runs", type=int, help="independent runs per series (default 12; 3 with --quick)")
    parser.add_argument("--rounds", type=int, help="rounds per run (default: as the spec says)")
    parser.add_argument("--quick", action="store_true", help="few runs and rounds: shows that it works, proves nothing")
    parser.add_argument("--out", default=out, metavar="FOLDER", help=f"where results go (default {out})")
    parser.add_argument("--seed", type=int, default=6, help="the same seed gives the same curves (default 6)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel processes (default: one per core)")


def _reproduce(chosen: argparse.Namespace) -> int:
    from persfl.experiments.spec import load_spec, spec_names

    if not chosen.figures:
        for name in spec_names():
            print(f"{name:14} {load_spec(name).title}")
        print("\npersfl reproduce fig2a [...], or all; --quick for a first look")
        return 0
    names = spec_names() if chosen.figures == ["all"] else list(dict.fromkeys(chosen.figures))
    return _experiments([load_spec(name) for name in names], chosen)


def _run(chosen: argparse.Namespace) -> int:
    from persfl.experiments.spec import load_spec

    return _experiments([load_spec(chosen.spec, dict(_change(text) for text in chosen.changes))], chosen)


def _change(text: str) -> tuple[str, Any]:
    """KEY=VALUE, the value as TOML would read it; a bare word is text."""
    import tomllib

    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set takes KEY=VALUE, for example rows=25. Got {text!r}.")
    try:
        return key.strip(), tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def _experiments(specs: list[Any], chosen: argparse.Namespace) -> int:
    from persfl.checks import whole

    need("matplotlib", extra="report", why="drawing figures")
    tqdm = need("tqdm", extra="report", why="showing progress").tqdm
    from persfl.experiments import figures, files
    from persfl.experiments.agreement import verdicts
    from persfl.experiments.page import write_page
    from persfl.experiments.runner import collect, pieces, work

    runs = whole("--runs", (3 if chosen.quick else 12) if chosen.runs is None else chosen.runs, least=1)
    jobs = whole("--jobs", chosen.jobs, least=1)
    if chosen.quick:
        specs = [spec.quick() for spec in specs]
    if chosen.rounds is not None:
        specs = [spec.rounds(whole("--rounds", chosen.rounds, least=1)) for spec in specs]
    out = Path(chosen.out)
    out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()

    todo = [piece for spec in specs for piece in pieces(spec, runs=runs, seed=chosen.seed, out=out)]
    missing = [piece for piece in todo if not piece.done]
    spent = dict.fromkeys((spec.name for spec in specs), 0.0)
    total = sum(piece.cost for piece in missing) or 1.0
    shape = "{percentage:3.0f}% |{bar}| {desc}, {elapsed} so far, {remaining} left"
    left = len(missing)
    with tqdm(total=total, disable=None, bar_format=shape, leave=False) as bar:
        bar.set_description_str(f"{left} pieces to do")
        for piece, seconds in work(missing, jobs=jobs):
            left -= 1
            spent[piece.figure] += seconds
            bar.set_description_str(f"{piece.figure} {piece.series} done, {left} pieces left")
            bar.update(piece.cost)

    results, rows = {}, []
    for spec in specs:
        result = collect(spec, runs=runs, seed=chosen.seed, out=out)
        results[spec.name] = result
        figures.save(result, files.write(result, out))
        known = {verdict.series: verdict for verdict in verdicts(result)}
        for series in spec.series:
            end = result.curves[series.name][:, -1]
            said = str(known[series.name]) if series.name in known else ""
            rows.append((spec.name, series.name, f"{_median(end):.3g}", said))
    page = write_page(results, out, short=chosen.quick or chosen.rounds is not None)
    _table(("figure", "series", "median", "against the reference"), rows)
    print()
    _table(("figure", "runs", "seconds of one core"), [(name, str(runs), f"{seconds:.1f}") for name, seconds in spent.items()])
    kept = len(todo) - len(missing)
    print(f"\n{time.perf_counter() - begin:.0f} s on {jobs} cores; {kept} of {len(todo)} pieces were kept from before.")
    print(f"Figures and tables are in {out}/, the comparison in {page}.")
    return 0


def _median(values: Any) -> float:
    import numpy as np

    return float(np.median(values))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
