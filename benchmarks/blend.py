"""The default rule beside everything that a statistician, or anybody with a table, would try first;
every line says what is asked, what was measured, and whether it holds.

    python benchmarks/blend.py [--section time,few] [--seeds 3] [--first 1000] [--jobs 2]
        [--data FOLDER] [--published FOLDER] [--only drift,wander] [--out kept.json]
        [--method blend | --rule FILE.py[:Class]]

Sections (`benchmarks/tasks.py` makes their rows, `benchmarks/rivals.py` the rivals):

    few         4, 6, 8 devices with 3, 5, 10 rows, against own ridge models and one for all
    nonlinear   Friedman's function and others with personal parts, against boosting and the rule
                without trees
    loud        one loud device among calm ones
    time        the past to learn from, the future to judge by, told so and not told
    published   heart, school and weather by other people's protocols (--published)
    sets        the ten sets of the spec `compare`, against all other methods of persfl too
    seconds     800 features x 3 devices; 1,000 devices x 30 rows x 10 features, with the trial run

With --data a folder that has household.npz and the other tables of the spec `compare` is used too.
Every fit is kept in --out as it comes (a file for one command at a time), so the same command goes
on where it was cut. What other code has measured is measured anew, but for persfl's other methods
with --keep-others. --rule measures a class that is not part of persfl, on the sets whose labels are
numbers: `Class(ordered=False, boost=True, seed=0).fit(X, y, g, blocks=None).predict(X, g)`, with g
from 0.

A regret is log(error / error of the best rival in hindsight), errors being means over devices,
then over seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    # before numpy: cells are parallel, not what is inside them
    os.environ.setdefault(_name, "1")

import numpy as np
from measuring import PATIENCE, TIMINGS, Cell, Found, Judged, Kept, Timing, seconds_of
from tasks import OF_CLASSES, sections

from persfl.lab.jobs import finished_jobs
from persfl.lab.standings import parts
from persfl.types import Array

OWN = ("own ridge", "own logistic", "own")  # any of these, and variants of them
WORSE_THAN_OWN = 0.05
PROTOCOLS = ("heart", "school", "fmi")  # of others; what else is published informs


# From cells to numbers


class Table:
    """Errors of one section by set and method: of each, the mean over devices, then over seeds."""

    def __init__(self, kept: Kept, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self.kept = kept
        self.sets = list(dict.fromkeys(cell.name for cell in cells))

    def _found(self, part: str, name: str) -> list[Found]:
        keys = [cell.key for cell in self.cells if cell.name == name]
        if part == "judged":
            return [self.kept.part(part)[key] for key in keys]
        others = self.kept.part("others")
        return [self.kept.part("rivals")[key] | others.get(key, {}) for key in keys]

    def _seeds(self, part: str, name: str, method: str, devices: slice) -> Array:
        """(seeds,) the mean over devices."""
        found = self._found(part, name)
        return np.array([np.mean(one[method]["errors"][devices]) for one in found])

    def rivals(self, name: str, devices: slice = slice(None)) -> dict[str, float]:
        """Every rival's error on a set."""
        methods = self._found("rivals", name)[0]
        return {
            method: float(self._seeds("rivals", name, method, devices).mean())
            for method in methods
        }

    def judged(self, name: str, way: str = "", devices: slice = slice(None)) -> float:
        """The rule's error on a set."""
        return float(self._seeds("judged", name, way, devices).mean())

    def unsure(self, name: str, way: str = "") -> float:
        """The standard error of the regret over seeds; NaN with a single one."""
        ours = self._seeds("judged", name, way, slice(None))
        theirs = self._seeds("rivals", name, self.best(name), slice(None))
        moved = parts(ours, theirs)
        return (
            float(moved.std(ddof=1) / len(moved) ** 0.5) if len(moved) > 1 else np.nan
        )

    def ways(self, name: str) -> list[str]:
        """How the rule was fitted."""
        return list(self._found("judged", name)[0])

    def by_way(
        self, name: str, ways: Sequence[str], value: Callable[[str, str], float]
    ) -> list[float | None]:
        """A value for every way; None for ways in which the rule was not fitted here."""
        known = self.ways(name)
        return [value(name, way) if way in known else None for way in ways]

    def seconds(self, name: str) -> float:
        """Of one core, for a fit."""
        return float(
            np.mean([one[""]["seconds"] for one in self._found("judged", name)])
        )

    def noted(self, name: str) -> bool:
        """Whether every fit that was told nothing told what to set."""
        return all(one[""]["noted"] for one in self._found("judged", name))

    def regret(self, name: str, way: str = "", among: Sequence[str] = ()) -> float:
        """Against the best of some rivals, or of all."""
        rivals = self.rivals(name)
        least = min(rivals[method] for method in among or rivals)
        return float(np.log(self.judged(name, way) / least))

    def best(self, name: str) -> str:
        """The best rival on a set."""
        rivals = self.rivals(name)
        return min(rivals, key=rivals.__getitem__)

    def against_own(self, name: str) -> float:
        """How much worse than own rows, as told as can be."""
        way = "told" if "told" in self.ways(name) else ""
        own = [
            error
            for method, error in self.rivals(name).items()
            if method.startswith(OWN)
        ]
        return self.judged(name, way) / min(own) - 1


