"""Digits in rotation clusters: the source, the baselines on networks, specs with grids, and the
page with the results.
"""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn

from persfl import ArrayFleet, GradientStep, Linear
from persfl.baselines import ditto, fedavg, finetuned, ifca, local
from persfl.cli import main
from persfl.errors import Diverged, InputError
from persfl.lab.digit_curves import digit_curve
from persfl.lab.figure_runs import Result, run_spec
from persfl.lab.figure_settings import Settings, checked_settings
from persfl.lab.figure_specs import load_spec
from persfl.lab.spec_files import spec_names
from persfl.lab.tuning import grid_spec, tuned_spec
from persfl.learners import Network
from persfl.seeds import stream
from persfl.sources import clustered_digits, clustered_regression

ROOT = Path(__file__).parents[2]


def net(seed=0):
    return Network(
        lambda: nn.Sequential(nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 10)),
        dtype="float64",
        seed=seed,
    )


def images(devices):
    """For each device its images, as bytes."""
    return [[row.tobytes() for row in data.X] for data in devices]


@pytest.mark.parametrize("n", [24, 120, 480])
def test_no_image_is_learned_and_held_out(n):
    world = clustered_digits(n, clusters=1, seed=3)
    learned, held = images(world.training), images(world.held)
    assert not {x for hand in learned for x in hand} & {
        x for hand in held for x in hand
    }
    assert all(len(set(hand)) == len(hand) for hand in learned + held)
    times = np.unique([x for hand in learned for x in hand], return_counts=True)[1]
    assert set(times) <= ({1} if n <= 120 else {3, 4})
    assert not any(set(learned[0]) == set(hand) for hand in learned[1:])


def test_clusters_are_turned():
    straight, turned = (
        clustered_digits(8, clusters=k, rows=3, held=5, seed=0) for k in (1, 4)
    )
    assert turned.training.clusters.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    for side in (0, 1):
        for before, after, kind in zip(
            straight[side], turned[side], turned.training.clusters, strict=True
        ):
            expected = np.rot90(before.X.reshape(-1, 8, 8), kind, axes=(1, 2))
            np.testing.assert_allclose(after.X.reshape(-1, 8, 8), expected, atol=1e-12)
            np.testing.assert_array_equal(before.y, after.y)


def test_the_source_follows_its_seed_and_refuses():
    one, same, other = (
        clustered_digits(5, clusters=5, seed=seed) for seed in (0, 0, 1)
    )
    assert (one.training.X == same.training.X).all()
    assert (one.held.X == same.held.X).all()
    assert (one.training.X != other.training.X).any()
    with pytest.raises(
        InputError, match=r"clusters must be at most 3 \(3 devices\). Got 4."
    ):
        clustered_digits(3, clusters=4)
    with pytest.raises(InputError, match="rows must be at most 1300. Got 1301."):
        clustered_digits(3, clusters=1, rows=1301)


@pytest.mark.parametrize("batch", [None, 4])
def test_steps_and_scores_on_tensors_are_the_learners(batch):
    devices = clustered_digits(6, clusters=2, rows=7, seed=0).training
    learner, step, who = (
        net(),
        GradientStep(0.3, steps=2, batch=batch),
        np.array([4, 1, 1, 5]),
    )
    fleet = ArrayFleet(devices, learner=learner, proposer=step, seed=0)
    models = np.stack([learner.fresh(devices[0], stream(0, k)) for k in range(4)])
    place = stream(0, "here").at(np.arange(4))
    expected = [
        step.answer(learner, models[k], devices[int(i)], stream(0, "here", k))
        for k, i in enumerate(who)
    ]
    np.testing.assert_allclose(fleet.stepped(models, who, place), expected, atol=1e-12)
    losses = [[learner.loss(model, devices[int(i)]) for model in models] for i in who]
    np.testing.assert_allclose(fleet.scored(models, who), losses, atol=1e-12)
    assert not np.allclose(models[0], models[1])


