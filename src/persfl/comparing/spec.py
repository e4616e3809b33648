"""A comparison as data: which sets, how many rows of each device, which methods, how many seeds. Read from TOML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from persfl.checks import one_of, some, whole
from persfl.comparing.cells import Cell
from persfl.comparing.methods import METHODS
from persfl.comparing.sets import KNOWN, DataSet
from persfl.comparing.standings import REFERENCE
from persfl.errors import InputError
from persfl.experiments.spec import read_spec

QUICK_ROUNDS, QUICK_BUDGET = 10, 40


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared on what.

    >>> spec = load_comparison("compare")
    >>> len(spec.sets), spec.reference, spec.methods[-1]
    (10, 'blend', 'blend')
    """

    name: str
    title: str = ""
    about: str = ""
    seeds: int = 5
    rounds: int = 100
    budget: int = 640
    reference: str = REFERENCE
    methods: tuple[str, ...] = tuple(METHODS)
    sets: tuple[DataSet, ...]

    def quick(self) -> Comparison:
        """A single seed, few rounds, few questions: shows that everything runs, proves nothing."""
        return replace(self, seeds=1, rounds=QUICK_ROUNDS, budget=QUICK_BUDGET)

    def only(self, names: Sequence[str]) -> Comparison:
        """With some of its sets."""
        for name in names:
            one_of("only", name, [data.name for data in self.sets])
        return replace(self, sets=tuple(data for data in self.sets if not names or data.name in names))

    def there(self, folder: str | Path | None) -> tuple[Comparison, list[str]]:
        """With the sets that are at hand, those in files if they are in this folder; and the names of those that are missing."""
        if folder is not None and not Path(folder).is_dir():
            raise InputError(f"--data {str(folder)!r} is no folder. Name the one that holds the tables.")
        sets = [replace(data, folder="" if folder is None else str(folder)) for data in self.sets]
        missing = [data.name for data in sets if data.missing]
        if len(missing) == len(sets):
            raise InputError(f"none of the data sets is there: {some(missing, 20)}. Name the folder of their files with --data.")
        return replace(self, sets=tuple(data for data in sets if not data.missing)), missing

    def cells(self, first: int) -> list[Cell]:
        """Every set with every seed from `first` on."""
        seeds = range(first, first + whole("seeds", self.seeds, least=1))
        return [Cell(data, seed, self.methods, self.rounds, self.budget) for data in self.sets for seed in seeds]


def load_comparison(name: str | Path, changes: Mapping[str, Any] | None = None) -> Comparison:
    """A comparison by name or path; `changes` are put in the place of what the file says."""
    path, content = read_spec(name)
    sets = content.pop("set", None)
    if not isinstance(sets, list) or not sets:
        raise InputError(f"{path.stem}: a comparison needs at least one [[set]].")
    given = content | dict(changes or {})
    if isinstance(given.get("methods"), str):
        given["methods"] = [word.strip() for word in given["methods"].split(",")]
    known = {field.name for field in fields(Comparison)} - {"name", "sets"}
    found = Comparison(
        name=path.stem, sets=tuple(_set(path.stem, entry) for entry in sets), **_checked(path.stem, given, known, Comparison)
    )
    if len({data.name for data in found.sets}) < len(found.sets):
        raise InputError(f"{path.stem}: names of sets must differ.")
    for key in ("seeds", "rounds", "budget"):
        whole(key, getattr(found, key), least=1)
    return replace(found, methods=chosen_methods(found.methods, found.reference))


def chosen_methods(names: Sequence[str], reference: str = REFERENCE) -> tuple[str, ...]:
    """Methods by name, in their usual order, the reference among them.

    >>> chosen_methods(["pooled", "local"])
    ('local', 'pooled', 'blend')
    """
    for name in [*names, reference]:
        one_of("method", name, list(METHODS))
    return tuple(name for name in METHODS if name in names or name == reference)


def _set(name: str, entry: Any) -> DataSet:
    if not isinstance(entry, dict) or not entry.get("name") or "few" not in entry:
        raise InputError(f"{name}: every [[set]] needs a name and few, the rows of each device to learn from.")
    known = {field.name for field in fields(DataSet)} - {"folder"}
    found = DataSet(**_checked(name, entry, known, DataSet))
    if not found.file:
        one_of("name of a set without a file", found.name, KNOWN)
    elif Path(found.file).suffix not in (".csv", ".npz") or Path(found.file).name != found.file:
        raise InputError(f"{name}: file must be the name of a .csv or .npz file in the folder of --data. Got {found.file!r}.")
    whole("few", found.few, least=0)
    whole("devices", found.devices, least=0)
    return found


def _checked(name: str, values: Mapping[str, Any], known: set[str], kind: Any) -> dict[str, Any]:
    """Values of the right types under known names, lists as tuples."""
    unknown = sorted(set(values) - known)
    if unknown:
        raise InputError(f"{name}: unknown key {some(unknown)}. Known: {', '.join(sorted(known))}.")
    found: dict[str, Any] = {}
    wanted = {field.name: str(field.type) for field in fields(kind)}
    for key, value in values.items():
        value = (
            tuple(value) if isinstance(value, list) else float(value) if wanted[key] == "float" and type(value) is int else value
        )
        is_text = isinstance(value, tuple) and all(isinstance(word, str) for word in value)
        if wanted[key] != type(value).__name__ and not (is_text and wanted[key].startswith("tuple")):
            raise InputError(f"{name}: {key} must be of type {wanted[key]}. Got {value!r}.")
        found[key] = value
    return found