class Line(NamedTuple):
    """What is asked, what was measured, whether it holds (None: for information)."""

    asked: str
    measured: str
    met: bool | None


def few_lines(table: Table) -> Iterator[Line]:
    """Against the better of own ridge and pooled, set by set."""
    worse = {name: float(np.expm1(table.regret(name))) for name in table.sets}
    worst = max(worse, key=worse.__getitem__)
    over = [name for name, more in worse.items() if more > 0.05]
    sure = sum(
        table.regret(name) - 2 * table.unsure(name) > np.log(1.05) for name in over
    )
    yield Line(
        "few devices, few rows: never more than 5 % worse than the better of own and pooled",
        f"worst {worse[worst]:+.1%} ({worst}), {len(over)} of {len(worse)} sets over 5 %"
        f" ({sure} by two standard errors), mean {np.mean(list(worse.values())):+.1%}",
        not over,
    )


def nonlinear_lines(table: Table) -> Iterator[Line]:
    """Against the better of boosting and what is linear, set by set."""
    worse = {}
    for name in table.sets:
        rivals = table.rivals(name)
        least = min(rivals["boosting"], rivals["diagonal"])
        if "linear" in table.ways(name):
            least = min(least, table.judged(name, "linear"))
        worse[name] = table.judged(name) / least - 1
    worst = max(worse, key=worse.__getitem__)
    yield Line(
        "non-linear and linear generators: within 5 % of the better of boosting and the linear"
        " rule (or a mixed model)",
        f"worst {worse[worst]:+.1%} ({worst}), mean {np.mean(list(worse.values())):+.1%}",
        worse[worst] <= 0.05,
    )


def loud_lines(table: Table) -> Iterator[Line]:
    """Excess error of the loud device."""
    (name,) = table.sets
    first = slice(0, 1)
    mine, rivals = table.judged(name, devices=first), table.rivals(name, first)
    ratio = mine / rivals["pooled"]
    yield Line(
        "loud device: at most twice the error of one model for all",
        f"{ratio:.2f} times (rule {mine:.3f}, one for all {rivals['pooled']:.3f}, own ridge"
        f" {rivals[OWN[0]]:.3f})",
        ratio <= 2,
    )
    calm = slice(1, None)
    mine, rivals = table.judged(name, devices=calm), table.rivals(name, calm)
    yield Line(
        "the calm ones beside it: at most 5 % worse than own rows",
        f"{mine / rivals[OWN[0]] - 1:+.1%}",
        mine / rivals[OWN[0]] <= 1.05,
    )


def time_lines(table: Table) -> Iterator[Line]:
    """Regret told, and not told."""
    told = {name: table.regret(name, "told") for name in table.sets}
    untold = {name: table.regret(name) for name in table.sets}
    worst, worst_untold = (max(some, key=some.__getitem__) for some in (told, untold))
    mean = float(np.mean(list(told.values())))
    yield Line(
        "forward in time, told: mean regret at most 0, worst at most +.10",
        f"mean {mean:+.3f}, worst {told[worst]:+.3f} ({worst})",
        mean <= 0 and told[worst] <= 0.10,
    )
    noted = [name for name in table.sets if table.noted(name)]
    yield Line(
        "forward in time, not told: at most +.15 and a note",
        f"mean {np.mean(list(untold.values())):+.3f}, worst {untold[worst_untold]:+.3f}"
        f" ({worst_untold}), a note on {len(noted)} of {len(table.sets)}",
        untold[worst_untold] <= 0.15 and len(noted) == len(table.sets),
    )