def worlds():
    return {
        "linear": (
            clustered_regression(
                n=6, clusters=2, rows=(3, 6), features=3, noise=0.1, seed=1
            ),
            Linear(),
        ),
        "network": (clustered_digits(6, clusters=2, rows=5, seed=1).training, net()),
    }


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_ditto_is_its_equation(kind):
    devices, learner = worlds()[kind]
    fleet = ArrayFleet(
        devices, learner=learner, proposer=GradientStep(0.1), targets=[0, 4]
    )
    rounds = list(ditto(fleet, pull=2.0, rounds=5, share=1.0))
    w = learner.init(devices[0], None)
    own = dict.fromkeys((0, 4), w)
    for _ in range(5):
        own = {
            t: v - 0.1 * (learner.grad(v, devices[t]) + 2.0 * (v - w))
            for t, v in own.items()
        }
        w = sum(
            data.rows * (w - 0.1 * learner.grad(w, data)) for data in devices
        ) / sum(data.rows for data in devices)
    np.testing.assert_allclose(fleet.models, [own[0], own[4]], atol=1e-12)
    assert len(rounds) == 5
    np.testing.assert_allclose(
        rounds[-1].loss, [learner.loss(own[t], devices[t]) for t in (0, 4)], atol=1e-12
    )


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_ditto_and_fine_tuning_end_at_their_neighbours(kind):
    devices, learner = worlds()[kind]

    def after(method, **more):
        fleet = ArrayFleet(
            devices,
            learner=learner,
            proposer=GradientStep(0.1),
            local=GradientStep(0.1),
        )
        list(method(fleet, rounds=6, **more))
        return fleet.models

    alone, average = after(local), after(fedavg, share=1.0)
    np.testing.assert_allclose(after(ditto, pull=0.0), alone, atol=1e-12)
    np.testing.assert_allclose(after(finetuned, alone=6), alone, atol=1e-12)
    np.testing.assert_allclose(
        after(finetuned, alone=0, share=1.0), average, atol=1e-12
    )
    between = after(finetuned, alone=2, share=1.0)
    assert not np.allclose(between, average)
    assert not np.allclose(between, alone)


def test_baselines_refuse_and_stop_with_a_sentence():
    devices, learner = worlds()["linear"]
    fleet = ArrayFleet(devices, learner=learner, proposer=GradientStep(0.1, steps=2))
    with pytest.raises(InputError, match="Ditto takes one gradient step a round"):
        next(ditto(fleet, pull=1.0, rounds=1))
    fleet = ArrayFleet(devices, learner=learner, proposer=GradientStep(0.5))
    with pytest.raises(
        InputError,
        match=r"step_size \* pull must be below 1, or the pull overshoots. Got 0.5 \* 2.",
    ):
        next(ditto(fleet, pull=2.0, rounds=1))
    with pytest.raises(
        InputError, match=r"alone must be at most 3 \(3 rounds\). Got 4."
    ):
        next(finetuned(fleet, alone=4, rounds=3))
    wild = ArrayFleet(devices, learner=learner, proposer=GradientStep(1e200))
    with pytest.raises(Diverged, match="step_size=1e[+]200 is too large"):
        list(finetuned(wild, alone=9, rounds=9))
    assert np.isfinite(wild.models).all()


def test_ifca_finds_clusters_of_networks():
    world = clustered_digits(24, clusters=2, rows=20, seed=0)
    fleet = ArrayFleet(world.training, learner=net(), proposer=GradientStep(0.5))
    *_, last = ifca(fleet, told=2, rounds=60, share=1.0)
    assert len(np.unique(fleet.models, axis=0)) == 2
    assert last.loss.mean() < 1.5


