"""Our methods by other people's protocols, beside their numbers: `persfl run published`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor
from threadpoolctl import threadpool_limits

from persfl.checks import one_of, some
from persfl.errors import InputError
from persfl.files import write_whole
from persfl.lab.kept_cells import code
from persfl.lab.line_up import Variants, line_up
from persfl.lab.published_sets import READERS, Splits, station_places
from persfl.lab.row_splits import RowSplit
from persfl.lab.setting_choice import (
    Answer,
    Candidate,
    EqualTerms,
    candidates,
    choose,
    linear_learner,
    misses,
)
from persfl.lab.spec_files import Values, read_spec
from persfl.learners.estimator import Estimator
from persfl.methods import FedRelax, GTVMin
from persfl.methods.graphs import nearest
from persfl.types import Array, Learner

QUICK = ("own", "pooled", "dummies")  # of --quick, which shows that it works
OWN_MEAN = "own mean"
POINTS = 10  # public ones of the authors' trees, between these temperatures
COLDEST, WARMEST = -33, 12


@dataclass(frozen=True)
class Published:
    """A set, its protocol, and what others print."""

    name: str
    title: str
    metric: str
    better: str
    over: str
    methods: tuple[str, ...]
    flaws: tuple[str, ...]
    numbers: tuple[tuple[str, float, str], ...]

    @property
    def sign(self) -> int:
        """1 where less is better."""
        return 1 if self.better == "lower" else -1


@dataclass(frozen=True)
class Scored:
    """What a method of ours came to, split by split."""

    set: str
    method: str
    split: str
    value: float
    variant: str
    tried: int
    seconds: float


def load_published(name: str | Path) -> tuple[str, str, list[Published]]:
    """A title, what it is about, and the sets of a spec."""
    path, content = read_spec(name)
    try:
        found = [_published(entry) for entry in content["published"]]
        return str(content["title"]), str(content["about"]), found
    except InputError:
        raise
    # somebody else may have written it
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path.stem}: a comparison with published numbers needs a title, about, and sets as"
            f" the spec 'published' has them. Got {type(error).__name__}: {error}."
        ) from error


def _published(entry: Values) -> Published:
    """A set, with the numbers that others have of it."""
    one_of("name of a published set", entry.get("name"), list(READERS))
    one_of("over", entry.get("over"), ("devices", "rows"))
    one_of("better", entry.get("better"), ("higher", "lower"))
    for method in entry["methods"]:
        one_of("method", method, list(line_up()))
    numbers = tuple((str(a), float(b), str(c)) for a, b, c in entry["numbers"])
    words = {k: tuple(entry[k]) for k in ("methods", "flaws")}
    return Published(**entry | words | {"numbers": numbers})


def there(
    sets: Sequence[Published], folder: str | Path | None, only: Sequence[str]
) -> tuple[list[Published], list[str]]:
    """The sets whose files are in a folder, and the names of the others."""
    for name in only:
        one_of("only", name, [one.name for one in sets])
    wanted = [one for one in sets if not only or one.name in only]
    at = Path(folder or ".")
    if folder is not None and not at.is_dir():
        raise InputError(f"--data {str(folder)!r} is no folder.")
    known = [
        one
        for one in wanted
        if folder is not None and (at / READERS[one.name].file).is_file()
    ]
    missing = [one.name for one in wanted if one not in known]
    if not known:
        files = some([READERS[one.name].file for one in wanted], 20)
        raise InputError(
            f"none of the published sets is there: {files}. Name their folder with --data."
        )
    return known, missing


def protocol_score(
    answer: Answer, dealt: RowSplit, learner: Learner, one: Published
) -> float:
    """The protocol's number: a mean over devices of their means, or over all rows."""
    judge = dealt.judge
    return protocol_mean(misses(answer, dealt, learner), judge.owner, one)


def protocol_mean(missed: Array, owner: Any, one: Published) -> float:
    """Of misses of all rows; accuracy where more is better."""
    value = float(missed.mean())
    if one.over == "devices":
        total = np.bincount(owner, weights=missed)
        count = np.bincount(owner)
        value = float((total[count > 0] / count[count > 0]).mean())
    return value if one.sign > 0 else 1.0 - value