def published_lines(table: Table) -> Iterator[Line]:
    """Within 2 % of the best in hindsight; accuracies where there are classes."""
    for name in table.sets:
        best, way = table.best(name), "told" if "told" in table.ways(name) else ""
        mine, least = table.judged(name, way), table.rivals(name)[best]
        if name == "heart":
            mine, least = 1 - mine, 1 - least
            holds: bool | None = mine >= 0.98 * least
        else:
            holds = mine <= 1.02 * least
        untold = f", not told {table.judged(name):.4g}" if way else ""
        if name not in PROTOCOLS:
            holds = None
        asked = f"{name}: within 2 % of the best method or better"
        yield Line(
            asked,
            f"{mine:.4g}{untold}; {best} {least:.4g} ({mine / least - 1:+.1%})",
            holds,
        )


def sets_lines(table: Table) -> Iterator[Line]:
    """Regret against everybody."""
    regret = {name: table.regret(name) for name in table.sets}
    worst, mean = (
        max(regret, key=regret.__getitem__),
        float(np.mean(list(regret.values()))),
    )
    yield Line(
        "comparison sets, against everybody: mean regret at most -.03, worst at most +.10",
        f"mean {mean:+.3f}, worst {regret[worst]:+.3f} ({worst}), {len(regret)} sets",
        mean <= -0.03 and regret[worst] <= 0.10,
    )


def seconds_lines(judged: Judged, timings: Sequence[Timing]) -> Iterator[Line]:
    """Whole fits."""
    how = "no trial run" if judged.rule else "with the trial run"
    for timing in timings:
        asked = f"{timing.name}: at most {timing.most:g} s of one core, {how}"
        found = seconds_of(timing, judged)
        if found is None:
            yield Line(asked, f"given up after {PATIENCE} s (or failed)", False)
        else:
            text = f"{found[0]:.1f} s, at most {found[1]:.1f} GiB"
            yield Line(asked, text, found[0] <= timing.most)


LINES: dict[str, Callable[[Table], Iterator[Line]]] = {
    "few": few_lines,
    "nonlinear": nonlinear_lines,
    "loud": loud_lines,
    "time": time_lines,
    "published": published_lines,
    "sets": sets_lines,
}


def set_table(table: Table, label: str) -> Iterator[str]:
    """Every set: the rivals, the rule, its regret. Of a rival's variants the best, in hindsight."""
    every = {name: families(table.rivals(name)) for name in table.sets}
    methods = list(dict.fromkeys(method for some in every.values() for method in some))
    ways = list(dict.fromkeys(way for name in table.sets for way in table.ways(name)))
    heads = ["set", *methods, *(", ".join(filter(None, (label, way))) for way in ways)]
    heads += [" ".join(filter(None, ("regret", way, "(s.e.)"))) for way in ways]
    yield "| " + " | ".join([*heads, "seconds"]) + " |"
    yield "|---" * (len(heads) + 1) + "|"
    for name, rivals in every.items():
        best = min(rivals, key=rivals.__getitem__)
        row = [_short(rivals.get(method), method == best) for method in methods]
        row += [_short(mine) for mine in table.by_way(name, ways, table.judged)]
        for regret, unsure in zip(
            table.by_way(name, ways, table.regret),
            table.by_way(name, ways, table.unsure),
            strict=True,
        ):
            row.append("" if regret is None else f"{regret:+.3f} ({unsure:.3f})")
        yield "| " + " | ".join([name, *row, f"{table.seconds(name):.1f}"]) + " |"


def families(rivals: Mapping[str, float]) -> dict[str, float]:
    """The least error of each method's variants.

    >>> families({"own, shared": 0.2, "own, centred": 0.1, "pooled": 0.3})
    {'own': 0.1, 'pooled': 0.3}
    """
    found: dict[str, float] = {}
    for method, error in rivals.items():
        name = method.partition(",")[0]
        found[name] = min(error, found.get(name, np.inf))
    return found


def _short(error: float | None, best: bool = False) -> str:
    return "" if error is None else f"{error:.4g}" + " *" * best


# The command