@pytest.mark.parametrize(
    "method", ["algorithm1", "oracle", "local", "fedavg", "finetuned", "ditto", "ifca"]
)
def test_every_method_learns_digits(method):
    settings = Settings(
        learner="mlp",
        method=method,
        n=24,
        clusters=1,
        peers=5,
        rounds=40,
        step_size=0.5,
        share=1.0,
        alone=5,
        pull=0.1,
        told=1,
    )
    error = digit_curve(settings, 0)
    assert error.shape == (41,)
    assert error[-1] < 0.8 * error[0]
    np.testing.assert_array_equal(error, digit_curve(settings, 0))


@pytest.mark.slow  # a blend of networks takes some seconds, however few there are
def test_a_blend_has_one_error_for_all_rounds():
    few = {"n": 3, "clusters": 1, "rounds": 2}
    settings = Settings(learner="mlp", method="blend", **few)
    error = digit_curve(settings, 0)
    assert error.shape == (3,)
    assert error[1] == error[2] < 0.8 * error[0]


def test_a_blend_is_drawn_of_networks_only():
    with pytest.raises(InputError, match="goes with networks here. Got 'linear'"):
        checked_settings("mine", {"method": "blend"})


def test_a_run_that_diverges_is_wrong_about_everything():
    error = digit_curve(
        Settings(
            learner="mlp",
            method="fedavg",
            n=24,
            clusters=1,
            rounds=9,
            step_size=1e30,
            share=1.0,
        ),
        0,
    )
    assert error.shape == (10,)
    assert error[-1] == 1.0


def test_specs_of_networks_are_fair():
    assert spec_names("networks") == ["networks/digits-cnn", "networks/digits-mlp"]
    assert not set(spec_names("networks")) & set(spec_names())
    for name in spec_names("networks"):
        series = load_spec(name).series
        assert len(series) == 36
        assert (
            len(
                {
                    (
                        s.settings.n,
                        s.settings.rounds,
                        s.settings.rows,
                        s.settings.share,
                        s.settings.learner,
                    )
                    for s in series
                }
            )
            == 1
        )
        assert len({tuple(s.grid["step_size"]) for s in series if s.grid}) == 1
        blends = [s for s in series if not s.grid]  # which chooses for itself
        assert {s.settings.method for s in blends} == {"blend"}
        assert all(
            getattr(s.settings, key) in values
            for s in series
            for key, values in s.grid.items()
        )


def test_the_best_of_a_grid_is_chosen(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        "rounds = 5\n[[series]]\nname = 'a'\ngrid = {step_size = [0.1, 0.2, 0.3], top = [1,"
        " 2]}\n[[series]]\nname = 'b'\n"
    )
    spec = load_spec(path)
    grid = grid_spec(spec)
    assert [line.name for line in grid.series][1::3] == [
        "a | step_size=0.1, top=2",
        "a | step_size=0.3, top=1",
    ]
    ends = [3.0, 2.0, 4.0, 1.0, 5.0, 6.0, 7.0]
    result = Result(
        grid,
        {
            line.name: np.full((2, 6), end)
            for line, end in zip(grid.series, ends, strict=True)
        },
        2,
        0,
    )
    tuned, chosen = tuned_spec(spec, result)
    assert (tuned.series[0].settings.step_size, tuned.series[0].settings.top) == (
        0.2,
        2,
    )
    assert tuned.series[1] == spec.series[1]
    assert tuned.tuned == "seed 0, 2 runs, 100 devices, 5 rounds"
    assert (chosen[0].values, chosen[0].error, chosen[0].edge) == (
        {"step_size": 0.2, "top": 2},
        1.0,
        (),
    )
    again = tmp_path / "again.toml"
    for text in (tuned.brief, tuned.text):
        again.write_text(text)
        assert (load_spec(again).series, load_spec(again).tuned) == (
            tuned.series,
            tuned.tuned,
        )
    with pytest.raises(InputError, match="there is nothing to choose"):
        grid_spec(replace(spec, series=spec.series[1:]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "grid = {step_size = 0.1}",
            "grid must give a list of values for each setting",
        ),
        ("grid = {step_size = []}", "grid must give a list of values for each setting"),
        ("grid = {steps = [1]}", "unknown key 'steps'"),
        ("grid = {top = [0]}", "top must be at least 1. Got 0."),
        (
            "learner = 'mlp'\nmethod = 'pooled'",
            "learner='mlp' goes with steps on rows that stay. Got 'pooled'.",
        ),
        (
            "rounds = 5\nalone = 6",
            "alone must be 0 to rounds and pull at least 0. Got 6 and 0.",
        ),
    ],
)
def test_bad_grids_get_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(f"[[series]]\nname = 'a'\n{text}\n")
    with pytest.raises(InputError, match=sentence):
        load_spec(path)


