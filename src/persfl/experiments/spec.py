"""A spec: settings that hold for all series of a figure, and what each series changes. Read from TOML; unknown keys are errors."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from persfl.checks import one_of, some
from persfl.errors import InputError

HEAD = ("title", "ylabel", "about", "tuned")
SPECS = Path(__file__).parents[1] / "specs"
METHODS = ("algorithm1", "algorithm2", "oracle", "ifca", "local", "pooled", "fedavg", "finetuned", "ditto")
SHARING = ("ifca", "pooled", "fedavg", "finetuned", "ditto")  # methods with models that all devices of a run share
TREES = ("tree", "forest")
NETWORKS = ("mlp", "cnn")
LEARNERS = ("linear", *TREES, *NETWORKS)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a single curve depends on, the random seed apart."""

    method: str = "algorithm1"
    n: int = 100
    clusters: int = 2
    rows: int = 10
    features: int = 20
    noise: float = 0.0
    deviation: float = 0.0
    rounds: int = 1500
    peers: int = 20
    step_size: float = 0.05
    top: int = 1  # of the best answers that are averaged; 1 is the paper's rule
    online: bool = False  # peers have fresh rows each round
    online_target: bool = False  # and so has the target, which then scores by other rows each round
    drift_at: int = 0  # the target changes its cluster in this round; 0: never
    told: int = 2  # the number of clusters IFCA is told
    share: float = 0.2  # of the devices that take part in a round of IFCA, FedAvg or Ditto
    alone: int = 0  # last rounds in which devices go on alone from the model of FedAvg
    pull: float = 0.0  # of Ditto's models toward that of FedAvg
    learner: str = "linear"
    depth: int = 3
    trees: int = 5
    public: int = 100
    private_weight: float = 1.0
    public_weight: float = 1.0
    validation: int = 100  # fresh rows on which trees are judged
    held: int = 40  # rows per device on which networks are judged
    device: str = "cpu"  # where networks are computed

    @property
    def vector(self) -> bool:
        """Whether models are compared with the true weights, so that many runs go through one fleet at once."""
        return self.learner == "linear"

    @property
    def tree(self) -> bool:
        """Whether models are trees, which are judged by fresh rows."""
        return self.learner in TREES

    @property
    def network(self) -> bool:
        """Whether models are networks, which are judged by held-out digits."""
        return self.learner in NETWORKS


@dataclass(frozen=True)
class Series:
    """One line of a figure."""

    name: str
    settings: Settings
    reference: str | None = None
    panel: str | None = None
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # what `persfl tune` chooses among


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
        return self._toml(lambda settings: asdict(settings))

    @property
    def brief(self) -> str:
        """The same without what is left to defaults."""
        usual = asdict(Settings())
        return self._toml(lambda settings: {key: value for key, value in asdict(settings).items() if value != usual[key]})

    def _toml(self, shown: Callable[[Settings], dict[str, Any]]) -> str:
        return _as_toml({key: getattr(self, key) for key in HEAD}, self.series, shown)

    def quick(self) -> Spec:
        """The same with a tenth of the rounds (a twenty-fifth for trees and networks, and few devices with networks): shows that
        everything runs, proves nothing.
        """
        return self._with(_quick)

    def rounds(self, rounds: int) -> Spec:
        """The same with another number of rounds."""
        return self._with(lambda s: replace(s, rounds=rounds, alone=min(s.alone, rounds)))

    def _with(self, change: Any) -> Spec:
        return replace(self, series=tuple(replace(s, settings=change(s.settings)) for s in self.series))


def spec_names(folder: str = "") -> list[str]:
    """The names of the figures that come with persfl, the paper's first; those in a folder are no part of `all`.

    >>> spec_names()[:3]
    ['fig2a', 'fig2b', 'fig2c']
    """
    found = [path for path in (SPECS / folder).glob("*.toml") if "[[set]]" not in path.read_text(encoding="utf-8")]
    names = [path.relative_to(SPECS).with_suffix("").as_posix() for path in found]
    return sorted(names, key=lambda name: (not name.startswith("fig") or "-" in name, name))


