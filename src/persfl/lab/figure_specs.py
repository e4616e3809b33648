"""A figure as data: settings that hold for all of its series, and what each series changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from persfl.checks import some
from persfl.errors import InputError
from persfl.lab.figure_settings import (
    USUAL,
    Settings,
    checked_settings,
    comparable,
    quick_settings,
)
from persfl.lab.spec_files import (
    Changes,
    Values,
    read_spec,
    references,
    spec_names,
)

HEAD = ("title", "ylabel", "about", "tuned")
# of a series; everything else but its grid is a setting
WORDS = ("name", "reference", "panel")
Grid = Mapping[str, Sequence[Any]]  # values to choose among, by the name of a setting


@dataclass(frozen=True)
class Series:
    """One line of a figure."""

    name: str
    settings: Settings
    reference: str | None = None
    panel: str | None = None
    grid: Grid = field(default_factory=dict)  # for `persfl tune`


@dataclass(frozen=True)
class Spec:
    """One figure."""

    name: str
    title: str
    ylabel: str
    about: str
    series: tuple[Series, ...]
    tuned: str = ""  # how settings were chosen from the grids, where they were

    @property
    def text(self) -> str:
        """The whole spec as TOML: every setting of every series, nothing left to defaults."""
        return _toml(self, USUAL)

    @property
    def brief(self) -> str:
        """The same without what is left to defaults."""
        return _toml(self, {})

    def quick(self) -> Spec:
        """The same with a tenth of the rounds: shows that everything runs, proves nothing.

        Trees and networks take a twenty-fifth of the rounds, networks few devices too.
        """
        return self._with(quick_settings)

    def rounds(self, rounds: int) -> Spec:
        """The same with another number of rounds."""
        return self._with(
            lambda s: replace(s, rounds=rounds, alone=min(s.alone, rounds))
        )

    def _with(self, change: Callable[[Settings], Settings]) -> Spec:
        changed = (
            replace(line, settings=change(line.settings)) for line in self.series
        )
        return replace(self, series=tuple(changed))


def load_spec(name: str | Path, changes: Changes | None = None) -> Spec:
    """A spec by name or path; `changes` are set for all series, on top of what the file says.

    >>> load_spec("fig2a", {"rows": 25}).series[0].settings.rows
    25
    """
    path, content = read_spec(name)
    spec = path.stem
    entries = content.pop("series", None)
    good = isinstance(entries, list) and all(
        isinstance(entry, dict) for entry in entries
    )
    if not good or not entries:
        raise InputError(f"{spec}: a spec needs at least one [[series]].")
    head = {key: str(content.pop(key, "")) for key in HEAD}
    lines = tuple(
        _series(spec, content, entry, dict(changes or {})) for entry in entries
    )
    if len({line.name for line in lines}) < len(lines):
        raise InputError(f"{spec}: series names must differ.")
    title = head["title"] or spec
    ylabel = head["ylabel"] or "MSE"
    return Spec(spec, title, ylabel, head["about"], lines, head["tuned"])


def _series(
    spec: str,
    shared: Values,
    entry: Values,
    changes: Values,
) -> Series:
    words = {key: entry.get(key) for key in WORDS}
    name = words["name"]
    reference = words["reference"]
    if not name:
        raise InputError(f"{spec}: every [[series]] needs a name.")
    if not all(value is None or isinstance(value, str) for value in words.values()):
        need = "name, reference and panel of a series must be text"
        raise InputError(f"{spec}: {need}. Got {words}.")
    if reference is not None and reference not in references():
        known = some(list(references()), 50)
        raise InputError(
            f"{spec}: there is no reference {reference!r}. Known: {known}."
        )
    settings = checked_settings(spec, shared | _own(entry) | changes)
    # Another setting is another experiment: the authors' curves say nothing about it.
    if comparable(settings) not in _referenced().get(reference or "", ()):
        reference = None
    grid = _grid(spec, settings, entry.get("grid", {}))
    return Series(name, settings, reference, words["panel"], grid)


def _own(entry: Values) -> Values:
    """The settings that a series has for itself."""
    return {key: value for key, value in entry.items() if key not in (*WORDS, "grid")}


@cache
def _referenced() -> dict[str, list[Settings]]:
    """What settings each reference is about: those of the specs that come with persfl."""
    found: dict[str, list[Settings]] = {}
    for name in spec_names():
        content = read_spec(name)[1]
        series = content.pop("series")
        shared = {key: value for key, value in content.items() if key not in HEAD}
        for entry in series:
            if "reference" in entry:
                settings = comparable(checked_settings(name, shared | _own(entry)))
                found.setdefault(entry["reference"], []).append(settings)
    return found


def is_the_papers(spec: Spec, *, whole: bool = True) -> bool:
    """Whether a spec's series are those of the figure of its name, rounds apart.

    All of them, or with `whole` False some.

    >>> (
    ...     is_the_papers(load_spec("fig2a")),
    ...     is_the_papers(load_spec("fig2a", {"noise": 0.3})),
    ... )
    (True, False)
    """
    if spec.name not in spec_names():
        return False
    known = {
        line.name: comparable(line.settings) for line in load_spec(spec.name).series
    }
    same = all(
        known.get(line.name) == comparable(line.settings) for line in spec.series
    )
    return same and (len(spec.series) == len(known) or not whole)


def _grid(spec: str, settings: Settings, grid: object) -> Grid:
    """The values to choose among, every one of which must make good settings."""
    if not isinstance(grid, dict) or not all(
        v and isinstance(v, list) for v in grid.values()
    ):
        need = "grid must give a list of values for each setting"
        raise InputError(f"{spec}: {need}, as in grid = {{step_size = [0.1, 1.0]}}.")
    for key, values in grid.items():
        for value in values:
            checked_settings(spec, asdict(settings) | {key: value})
    return grid


def _toml(spec: Spec, shown: Changes) -> str:
    """A spec as text, with the settings that are `shown` anyway and those that are not usual."""
    head = {
        "title": spec.title,
        "ylabel": spec.ylabel,
        "about": spec.about,
        "tuned": spec.tuned,
    }
    out = [_line(key, value) for key, value in head.items()]
    for line in spec.series:
        words = {"reference": line.reference, "panel": line.panel}
        out += ["", "[[series]]", _line("name", line.name)]
        out += [_line(key, value) for key, value in words.items() if value]
        for key, value in asdict(line.settings).items():
            if key in shown or value != USUAL[key]:
                out.append(_line(key, value))
        if line.grid:
            grid = ", ".join(
                _line(key, list(values)) for key, values in line.grid.items()
            )
            out.append(f"grid = {{{grid}}}")
    return "\n".join(out) + "\n"


def _line(key: str, value: object) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"