def run_set(one: Published, folder: Path, *, seed: int, quick: bool) -> list[Scored]:
    """Every method on every split of a set."""
    file = folder / READERS[one.name].file
    splits: Splits = READERS[one.name].read(file)
    if quick:
        splits = dict(list(splits.items())[:1])
    names = [name for name in one.methods if not quick or name in QUICK]
    found = []
    with threadpool_limits(1):
        for split, dealt in splits.items():
            learner = linear_learner(dealt.classes)
            for name in names:
                variants = _variants(one, name, file)
                found.append(
                    _scored(one, split, dealt, name, variants, learner, seed=seed)
                )
            found += _more(one, split, dealt, file, quick=quick)
    return found


def _variants(one: Published, name: str, file: Path) -> Variants:
    """As in comparisons; stations are joined by where they are."""
    usual = line_up()[name]
    if one.name != "fmi" or name != "gtvmin":
        return usual
    pairs = nearest(station_places(file), 4).pairs
    told = tuple((int(i), int(j)) for i, j in pairs)
    return {
        word: replace(method, graph=told)
        for word, method in usual.items()
        if isinstance(method, GTVMin)
    }


def _scored(
    one: Published,
    split: str,
    dealt: RowSplit,
    name: str,
    variants: Variants,
    learner: Learner,
    *,
    seed: int,
) -> Scored:
    begin = time.process_time()
    terms = EqualTerms(seed=seed)
    chosen = choose(candidates(variants, classes=dealt.classes), dealt, learner, terms)
    answer = terms.answer(chosen.candidate, dealt, learner)
    value = protocol_score(answer, dealt, learner, one)
    seconds = round(time.process_time() - begin, 2)
    words = (chosen.candidate.variant, chosen.tried, seconds)
    return Scored(one.name, name, split, value, *words)


def _more(
    one: Published, split: str, dealt: RowSplit, file: Path, *, quick: bool
) -> list[Scored]:
    """The mean of own labels, and for stations trees as their authors take them."""
    if one.name != "fmi":
        return []
    learn = dealt.learn
    own = np.bincount(learn.owner, weights=learn.y) / learn.counts
    missed = (own[dealt.judge.owner] - dealt.judge.y) ** 2
    plain = protocol_mean(missed, dealt.judge.owner, one)
    found = [Scored(one.name, OWN_MEAN, split, plain, "", 1, 0.0)]
    if quick:
        return found
    begin = time.process_time()
    value = relaxed_trees(one, dealt, file)
    seconds = round(time.process_time() - begin, 2)
    words = ("raw, stations' graph, trees of depth 5", 1, seconds)
    return [*found, Scored(one.name, "fedrelax", split, value, *words)]


def relaxed_trees(one: Published, dealt: RowSplit, file: Path) -> float:
    """FedRelax with the authors' graph, trees and public points."""
    pairs = nearest(station_places(file), 4).pairs
    graph = tuple((int(i), int(j)) for i, j in pairs)
    shape = (POINTS, dealt.learn.features)
    public = np.random.RandomState(42).uniform(COLDEST, WARMEST, shape)
    learner = Estimator(DecisionTreeRegressor(max_depth=5, random_state=42))
    # a public point of theirs weighs as much as an own row
    alpha = POINTS / float(np.median(dealt.learn.counts))
    method = FedRelax(alpha, graph=graph)
    terms = EqualTerms(public=public)
    answer = terms.answer(Candidate("raw", "raw", method), dealt, learner)
    return protocol_score(answer, dealt, learner, one)


def run_published(
    sets: Sequence[Published], folder: Path, path: Path, *, seed: int, quick: bool
) -> list[Scored]:
    """All sets; what an earlier command has done is kept in the file at `path`."""
    about = {"code": code(), "seed": seed, "quick": quick}
    kept = _kept(path, about)
    for one in sets:
        if one.name not in kept:
            found = run_set(one, folder, seed=seed, quick=quick)
            kept[one.name] = [asdict(each) for each in found]
            text = json.dumps(about | {"sets": kept}) + "\n"
            write_whole(path, text.encode())
    return [Scored(**each) for one in sets for each in kept[one.name]]


def _kept(path: Path, about: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Results of the same code and settings; others are made anew."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        what = f"{str(path)!r} could not be read as kept results"
        raise InputError(f"{what}: {error}. Choose another --out.") from error
    if not isinstance(content, dict) or any(content.get(k) != about[k] for k in about):
        return {}
    return dict(content.get("sets", {}))