def load_spec(name: str | Path, changes: Mapping[str, Any] | None = None) -> Spec:
    """A spec by name or path; `changes` are set for all series, on top of what the file says.

    >>> load_spec("fig2a", {"rows": 25}).series[0].settings.rows
    25
    """
    path, content = read_spec(name)
    return _spec(path.stem, content, dict(changes or {}))


def read_spec(name: str | Path) -> tuple[Path, dict[str, Any]]:
    """Where a spec is, by name or path, and what it says; one with [[set]] instead of [[series]] is a comparison of methods."""
    path = Path(name)
    if not path.suffix:
        path = SPECS / f"{name}.toml"
    if not path.is_file():
        known = ", ".join([*spec_names(), "compare"])
        raise InputError(f"there is no experiment {str(name)!r}. Known: {known}; or give the path of a .toml file.")
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path.name!r} is not valid TOML: {error}.") from error


def _spec(name: str, content: dict[str, Any], changes: dict[str, Any]) -> Spec:
    series = content.pop("series", None)
    if not isinstance(series, list) or not series or not all(isinstance(entry, dict) for entry in series):
        raise InputError(f"{name}: a spec needs at least one [[series]].")
    head = {key: str(content.pop(key, "")) for key in HEAD}
    lines = []
    for entry in series:
        entry = dict(entry)
        words = {key: entry.pop(key, None) for key in ("name", "reference", "panel")}
        grid = entry.pop("grid", {})
        if not words["name"]:
            raise InputError(f"{name}: every [[series]] needs a name.")
        if not all(value is None or isinstance(value, str) for value in words.values()):
            raise InputError(f"{name}: name, reference and panel of a series must be text. Got {words}.")
        if words["reference"] is not None and words["reference"] not in references():
            raise InputError(f"{name}: there is no reference {words['reference']!r}. Known: {some(list(references()), 50)}.")
        settings = _settings(name, content | entry | changes)
        # Another setting is another experiment: the authors' curves say nothing about it.
        same = _but_rounds(settings) in _referenced().get(words["reference"] or "", ())
        reference = words["reference"] if same else None
        lines.append(Series(words["name"], settings, reference, words["panel"], _grid(name, settings, grid)))
    if len({line.name for line in lines}) < len(lines):
        raise InputError(f"{name}: series names must differ.")
    return Spec(name, head["title"] or name, head["ylabel"] or "MSE", head["about"], tuple(lines), head["tuned"])


@cache
def _referenced() -> dict[str, list[Settings]]:
    """The settings that each reference is about, their rounds apart: those of the specs that come with persfl."""
    found: dict[str, list[Settings]] = {}
    for name in spec_names():
        content = read_spec(name)[1]
        series = content.pop("series")
        shared = {key: value for key, value in content.items() if key not in HEAD}
        for entry in series:
            own = {key: value for key, value in entry.items() if key not in ("name", "panel", "grid", "reference")}
            if "reference" in entry:
                found.setdefault(entry["reference"], []).append(_but_rounds(_settings(name, shared | own)))
    return found


def _but_rounds(settings: Settings) -> Settings:
    """Settings as they count when curves are compared: a shorter curve is the beginning of a longer one."""
    return replace(settings, rounds=Settings().rounds, device=Settings().device)


def is_the_papers(spec: Spec, *, whole: bool = True) -> bool:
    """Whether a spec's series are those of the figure of its name, rounds apart; all of them, or with `whole` False some.

    >>> is_the_papers(load_spec("fig2a")), is_the_papers(load_spec("fig2a", {"noise": 0.3}))
    (True, False)
    """
    if spec.name not in spec_names():
        return False
    known = {series.name: _but_rounds(series.settings) for series in load_spec(spec.name).series}
    same = all(known.get(series.name) == _but_rounds(series.settings) for series in spec.series)
    return same and (len(spec.series) == len(known) or not whole)


