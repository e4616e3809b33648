"""Models of shards are those of one process, however many shards and whichever engine."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from shard_tables import COLUMNS, fleet, models_of, sharded, survives_a_kill

from persfl import PersonalizedRegressor
from persfl.errors import InputError
from persfl.methods import Blend, Mixed
from persfl.methods.mixed import PANEL
from persfl.scale.executor import InThisProcess
from persfl.scale.sharded_fit import ShardedFit, fit_shards

pytest.importorskip("pyarrow")


def in_one_process(table: pd.DataFrame, method: Blend, holdout: float = 0.0):
    model = PersonalizedRegressor(method=method, holdout=holdout, trials=1)
    if not holdout:
        model.set_params(trials="auto")
    return model.fit(table[list("abc")], table["kwh"], devices=table["meter"])


@pytest.mark.parametrize("shards", [1, 2, 7])
@pytest.mark.parametrize("panel", [4000, 25])
def test_models_are_those_of_one_process(tmp_path, shards, panel):
    table = fleet()
    method = Blend(panel=panel, trees=False)
    index = sharded(table, tmp_path, shards)
    asked = ShardedFit(COLUMNS, method, holdout=0.0)
    run = fit_shards(index, tmp_path / "run", asked, InThisProcess())
    found = models_of(run)
    one = in_one_process(table, method)
    wanted = one.coefficients()
    assert found.index.tolist() == wanted.index.tolist()
    W = found[["coef_a", "coef_b", "coef_c", "intercept"]].to_numpy()
    np.testing.assert_allclose(W, wanted.to_numpy(), rtol=1e-9, atol=1e-9)
    made = one.made_of()[["own", "fleet", "neighbours"]].to_numpy()
    shares = found[["own", "fleet", "neighbours"]].to_numpy()
    np.testing.assert_allclose(shares, made, atol=1e-9)


@pytest.mark.parametrize("shards", [1, 2, 7])
@pytest.mark.parametrize("effects", ["diagonal", "full", "intercept"])
@pytest.mark.parametrize("panel", [PANEL, 25])
def test_a_mixed_model_is_that_of_one_process(
    tmp_path, monkeypatch, shards, effects, panel
):
    monkeypatch.setattr("persfl.scale.sharded_fit.PANEL", panel)
    table = fleet()
    index = sharded(table, tmp_path, shards)
    asked = ShardedFit(COLUMNS, Mixed(effects=effects), holdout=0.25)
    run = fit_shards(index, tmp_path / "run", asked, InThisProcess())
    found = models_of(run)[["coef_a", "coef_b", "coef_c", "intercept"]]
    one = PersonalizedRegressor(method=Mixed(effects=effects), holdout=0)
    one.fit(table[list("abc")], table["kwh"], devices=table["meter"])
    wanted = one.coefficients().to_numpy()
    np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-9, atol=1e-9)
    assert models_of(run)["error"].notna().all()


def test_helpers_are_those_of_one_process(tmp_path):
    table = fleet()
    method = Blend(panel=25, trees=False)
    index = sharded(table, tmp_path, 3)
    asked = ShardedFit(COLUMNS, method, holdout=0.0)
    run = fit_shards(index, tmp_path / "run", asked, InThisProcess())
    parts = sorted((run.folder / "helpers").iterdir())
    found = pd.concat([pd.read_parquet(part) for part in parts])
    one = in_one_process(table, method).helpers_
    wanted = one.set_index(["device", "peer"])["alike"]
    both = found.set_index(["meter", "peer"])["alike"]
    assert (found["meter"] != found["peer"]).all()
    np.testing.assert_allclose(both, wanted.loc[both.index], atol=1e-8)


def test_errors_and_the_verdict_are_those_of_one_process(tmp_path):
    table = fleet()
    index = sharded(table, tmp_path, 3)
    method = Blend(trees=False)
    run = fit_shards(
        index, tmp_path / "run", ShardedFit(COLUMNS, method), InThisProcess()
    )
    worth = in_one_process(table, method, 0.25).worth_
    wanted = worth.table.set_index("device")
    found = models_of(run)
    np.testing.assert_allclose(found["error"], wanted["error_personal"], rtol=1e-9)
    np.testing.assert_array_equal(found["held"], wanted["held"])
    assert run.facts["worth"]["verdict"]["gain"] == pytest.approx(worth.fleet().gain)


def test_trees_are_part_of_errors(tmp_path):
    table = fleet(bent=True)
    index = sharded(table, tmp_path, 2)
    asked = ShardedFit(COLUMNS, Blend(panel=45))
    run = fit_shards(index, tmp_path / "run", asked, InThisProcess())
    linear = ShardedFit(COLUMNS, Blend(panel=45, trees=False))
    other = fit_shards(index, tmp_path / "other", linear, InThisProcess())
    assert any("trees" in name for name, _ in run.facts["offers"])
    bent, straight = (models_of(each)["error"].mean() for each in (run, other))
    assert bent < 0.9 * straight


@pytest.mark.slow  # real processes, which test_executors.py has too
def test_a_killed_worker_changes_nothing(tmp_path):
    """Its process is killed while it makes models; another takes its place."""
    index = sharded(fleet(), tmp_path, 4)
    asked = ShardedFit(COLUMNS, Blend(panel=25, trees=False))
    survives_a_kill(index, asked, tmp_path, stage="making models", after=1)


@pytest.mark.parametrize("stage", ["looking at rows", "making models"])
def test_a_run_that_was_cut_goes_on_to_the_same_result(tmp_path, stage):
    index = sharded(fleet(), tmp_path, 4)
    asked = ShardedFit(COLUMNS, Blend(panel=25, trees=False))
    whole = fit_shards(index, tmp_path / "whole", asked, InThisProcess())

    def cut(what: str, done: int, many: int) -> None:
        if what == stage and done == 2:
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit_shards(index, out, asked, InThisProcess(), say=cut)
    with pytest.raises(InputError, match="holds a run already"):
        fit_shards(index, out, asked, InThisProcess())
    other = ShardedFit(COLUMNS, Blend(panel=25, trees=False), seed=3)
    with pytest.raises(InputError, match="seed was 0 and is 3 now"):
        fit_shards(index, out, other, InThisProcess(), resume=True)
    seen = []
    run = fit_shards(
        index,
        out,
        asked,
        InThisProcess(),
        resume=True,
        say=lambda *told: seen.append(told),
    )
    if stage == "making models":
        assert seen[0] == ("making models", 2, 4)
    pd.testing.assert_frame_equal(models_of(run), models_of(whole))
    (out / "made.jsonl").write_text("killed before this was removed")
    fit_shards(index, out, asked, InThisProcess(), resume=True)
    left = {path.name for path in out.iterdir()}
    assert left == {"sharded.json", "fleet.npz", "models", "helpers"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda t: t.assign(a=t["a"].where(t.index != 9)),
            "'a' has missing or infinite",
        ),
        (lambda t: t.assign(b=1e101), "column 'b' holds numbers too large"),
        (
            lambda t: t.assign(kwh=t["kwh"].where(t.index != 9, -1e200)),
            "column 'kwh' holds numbers too large",
        ),
        (lambda t: t.assign(a="x"), "column 'a' holds .*, no numbers"),
        (lambda t: t.assign(meter="one"), "at least 2 devices"),
        (lambda t: t.drop(columns="b"), "there is no column 'b'"),
    ],
)
def test_bad_tables_are_refused_in_a_sentence(tmp_path, change, says):
    index = sharded(change(fleet()), tmp_path, 2)
    asked = ShardedFit(COLUMNS, Blend(trees=False))
    with pytest.raises(InputError, match=says):
        fit_shards(index, tmp_path / "run", asked, InThisProcess())


def test_a_shard_that_was_changed_is_refused(tmp_path):
    index = sharded(fleet(), tmp_path, 2)
    path = index.folder / index.shards[0].file
    rows = pd.read_parquet(path)
    asked = ShardedFit(COLUMNS, Blend(trees=False))
    for k, wrong in enumerate((rows[:-8], rows[::-1], rows.drop(columns="c"))):
        wrong.to_parquet(path, index=False)
        with pytest.raises(InputError, match="not what the index .* says"):
            fit_shards(index, tmp_path / f"run{k}", asked, InThisProcess())
    path.unlink()
    with pytest.raises(InputError, match="there is no shard"):
        fit_shards(index, tmp_path / "gone", asked, InThisProcess())