def arguments() -> argparse.Namespace:
    """What was asked for."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--section", default="", help="some of the sections, with commas")
    made.add_argument(
        "--only", default="", help="some of the sets: parts of their names"
    )
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--first", type=int, default=1000, help="the first seed")
    made.add_argument("--data", type=Path, help="folder with further tables")
    made.add_argument(
        "--published", type=Path, help="folder with heart, school and fmi"
    )
    made.add_argument("--method", default="blend", help="a method of persfl")
    made.add_argument(
        "--rule", default="", help="FILE.py or FILE.py:Class instead of a method"
    )
    made.add_argument("--jobs", type=int, default=1, help="parallel processes")
    made.add_argument(
        "--out", type=Path, help="a .json file in which every fit is kept"
    )
    made.add_argument(
        "--keep-others",
        action="store_true",
        help="take what other code has measured of the other methods of persfl",
    )
    made.add_argument("--brief", action="store_true", help="without the tables of sets")
    made.add_argument(
        "--large",
        action="store_true",
        help="only time a fit of 1,000 devices with 30 rows and 10 features",
    )
    return made.parse_args()


def todo(chosen: argparse.Namespace, judged: Judged) -> dict[str, list[Cell]]:
    """Cells by section, each with what is not kept yet."""
    folders = (chosen.data, chosen.published)
    known = sections(*folders)
    wanted = [word for word in chosen.section.split(",") if word] or [*known, "seconds"]
    for name in wanted:
        if name not in (*known, "seconds"):
            raise SystemExit(
                f"--section must be of {', '.join([*known, 'seconds'])}. Got {name}."
            )
    words = [word for word in chosen.only.split(",") if word]
    found = {}
    for name in wanted:
        if name == "seconds":
            continue
        section = known[name]
        some = [
            task
            for task in section.tasks
            if (not words or any(word in task for word in words))
            and not (judged.rule and task in OF_CLASSES)
        ]
        seeds = range(chosen.first, chosen.first + chosen.seeds * section.repeat)
        found[name] = [
            Cell(name, task, seed, judged, folders, ())
            for task in some
            for seed in seeds
        ]
    return found


def missing(cells: Sequence[Cell], kept: Kept) -> Iterator[Cell]:
    """Cells that are not kept yet, or of which a part is not."""
    for cell in cells:
        asked = (
            ("rivals", "others", "judged")
            if cell.section == "sets"
            else ("rivals", "judged")
        )
        lacking = tuple(part for part in asked if cell.key not in kept.part(part))
        if lacking:
            yield replace(cell, parts=lacking)


def main() -> None:
    """Measure what is not kept yet, and print what is asked beside what was measured."""
    chosen = arguments()
    judged = Judged(chosen.method, chosen.rule)
    if chosen.large:
        for line in seconds_lines(judged, TIMINGS[-1:]):
            print(f"{line.asked}. measured: {line.measured}")
        return
    begin = time.perf_counter()
    kept = Kept(chosen.out, judged, chosen.keep_others)
    cells = todo(chosen, judged)
    every = [cell for some in cells.values() for cell in missing(some, kept)]
    for (cell, found), seconds in finished_jobs(every, jobs=chosen.jobs):
        kept.add(cell, found)
        print(f"{cell.key}: {seconds:.1f} s", file=sys.stderr, flush=True)
    lines: list[Line] = []
    own: dict[str, float] = {}
    for name, some in cells.items():
        if not some:
            continue
        table = Table(kept, some)
        if not chosen.brief:
            print(f"\n{name}\n\n" + "\n".join(set_table(table, judged.label)))
        lines += LINES[name](table)
        for task in table.sets:
            own[task] = table.against_own(task)
    if not chosen.section or "seconds" in chosen.section:
        lines += seconds_lines(judged, TIMINGS)
    if own:
        lines.append(own_line(own))
    print("\n| asked | measured | |\n|---|---|---|")
    for line in lines:
        holds = {True: "met", False: "NOT MET", None: "not asked"}[line.met]
        print(f"| {line.asked} | {line.measured} | {holds} |")
    left_out = [
        name
        for s in sections(chosen.data, chosen.published).values()
        for name in s.left_out
    ]
    if left_out:
        print(f"\nNot there, so left out: {', '.join(left_out)} (--data, --published).")
    took = time.perf_counter() - begin
    print(
        f"\n{judged.label}, {chosen.seeds} seeds from {chosen.first}. This call: {took:.0f} s."
    )


def own_line(own: Mapping[str, float]) -> Line:
    """Never more than 5 % worse than own rows, over all sets."""
    worst = sorted(own, key=own.__getitem__, reverse=True)[:3]
    named = ", ".join(f"{name} {own[name]:+.1%}" for name in worst)
    over = sum(value > WORSE_THAN_OWN for value in own.values())
    return Line(
        "never more than 5 % worse than own rows",
        f"{over} of {len(own)} sets over 5 %; worst: {named}",
        over == 0,
    )


if __name__ == "__main__":
    main()