def _quick(settings: Settings) -> Settings:
    if settings.vector:
        return replace(settings, rounds=max(10, settings.rounds // 10), drift_at=settings.drift_at // 10)
    rounds = max(10, settings.rounds // 25)
    if settings.tree:
        return replace(settings, rounds=rounds)
    return replace(settings, rounds=rounds, n=min(settings.n, 24), peers=min(settings.peers, 5), alone=min(settings.alone, 5))


def _grid(name: str, settings: Settings, grid: Any) -> dict[str, list[Any]]:
    """The values to choose among, every one of which must make good settings."""
    if not isinstance(grid, dict) or not all(isinstance(values, list) and values for values in grid.values()):
        raise InputError(f"{name}: grid must give a list of values for each setting, as in grid = {{step_size = [0.1, 1.0]}}.")
    for key, values in grid.items():
        for value in values:
            _settings(name, asdict(settings) | {key: value})
    return grid


def _settings(name: str, values: dict[str, Any]) -> Settings:
    known = {field.name: field for field in fields(Settings)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise InputError(f"{name}: unknown key {some(unknown)}. Known: {', '.join(known)}.")
    checked: dict[str, Any] = {}
    for key, value in values.items():
        want = type(known[key].default)
        if want is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not want:
            raise InputError(f"{name}: {key} must be of type {want.__name__}. Got {value!r}.")
        checked[key] = value
    settings = Settings(**checked)
    one_of("method", settings.method, METHODS)
    one_of("learner", settings.learner, LEARNERS)
    if settings.tree and settings.method != "algorithm2":
        raise InputError(f"{name}: learner={settings.learner!r} goes with method='algorithm2'. Got {settings.method!r}.")
    if settings.network and (settings.method in ("algorithm2", "pooled") or settings.online):
        raise InputError(f"{name}: learner={settings.learner!r} goes with steps on rows that stay. Got {settings.method!r}.")
    if settings.method in SHARING and (settings.online or settings.drift_at):
        raise InputError(f"{name}: method={settings.method!r} needs data that stays: online=false, drift_at=0.")
    if settings.drift_at < 0 or (settings.drift_at and (not settings.vector or settings.clusters < 2)):
        raise InputError(
            f"{name}: drift_at must be a round, with a linear learner and 2 or more clusters. Got {settings.drift_at}."
        )
    for key in (
        "n",
        "clusters",
        "rows",
        "features",
        "rounds",
        "peers",
        "told",
        "depth",
        "trees",
        "public",
        "validation",
        "top",
        "held",
    ):
        if getattr(settings, key) < 1:
            raise InputError(f"{name}: {key} must be at least 1. Got {getattr(settings, key)}.")
    if not 0 <= settings.alone <= settings.rounds or settings.pull < 0:
        raise InputError(f"{name}: alone must be 0 to rounds and pull at least 0. Got {settings.alone} and {settings.pull:g}.")
    return settings


def _as_toml(head: dict[str, str], lines: tuple[Series, ...], shown: Callable[[Settings], dict[str, Any]]) -> str:
    def line_of(key: str, value: Any) -> str:
        return f"{key} = {json.dumps(value, ensure_ascii=False)}"

    out = [line_of(key, value) for key, value in head.items()]
    for line in lines:
        out += ["", "[[series]]", line_of("name", line.name)]
        out += [line_of(key, getattr(line, key)) for key in ("reference", "panel") if getattr(line, key)]
        out += [line_of(key, value) for key, value in shown(line.settings).items()]
        if line.grid:
            out.append(f"grid = {{{', '.join(line_of(key, list(values)) for key, values in line.grid.items())}}}")
    return "\n".join(out) + "\n"


@cache
def references() -> dict[str, Any]:
    """What the authors' notebook gave, by name: rounds, median, 10 % and 90 % quantiles.

    >>> references()["fig2a d=20"]["runs"]
    12
    """
    found: dict[str, Any] = {}
    for path in sorted((SPECS / "reference").glob("*.json")):
        found |= json.loads(path.read_text(encoding="utf-8"))
    return found
