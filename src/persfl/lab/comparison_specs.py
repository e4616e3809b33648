"""A comparison as data: which sets, how many rows of each device, which methods, how many seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from persfl.checks import many, one_of, some, whole
from persfl.errors import InputError
from persfl.lab.comparison_cells import Cell
from persfl.lab.comparison_sets import KNOWN, DataSet
from persfl.lab.line_up import line_up
from persfl.lab.spec_files import Changes, Values, read_spec, typed_values
from persfl.lab.standings import REFERENCE

MOST_SEEDS = 10_000  # each is a line of what is to be done before anything is
QUICK_ROUNDS = 5
QUICK_BUDGET = 40
QUICK_DEVICES = 12
QUICK_COST = 0.5  # of what a cell of as few rounds takes with all devices


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared on what.

    >>> spec = load_comparison("compare")
    >>> len(spec.sets), spec.reference, spec.methods[:2]
    (12, 'blend', ('own', 'pooled'))
    """

    name: str
    title: str = ""
    about: str = ""
    seeds: int = 5
    rounds: int = 100
    budget: int = 640
    questions: int = 100
    reference: str = REFERENCE
    methods: tuple[str, ...] = tuple(line_up())
    sets: tuple[DataSet, ...]

    def quick(self) -> Comparison:
        """A single seed, few devices, rounds and questions: shows that everything runs, proves
        nothing.
        """
        few = [min(data.devices or QUICK_DEVICES, QUICK_DEVICES) for data in self.sets]
        each = zip(self.sets, few, strict=True)
        sets = tuple(
            replace(data, devices=n, cost=QUICK_COST * data.cost) for data, n in each
        )
        less = replace(self, seeds=1, rounds=QUICK_ROUNDS, budget=QUICK_BUDGET)
        less = replace(less, sets=sets)
        return replace(less, questions=QUICK_ROUNDS)

    def estimate(self, jobs: int) -> str:
        """How long it takes from nothing, roughly, before anything is done."""
        seconds = sum(cell.cost for cell in self.cells(0)) / jobs
        long = f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{seconds:.0f} s"
        sets = many(len(self.sets), "set")
        methods = many(len(self.methods), "method")
        seeds = many(self.seeds, "seed")
        cores = many(jobs, "core")
        return f"{sets}, {seeds}, {methods}: about {long} on {cores} from nothing."

    def only(self, names: Sequence[str]) -> Comparison:
        """With some of its sets."""
        known = [data.name for data in self.sets]
        for name in names:
            one_of("only", name, known)
        sets = tuple(data for data in self.sets if not names or data.name in names)
        return replace(self, sets=sets)

    def there(self, folder: str | Path | None) -> tuple[Comparison, list[str]]:
        """With the sets that are at hand, and the names of those that are missing.

        Sets in files are at hand if their files are in this folder.
        """
        if folder is not None and not Path(folder).is_dir():
            what = "Name the one that holds the tables."
            raise InputError(f"--data {str(folder)!r} is no folder. {what}")
        sets = [
            replace(data, folder="" if folder is None else str(folder))
            for data in self.sets
        ]
        missing = [data.name for data in sets if data.missing]
        if len(missing) == len(sets):
            what = f"none of the data sets is there: {some(missing, 20)}"
            raise InputError(f"{what}. Name the folder of their files with --data.")
        return replace(
            self, sets=tuple(data for data in sets if not data.missing)
        ), missing

    def cells(self, first: int) -> list[Cell]:
        """Every set with every seed from `first` on."""
        seeds = range(first, first + whole("seeds", self.seeds, least=1))
        how = (self.methods, self.rounds, self.budget, self.questions)
        return [Cell(data, seed, *how) for data in self.sets for seed in seeds]


def load_comparison(name: str | Path, changes: Changes | None = None) -> Comparison:
    """A comparison by name or path; `changes` are put in the place of what the file says."""
    path, content = read_spec(name)
    spec = path.stem
    entries = content.pop("set", None)
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{spec}: a comparison needs at least one [[set]].")
    given = content | dict(changes or {})
    if isinstance(given.get("methods"), str):
        given["methods"] = [word.strip() for word in given["methods"].split(",")]
    values = _checked(spec, given, Comparison, "name", "sets")
    sets = tuple(_set(spec, entry) for entry in entries)
    if len({data.name for data in sets}) < len(sets):
        raise InputError(f"{spec}: names of sets must differ.")
    found = Comparison(name=spec, sets=sets, **values)
    whole("seeds", found.seeds, least=1, most=MOST_SEEDS)
    whole("rounds", found.rounds, least=1)
    whole("budget", found.budget, least=1)
    whole("questions", found.questions, least=1)
    return replace(found, methods=chosen_methods(found.methods, found.reference))


def chosen_methods(names: Sequence[str], reference: str = REFERENCE) -> tuple[str, ...]:
    """Methods by name, in their usual order, the reference among them.

    A name is that of a comparison, or one that `persfl methods` lists.

    >>> chosen_methods(["pooled", "own"])
    ('own', 'pooled', 'blend')
    >>> chosen_methods(["own", "ifca"])
    ('own', 'ifca (2)', 'ifca (4)', 'blend')
    """
    wanted = {entry for name in [*names, reference] for entry in entries_of(name)}
    return tuple(name for name in line_up() if name in wanted)


def entries_of(name: str) -> list[str]:
    """Who stands in comparisons for a method, by its name there or on the list of methods."""
    everybody = line_up()
    if name in everybody:
        return [name]
    kinds = {
        entry: {one.name for one in variants.values()}
        for entry, variants in everybody.items()
    }
    found = [entry for entry in everybody if name in kinds[entry]]
    if not found:
        one_of("method", name, list(everybody))
    return found


def _set(spec: str, entry: object) -> DataSet:
    if not isinstance(entry, dict) or not entry.get("name") or "few" not in entry:
        need = (
            "every [[set]] needs a name and few, the rows of each device to learn from"
        )
        raise InputError(f"{spec}: {need}.")
    data = DataSet(**_checked(spec, entry, DataSet, "folder"))
    path = Path(data.file)
    if not data.file:
        one_of("name of a set without a file", data.bundled or data.name, KNOWN)
    elif path.suffix not in (".csv", ".npz") or path.name != data.file:
        need = "file must be the name of a .csv or .npz file in the folder of --data"
        raise InputError(f"{spec}: {need}. Got {data.file!r}.")
    whole("few", data.few, least=0)
    whole("ahead", data.ahead, least=0)
    whole("devices", data.devices, least=0)
    return data


def _checked(spec: str, values: Changes, kind: type, *without: str) -> Values:
    """Values for the fields of a dataclass that a file may set."""
    known = sorted({field.name for field in fields(kind)} - set(without))
    return typed_values(spec, values, kind, known)
