"""benchmarks/blend.py: its rivals are what they are called, and what is asked can hold and fail."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV

ROOT = Path(__file__).parents[1]

RULE = """
import numpy as np

class Rule:
    def __init__(self, *, ordered=False, boost=True, seed=0):
        self.told = ordered

    def fit(self, X, y, g, blocks=None):
        self.says = 0.0 if self.told or blocks is not None else y.mean()
        return self

    def predict(self, X, g):
        return np.full(len(X), self.says)
"""


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    names = ("rivals", "tasks", "measuring", "blend")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    for name in names:
        sys.modules.pop(name)


@pytest.fixture
def rows():
    draw = np.random.default_rng(3)
    g = np.repeat(np.arange(12), 6)
    X = draw.normal(size=(72, 2))
    W = np.array([1.0, 2.0, -1.0]) + draw.normal(size=(12, 3)) * [1.0, 0.5, 0.2]
    Z = np.c_[np.ones(72), X]
    return SimpleNamespace(
        X=X, Z=Z, g=g, y=(Z * W[g]).sum(axis=1) + 0.5 * draw.normal(size=72)
    )


def restricted(Z, y, g, S, noise):
    """The restricted log likelihood with every matrix written out, and the best predictions."""
    same = g[:, None] == g[None]
    spread = np.where(same, Z @ S @ Z.T, 0.0) + noise * np.eye(len(y))
    inverse = np.linalg.inv(spread)
    told = Z.T @ inverse @ Z
    mu = np.linalg.solve(told, Z.T @ inverse @ y)
    left = y - Z @ mu
    dets = np.linalg.slogdet(spread)[1] + np.linalg.slogdet(told)[1]
    models = [
        mu + S @ Z[g == i].T @ (inverse @ left)[g == i] for i in range(g.max() + 1)
    ]
    return -(dets + left @ inverse @ left) / 2, np.stack(models)


@pytest.mark.parametrize("free", ["level", "diagonal", "full"])
def test_a_mixed_model_is_likeliest(bench, rows, free):
    found = bench.rivals.mixed_models(rows.Z, rows.y, rows.g, free=free, steps=20000)
    here, models = restricted(rows.Z, rows.y, rows.g, found.S, found.noise)
    assert np.allclose(found.w, models, atol=1e-3)
    may = {"level": [(0, 0)], "diagonal": [(0, 0), (1, 1)]}.get(free, [(0, 0), (0, 1)])
    for i, j in may:
        for step in (-0.05, 0.05):
            S = found.S.copy()
            S[i, j] = S[j, i] = S[i, j] + step * np.sqrt(S[i, i] * S[j, j])
            assert restricted(rows.Z, rows.y, rows.g, S, found.noise)[0] < here
    louder = restricted(rows.Z, rows.y, rows.g, found.S, found.noise * 1.1)[0]
    assert louder < here


def test_ridge_leaves_rows_out_one_by_one(bench, rows):
    w, level, error = bench.rivals.ridge(rows.X, rows.y)
    theirs = RidgeCV(bench.rivals.STRENGTHS).fit(rows.X, rows.y)
    assert np.allclose([*w, level], [*theirs.coef_, theirs.intercept_])
    assert error == pytest.approx(-theirs.best_score_, rel=1e-6)


def test_gtvmin_solves_its_equations(bench, rows):
    rivals = bench.rivals
    G, b, _, m = rivals.sums(rows.Z, rows.y, rows.g)
    edges = rivals.graph(G, b)
    assert (edges != edges.T).nnz == 0
    assert edges.diagonal().max() == 0
    assert np.asarray(edges.sum(axis=1)).min() >= 4
    w = rivals.pulled(G, b, m, edges, 0.3, np.zeros_like(b))
    laplacian = np.diag(np.asarray(edges.sum(axis=1)).ravel()) - edges.toarray()
    whole = 0.3 * np.kron(laplacian, np.eye(3))
    for i in range(12):
        whole[3 * i : 3 * i + 3, 3 * i : 3 * i + 3] += G[i] / m[i]
    exact = np.linalg.solve(whole, (b / m[:, None]).ravel()).reshape(12, 3)
    assert np.allclose(w, exact, atol=1e-5)


def test_every_rival_learns_something(bench, rows):
    odd = np.arange(72) % 2 == 1
    labels = {True: (rows.y > 1).astype(float), False: rows.y}
    for name, rival in bench.rivals.RIVALS.items():
        classes = name in bench.tasks.CLASSES
        y = labels[classes]
        said = rival(rows.X[odd], y[odd], rows.g[odd])(rows.X[~odd], rows.g[~odd])
        guess = (y[odd].mean() > 0.5) if classes else y[odd].mean()
        assert ((said - y[~odd]) ** 2).mean() <= ((guess - y[~odd]) ** 2).mean(), name


def test_tasks_are_made_from_the_seed_alone(bench):
    known = bench.tasks.sections(None, None)
    assert known["time"].left_out == ["household"]
    assert known["published"].left_out == [
        "heart",
        "school",
        "fmi",
        "fmi, dates at random",
    ]
    for name, section in known.items():
        for task, make in list(section.tasks.items())[-2:]:
            once, again, other = make(5), make(5), make(6)
            assert np.array_equal(once.learn.y, again.learn.y), (name, task)
            assert not np.array_equal(once.learn.y, other.learn.y), (name, task)
            assert set(once.learn.g) == set(range(once.learn.g.max() + 1)), (name, task)
            assert len(once.errors(once.judge.y)) == once.judge.g.max() + 1
            assert max(once.errors(once.judge.y)) == 0


def test_the_future_comes_after_the_past(bench):
    task = bench.tasks.housing(1, past=24, future=6)
    months = 12 * task.judge.X[:, 0] + task.judge.X[:, 1]
    assert months.min() > task.dates.max()
    assert months.max() - months.min() < 6
    assert task.dates.max() - task.dates.min() < 24


def lines(bench, section, **sets):
    """What is asked of a rule, of kept errors: (rivals, the rule by way) by set."""
    kept = bench.blend.Kept(None, bench.blend.Judged())
    cells = []
    for name, (rivals, rule) in sets.items():
        cell = bench.blend.Cell(
            section, name, 0, bench.blend.Judged(), (None, None), ()
        )
        cells.append(cell)
        found = {
            "rivals": {method: {"errors": errors} for method, errors in rivals.items()},
            "judged": {
                way: {"errors": errors, "seconds": 1.0, "noted": noted}
                for way, (errors, noted) in rule.items()
            },
        }
        kept.add(cell, found)
    table = bench.blend.Table(kept, cells)
    assert len(list(bench.blend.set_table(table, "rule"))) == 2 + len(sets)
    return [line.met for line in bench.blend.LINES[section](table)]


def test_what_is_asked_can_hold_and_fail(bench):
    both = {"own ridge": [2.0], "pooled": [1.0]}
    assert lines(bench, "few", x=(both, {"": ([1.04], False)})) == [True]
    assert lines(bench, "few", x=(both, {"": ([1.06], False)})) == [False]
    loud = {"own ridge": [8.0, 1.0], "pooled": [1.0, 3.0]}
    assert lines(bench, "loud", x=(loud, {"": ([1.9, 1.0], False)})) == [True, True]
    assert lines(bench, "loud", x=(loud, {"": ([2.1, 1.1], False)})) == [False, False]
    curved = {"boosting": [1.0], "diagonal": [2.0]}
    here = {"": ([1.04], False), "linear": ([3.0], False)}
    assert lines(bench, "nonlinear", x=(curved, here)) == [True]
    here["linear"] = ([0.9], False)
    assert lines(bench, "nonlinear", x=(curved, here)) == [False]
    one = {"own ridge": [1.0], "own mean": [1.5]}
    good = {"told": ([1.0], False), "": ([1.1], True)}
    assert lines(bench, "time", x=(one, good)) == [True, True]
    unsaid = {"told": ([1.0], False), "": ([1.1], False)}
    assert lines(bench, "time", x=(one, unsaid)) == [True, False]
    late = {"told": ([1.2], False), "": ([1.2], True)}
    assert lines(bench, "time", x=(one, good), y=(one, late)) == [False, False]
    assert lines(bench, "sets", x=(one, {"": ([0.9], False)})) == [True]
    assert lines(bench, "sets", x=(one, {"": ([0.99], False)})) == [False]
    known = {"heart": (one | {"own logistic": [0.2]}, {"": ([0.21], False)})}
    known["fmi, dates at random"] = (one, {"": ([2.0], False)})
    assert lines(bench, "published", **known) == [True, None]
    known["heart"] = (one | {"own logistic": [0.2]}, {"": ([0.22], False)})
    assert lines(bench, "published", **known) == [False, None]
    assert bench.blend.own_line({"x": 0.04, "y": -0.5}).met
    assert not bench.blend.own_line({"x": 0.06, "y": -0.5}).met


def test_other_peoples_protocols(bench, tmp_path):
    draw = np.random.default_rng(0)
    table = ["school," + ",".join(f"x{k}" for k in range(28)) + ",score,split0"]
    for row in range(40):
        values = ",".join(f"{x:.2f}" for x in draw.normal(size=28))
        table.append(f"{row % 4},{values},{row + 1},{'train' if row < 32 else 'test'}")
    (tmp_path / "school.csv").write_text("\n".join(table))
    entry = {"published": [{"metric": "m", "value": 0.5}], "better": "lower"}
    content = {"sets": {"school": entry}}
    (tmp_path / "published.json").write_text(json.dumps(content))
    section = bench.tasks.sections(None, tmp_path)["published"]
    assert list(section.tasks) == ["school"]
    task = section.tasks["school"](1000)
    assert len(task.learn.y) == 32
    assert task.known == 0.5
    assert task.errors(task.judge.y + 0.1) == pytest.approx([0.01])


def test_the_public_api_is_measured(bench):
    task = bench.tasks.few(0, kind="alike", n=4, rows=5)
    judged = bench.blend.Judged()
    found = bench.measuring.errors_of(task, lambda: judged.fit(task, 0))
    assert len(found["errors"]) == 4
    assert np.mean(found["errors"]) < 1


def test_a_rule_in_a_file_is_measured_and_kept(bench, tmp_path, monkeypatch, capsys):
    rule, out = tmp_path / "rule.py", tmp_path / "kept.json"

    def run(text, *more):
        rule.write_text(text)
        bench.measuring.loaded.cache_clear()
        argv = ["blend.py", "--section", "time", "--only", "drift", "--seeds", "1"]
        argv += ["--out", str(out), "--rule", f"{rule}:Rule", *more]
        monkeypatch.setattr(sys, "argv", argv)
        bench.blend.main()
        return capsys.readouterr()

    first = run(RULE)
    assert "time/drift/1000" in first.err
    assert "forward in time, told" in first.out
    ways = json.loads(out.read_text())["judged rule.py:Rule"]["cells"][
        "time/drift/1000"
    ]
    assert ways[""]["errors"] != ways["told"]["errors"]  # it was told
    again = run(RULE)
    assert again.err == ""
    assert again.out.rsplit("This call")[0] == first.out.rsplit("This call")[0]
    other = run(RULE.replace("y.mean()", "y.max()"), "--brief")
    assert "time/drift/1000" in other.err  # another rule, measured anew
