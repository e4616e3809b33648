"""`persfl reproduce` and `persfl run`: experiments from specs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from persfl.checks import whole
from persfl.commands.progress import bar, table
from persfl.errors import InputError, need
from persfl.files import write_whole

if TYPE_CHECKING:
    from persfl.lab.figure_specs import Spec


def reproduce(chosen: argparse.Namespace) -> int:
    """The paper's figures."""
    from persfl.lab.figure_specs import load_spec
    from persfl.lab.spec_files import spec_names

    if not chosen.figures:
        for name in spec_names():
            print(f"{name:14} {load_spec(name).title}")
        print()
        for name in spec_names("networks"):
            print(f"{name:20} {load_spec(name).title}")
        every = "all (networks take a GPU and are not in it)"
        print(f"\npersfl reproduce fig2a [...], or {every}; --quick for a first look")
        return 0
    names = (
        spec_names()
        if chosen.figures == ["all"]
        else list(dict.fromkeys(chosen.figures))
    )
    return _experiments([load_spec(name) for name in names], chosen)


def run_experiment(chosen: argparse.Namespace) -> int:
    """An experiment of the user's own."""
    from persfl.lab.figure_specs import load_spec
    from persfl.lab.spec_files import read_spec

    changes = dict(chosen.set)
    content = read_spec(chosen.spec)[1]
    if "published" in content:
        from persfl.commands.published_numbers import run_published_sets

        return run_published_sets(chosen, changes)
    if "set" in content:
        from persfl.commands.method_comparison import run_comparison

        return run_comparison(chosen, changes)
    if chosen.data is not None or chosen.only:
        whose = "specs that compare methods on data sets, such as compare"
        raise InputError(f"--data and --only belong to {whose}. Leave them out.")
    return _experiments([load_spec(chosen.spec, changes)], chosen)


def tune(chosen: argparse.Namespace) -> int:
    """Settings from grids.

    Changes on the command line are for trying: what is written is the spec as it was, with the
    choices.
    """
    from persfl.lab.figure_runs import collect
    from persfl.lab.figure_specs import load_spec
    from persfl.lab.tuning import grid_spec, tuned_spec

    changes = dict(chosen.set)
    spec = _shortened(load_spec(chosen.spec, changes), chosen)
    runs = _runs(chosen)
    out = Path(chosen.out)
    path = out / f"{spec.name}.toml"
    _refuse_own(path, chosen.spec)
    grid = grid_spec(spec)
    _work([grid], runs, chosen)
    result = collect(grid, runs=runs, seed=chosen.seed, out=out)
    tuned, found = tuned_spec(load_spec(chosen.spec), result)
    write_whole(path, tuned.brief.encode())
    rows = []
    for one in found:
        values = ", ".join(f"{key}={value}" for key, value in one.values.items())
        rows.append((one.series, values, f"{one.error:.3g}", ", ".join(one.edge)))
    table(("series", "chosen", "mean error", "at the end of its list"), rows)
    tried = f"{len(grid.series)} settings, {runs} runs each, seed {chosen.seed}"
    print(f"\n{tried}. The spec with the chosen ones is {path}.")
    return 0


def _refuse_own(path: Path, spec: str) -> None:
    """Stop where the tuned spec would be written over one that a person wrote."""
    from persfl.lab.spec_files import read_spec

    if not path.exists():
        return
    itself = path.samefile(read_spec(spec)[0])
    if itself or not read_spec(path)[1].get("tuned"):
        what = "the spec itself" if itself else "there, and no result of persfl tune"
        raise InputError(f"{str(path)!r} is {what}. Choose another --out.")


def _runs(chosen: argparse.Namespace) -> int:
    usual = 3 if chosen.quick else 12
    return whole("--runs", usual if chosen.runs is None else chosen.runs, least=1)


def _shortened(spec: Spec, chosen: argparse.Namespace) -> Spec:
    if chosen.quick:
        spec = spec.quick()
    if chosen.rounds is None:
        return spec
    return spec.rounds(whole("--rounds", chosen.rounds, least=1))


def _work(
    specs: list[Spec], runs: int, chosen: argparse.Namespace
) -> tuple[dict[str, float], str]:
    """Run what is not kept yet.

    Returns the seconds of one core per figure, and a sentence about all of it.
    """
    from persfl.lab.figure_files import results_folder
    from persfl.lab.figure_runs import pieces
    from persfl.lab.jobs import finished_jobs, longest_first

    jobs = whole("--jobs", chosen.jobs, least=1)
    out = Path(chosen.out)
    out.mkdir(parents=True, exist_ok=True)
    for spec in specs:
        results_folder(out, spec.name)
    begin = time.perf_counter()
    todo = [
        piece
        for spec in specs
        for piece in pieces(spec, runs=runs, seed=chosen.seed, out=out)
    ]
    missing = [piece for piece in todo if not piece.done]
    spent = dict.fromkeys((spec.name for spec in specs), 0.0)
    total = sum(piece.cost for piece in missing) or 1.0
    shape = "{percentage:3.0f}% |{bar}| {desc}, {elapsed} so far, {remaining} left"
    left = len(missing)
    with bar(
        chosen.numbers, total=total, disable=None, bar_format=shape, leave=False
    ) as shown:
        shown.set_description_str(f"{left} pieces to do")
        for piece, seconds in finished_jobs(longest_first(missing), jobs=jobs):
            left -= 1
            spent[piece.figure] += seconds
            shown.set_description_str(
                f"{piece.figure} {piece.series} done, {left} pieces left"
            )
            shown.update(piece.cost)
    kept = len(todo) - len(missing)
    waited = f"{time.perf_counter() - begin:.0f} s on {jobs} cores"
    return spent, f"{waited}; {kept} of {len(todo)} pieces were kept from before."


def _experiments(specs: list[Spec], chosen: argparse.Namespace) -> int:
    if not chosen.numbers:
        need("matplotlib", extra="report", why="drawing figures")
    from persfl.lab.agreement import verdicts
    from persfl.lab.drawings import save_curves
    from persfl.lab.figure_files import write_figure
    from persfl.lab.figure_runs import collect
    from persfl.lab.result_pages import reproduction_page, write_reproduction

    runs = _runs(chosen)
    out = Path(chosen.out)
    if not chosen.numbers:
        reproduction_page(out)  # before the work, not after it
    specs = [_shortened(spec, chosen) for spec in specs]
    spent, about = _work(specs, runs, chosen)
    results = {}
    rows = []
    for spec in specs:
        result = collect(spec, runs=runs, seed=chosen.seed, out=out)
        results[spec.name] = result
        folder = write_figure(result, out)
        if not chosen.numbers:
            save_curves(result, folder)
        known = {verdict.series: verdict for verdict in verdicts(result)}
        for series in spec.series:
            end = result.curves[series.name][:, -1]
            said = str(known[series.name]) if series.name in known else ""
            rows.append((spec.name, series.name, f"{np.median(end):.3g}", said))
    table(("figure", "series", "median", "against the reference"), rows)
    print()
    times = [(name, str(runs), f"{seconds:.1f}") for name, seconds in spent.items()]
    table(("figure", "runs", "seconds of one core"), times)
    print(f"\n{about}")
    if chosen.numbers:
        print(f"Tables are in {out}/.")
    else:
        page = write_reproduction(
            results, out, short=chosen.quick or chosen.rounds is not None
        )
        print(f"Figures and tables are in {out}/, the comparison in {page}.")
    return 0