def test_tune_and_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = load_spec("networks/digits-mlp", {"n": 24, "peers": 5})
    few = replace(
        spec,
        series=tuple(
            replace(line, grid={"step_size": [0.1, 1.0]}) for line in spec.series[:4]
        ),
    )
    Path("few.toml").write_text(few.brief)
    assert (
        main(["tune", "few.toml", "--quick", "--runs", "1", "--jobs", "1", "--numbers"])
        == 0
    )
    assert "8 settings, 1 runs each, seed 106." in capsys.readouterr().out
    tuned = load_spec("tuned/few.toml")
    assert [line.name for line in tuned.series] == [line.name for line in few.series]
    # shorter runs were for trying
    assert {line.settings.rounds for line in tuned.series} == {200}
    assert (
        main(
            [
                "run",
                "tuned/few.toml",
                "--quick",
                "--runs",
                "2",
                "--jobs",
                "1",
                "--numbers",
                "--set",
                "compute=cpu",
            ]
        )
        == 0
    )
    assert not list(Path("runs").rglob("*.png"))
    kept = json.loads(Path("runs/few/run.json").read_text())
    result = run_spec(tuned.quick(), runs=2, seed=6, out="runs")
    assert kept["ends"] == {
        name: values[:, -1].tolist() for name, values in result.curves.items()
    }
    assert kept["settings"]["FedAvg, 1 cluster"]["step_size"] in (0.1, 1.0)


def test_the_page_holds_what_the_results_say():
    module = importlib.util.spec_from_file_location(
        "draw_digits", ROOT / "docs" / "draw_digits.py"
    )
    script = importlib.util.module_from_spec(module)
    module.loader.exec_module(script)
    page, kept = (
        script.PAGE.read_text(encoding="utf-8"),
        json.loads(script.KEPT.read_text(encoding="utf-8")),
    )
    assert script.filled(page, script.blocks(kept)) == page
    errors = {
        "a, 1 cluster": [0.1, 0.2, 0.3],
        "b, 1 cluster": [0.11, 0.21, 0.31],
        "c, 1 cluster": [0.0999, 0.2002, 0.3],
    }
    assert script.table(errors).splitlines()[2:] == [
        "| a | **80.0 ± 24.8** |",
        "| b | 79.0 ± 24.8 |",
        "| c | **80.0 ± 24.9** |",
    ]


@pytest.mark.parametrize("compute", [None, "cpu"])
def test_nobody_steps_on_rows_held_out(compute):
    devices = clustered_regression(
        n=6, clusters=6, rows=6, features=4, noise=1.0, seed=0
    )
    made = {
        "learner": Linear(),
        "proposer": GradientStep(0.05),
        "holdout": 0.5,
        "compute": compute,
    }
    alone = ArrayFleet(devices, local=GradientStep(0.05), start="zeros", **made)
    *_, last = local(alone, rounds=21)  # whose losses are those before the step
    for method in (
        lambda fleet: ditto(fleet, pull=0.0, rounds=20),
        lambda fleet: finetuned(fleet, alone=20, rounds=20),
    ):
        *_, found = method(ArrayFleet(devices, **made))
        assert found.loss.max() > 0
        np.testing.assert_allclose(found.loss, last.loss, rtol=1e-9)
