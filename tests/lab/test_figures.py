"""Specs, the runner, the files it leaves, and what the paper says in words."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from persfl.cli import main
from persfl.errors import InputError
from persfl.lab.agreement import verdicts
from persfl.lab.claims import claims
from persfl.lab.figure_runs import Result, pieces, run_spec
from persfl.lab.figure_specs import load_spec
from persfl.lab.spec_files import SPECS, references, spec_names

PAPER = ["fig2a", "fig2b", "fig2c", "fig3", "fig4", "fig5", "fig6", "fig7"]


def test_the_papers_figures_come_first():
    assert spec_names()[:8] == PAPER
    assert {
        "trees-weight",
        "trees-depth",
        "ifca-told",
        "other-models",
        "linear-refit",
        "trees-online",
        "drift",
    } <= set(spec_names())
    assert {"deviation", "clusters", "baselines"} <= set(spec_names())


def test_every_reference_is_used_and_exists():
    used = {
        series.reference
        for name in spec_names()
        for series in load_spec(name).series
        if series.reference
    }
    assert used == set(references())


@pytest.mark.slow
def test_medians_agree_with_the_reference_and_with_the_papers_words(tmp_path):
    """One test, because the runs take long: 12 where many go through one fleet, 5 half as long
    for IFCA, a third as long online, where fewer rounds are enough.
    """

    def made(*specs, runs=12):
        return {
            spec.name: run_spec(spec, runs=runs, seed=6, out=tmp_path) for spec in specs
        }

    results = made(*map(load_spec, ("fig2a", "fig2b", "fig2c", "fig5")))
    results |= made(*(load_spec(name).rounds(750) for name in ("fig3", "fig4")), runs=5)
    online = load_spec("fig6", {"rounds": 500})
    results |= made(type(online)(**{**vars(online), "series": online.series[:4]}))
    for name, result in results.items():
        for verdict in verdicts(result):
            assert verdict.agrees, f"{name} {verdict.series}: {verdict}"
            assert verdict.compared >= 3 or name == "fig6"
    found = claims(results)
    assert [claim.figure for claim in found].count("fig6") == 1
    assert len(found) == 7
    for claim in found:
        assert claim.holds, f"{claim.figure}: {claim.sentence}: {claim.numbers}"


@pytest.mark.slow
def test_trees_lie_between_oracle_and_local(tmp_path):
    spec = load_spec("fig7", {"rounds": 40})
    few = type(spec)(**{**vars(spec), "series": spec.series[:3]})
    result = run_spec(few, runs=12, seed=6, out=tmp_path, jobs=1)
    assert all(verdict.agrees for verdict in verdicts(result))
    (claim,) = claims({"fig7": result})
    assert claim.holds, claim.numbers


def test_verdicts_and_claims_can_fail():
    spec = load_spec("fig2a")
    stuck = Result(
        spec, {series.name: np.full((12, 1501), 5.0) for series in spec.series}, 12, 0
    )
    assert not any(verdict.agrees for verdict in verdicts(stuck))
    assert "differs" in str(verdicts(stuck)[2])
    assert not any(claim.holds for claim in claims({"fig2a": stuck}))


def test_a_run_does_not_depend_on_how_many_there_are(tmp_path):
    spec = load_spec("fig5", {"rounds": 30})
    two, four = (run_spec(spec, runs=runs, out=tmp_path / str(runs)) for runs in (2, 4))
    for name in two.curves:
        assert np.allclose(
            two.curves[name][:, 1:], four.curves[name][:2, 1:], rtol=1e-12
        )
    assert not np.allclose(four.curves["oracle"][0, 1:], four.curves["oracle"][1, 1:])


def test_runs_side_by_side_equal_a_run_alone(tmp_path):
    """Many runs go through one fleet; the first of them must be what the plain five lines give."""
    from persfl import Best, GradientStep, Linear, LoopFleet, Uniform, personalize
    from persfl.lab.curves import run_seed
    from persfl.sources import clustered_regression

    result = run_spec(load_spec("fig2b", {"rounds": 40}), runs=3, out=tmp_path)
    seed = run_seed(0, 0)
    devices = clustered_regression(noise=0.5, seed=seed)
    fleet = LoopFleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0], seed=seed
    )
    run = personalize(fleet, sampler=Uniform(20), adopter=Best(), rounds=40, seed=seed)
    alone = [((fleet.models[0] - devices.true_weights[0]) ** 2).sum() for _ in run]
    assert np.allclose(result.curves["sigma=0.5"][0, 1:], alone, rtol=1e-9)


def test_what_is_done_is_not_done_again(tmp_path):
    spec = load_spec("fig5", {"rounds": 20})
    first = run_spec(spec, runs=2, out=tmp_path)
    seen = []
    again = run_spec(spec, runs=2, out=tmp_path, done=seen.append)
    assert seen == []
    assert all(
        np.array_equal(first.curves[n], again.curves[n], equal_nan=True)
        for n in first.curves
    )
    run_spec(spec, runs=2, seed=1, out=tmp_path, done=seen.append)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rows = 5", "a spec needs at least one"),
        ("series = [{name = 'a'}, 3]", "a spec needs at least one"),
        ("trees = 0\n[[series]]\nname = 'a'", "trees must be at least 1. Got 0."),
        ("alone = -1\n[[series]]\nname = 'a'", "alone must be 0 to rounds"),
        ("[[series]]\nrows = 5", r"every \[\[series\]\] needs a name"),
        ("[[series]]\nname = 'a'\n[[series]]\nname = 'a'", "series names must differ"),
        (
            "row = 5\n[[series]]\nname = 'a'",
            "unknown key 'row'. Known: method, n, clusters, rows",
        ),
        (
            "rows = 'many'\n[[series]]\nname = 'a'",
            "rows must be of type int. Got 'many'.",
        ),
        ("rows = 0\n[[series]]\nname = 'a'", "rows must be at least 1. Got 0."),
        (
            "method = 'magic'\n[[series]]\nname = 'a'",
            "method must be one of 'algorithm1'",
        ),
        (
            "learner = 'tree'\n[[series]]\nname = 'a'",
            "learner='tree' goes with method='algorithm2'",
        ),
        (
            "method = 'ifca'\nonline = true\n[[series]]\nname = 'a'",
            "needs data that stays",
        ),
        ("rows = = 5", "is not valid TOML"),
        (
            "[[series]]\nname = 'a'\nreference = 'nope'",
            "there is no reference 'nope'. Known: 'fig2a d=2'",
        ),
        ("[[series]]\nname = 3", "must be text"),
        (
            "drift_at = -1\n[[series]]\nname = 'a'",
            "drift_at must be a round, with a linear learner and 2 or more clusters. Got -1.",
        ),
        (
            "drift_at = 2\nlearner = 'tree'\nmethod = 'algorithm2'\n[[series]]\nname = 'a'",
            "with a linear learner",
        ),
    ],
)
def test_bad_specs_get_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        load_spec(path)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def persfl(tmp_path, monkeypatch, capsys):
    """A command as a person types it, in a folder of its own; without the seconds that a fresh
    process takes to read packages.
    """
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        status = main([*arguments])
        return Done(status, *capsys.readouterr())

    return run


def test_the_command_leaves_everything_behind(tmp_path, persfl):
    mine = tmp_path / "mine.toml"
    mine.write_text(load_spec("fig2c").text)
    done = persfl(
        "run",
        "mine.toml",
        "--set",
        "rows=25",
        "--set",
        "rounds=30",
        "--runs",
        "2",
        "--jobs",
        "1",
        "--out",
        "here",
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "here" / "mine"
    curves = pd.read_csv(folder / "curves.csv")
    assert list(curves.columns) == ["series", "run", "round", "value"]
    assert set(curves["series"]) == {"S=5", "S=10", "S=15", "S=20", "S=30"}
    assert (
        curves.groupby(["series", "run"])["round"]
        .agg(["min", "max", "size"])
        .eq([1, 30, 30])
        .all()
        .all()
    )
    summary = pd.read_csv(folder / "summary.csv")
    assert list(summary.columns) == ["series", "round", "median", "q10", "q90", "runs"]
    assert (
        load_spec(folder / "spec.toml").series
        == load_spec("fig2c", {"rows": 25, "rounds": 30}).series
    )
    # another setting is another experiment: the reference says nothing about it
    assert "agrees" not in done.stdout
    about = json.loads((folder / "run.json").read_text())
    assert (about["seed"], about["runs"]) == (6, 2)
    assert about["versions"]["numpy"]
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "figure.svg").read_text()
    page = (tmp_path / "here" / "reproduction.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "S=20" in page
    assert "S=20" in done.stdout


def test_a_short_run_is_not_called_agreement(tmp_path, persfl):
    arguments = [
        "reproduce",
        "fig5",
        "--rounds",
        "20",
        "--runs",
        "2",
        "--jobs",
        "1",
        "--out",
        "here",
    ]
    done = persfl(*arguments)
    assert done.stdout.count("agrees so far") == 2
    assert "rounds = 20" in (tmp_path / "here" / "fig5" / "spec.toml").read_text()
    page = (tmp_path / "here" / "reproduction.html").read_text()
    assert "A short run" in page
    assert "does not hold" not in page
    # A damaged piece is made again, and a figure of an earlier command stays on the page.
    kept = sorted((tmp_path / "here" / "fig5" / "runs").glob("*.npy"))
    kept[0].write_bytes(kept[0].read_bytes()[:20])
    assert persfl(*arguments).returncode == 0
    assert persfl("reproduce", "drift", *arguments[2:]).returncode == 0
    page = (tmp_path / "here" / "reproduction.html").read_text()
    assert "fig5 (an earlier run: seed 6, 2 runs)" in page
    assert "Drift" in page


def test_trees_that_do_not_learn_do_not_agree():
    spec = load_spec("fig7")
    alone = {"d/m=0.2": 2.6, "d/m=1": 2.2, "d/m=2": 2.2, "d/m=5": 2.0, "d/m=10": 2.3}
    result = Result(
        spec, {name: np.full((12, 501), level) for name, level in alone.items()}, 12, 0
    )
    assert not any(
        verdict.agrees for verdict in verdicts(result) if verdict.series != "d/m=0.2"
    )
    assert all(verdict.complete for verdict in verdicts(result))


def test_many_series_are_all_drawn(tmp_path):
    from persfl.lab.drawings import draw_curves

    path = tmp_path / "many.toml"
    path.write_text(
        "rounds = 3\n" + "".join(f'[[series]]\nname = "s{i}"\n' for i in range(8))
    )
    figure = draw_curves(run_spec(load_spec(path), runs=1, out=tmp_path))
    assert len(figure.axes[0].get_lines()) == 8


def test_reproduce_lists_and_refuses(tmp_path, persfl):
    listed = persfl("reproduce")
    assert listed.returncode == 0
    assert "fig2a" in listed.stdout
    for arguments, sentence in [
        (("reproduce", "fig9"), "there is no experiment 'fig9'. Known: fig2a"),
        (("reproduce", "fig2a", "--runs", "0"), "--runs must be at least 1. Got 0."),
        (("run", "none.toml"), "there is no experiment 'none.toml'"),
        (
            ("run", "fig2a", "--rounds", "2", "--out", "/proc/nope"),
            "Check the path and its permissions",
        ),
        (
            ("run", "fig2a", "--set", "peers=500", "--rounds", "2", "--jobs", "1"),
            "peers must be at most 99",
        ),
    ]:
        done = persfl(*arguments)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def test_a_change_without_a_value_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["run", "fig2a", "--set", "rows"])
    assert "--set: must be KEY=VALUE, not 'rows'" in capsys.readouterr().err


def test_an_interrupted_run_goes_on_and_ends_the_same(tmp_path, persfl):
    arguments = [
        "reproduce",
        "trees-depth",
        "--rounds",
        "15",
        "--runs",
        "3",
        "--jobs",
        "1",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "persfl", *arguments, "--out", "cut"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    )
    kept = tmp_path / "cut" / "trees-depth" / "runs"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (
        kept.exists() and len(list(kept.glob("*.npy"))) >= 2
    ):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = {path.name: path.stat().st_mtime_ns for path in kept.glob("*.npy")}
    assert 2 <= len(before) < 9
    assert persfl(*arguments, "--out", "cut").returncode == 0
    assert persfl(*arguments, "--out", "whole").returncode == 0
    assert all(
        (kept / name).stat().st_mtime_ns == stamp for name, stamp in before.items()
    )
    curves = [
        Path(tmp_path, folder, "trees-depth", "curves.csv").read_bytes()
        for folder in ("cut", "whole")
    ]
    assert curves[0] == curves[1]


def test_pieces_of_vectors_hold_twelve_runs(tmp_path):
    assert [
        len(piece.runs)
        for piece in pieces(load_spec("fig5"), runs=30, seed=0, out=tmp_path)
    ] == [12, 12, 6] * 2


COPIED = (SPECS / "fig2a.toml").read_text()


@pytest.mark.parametrize(
    ("change", "compared"),
    [
        ("", 5),
        ("rounds = 40", 5),
        ("noise = 0.3\npeers = 5", 0),
        ("step_size = 0.1", 0),
        ("rows = 25", 0),
    ],
)
def test_a_copied_spec_is_compared_only_with_the_settings_of_the_reference(
    tmp_path, change, compared
):
    path = tmp_path / "fig2a.toml"
    head, series = COPIED.split("rounds = 1500\n")
    path.write_text(f"{head}{change or 'rounds = 1500'}\n{series}")
    spec = load_spec(path)
    assert sum(series.reference is not None for series in spec.series) == compared
    result = Result(
        spec, {series.name: np.full((12, 41), 5.0) for series in spec.series}, 12, 0
    )
    assert len(verdicts(result)) == compared
    # what the paper says, it says of its own settings
    assert len(claims({"fig2a": result})) == (compared > 0)


def test_one_changed_series_is_left_out_and_the_others_are_compared(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(COPIED.replace("features = 20\n", "features = 20\nnoise = 0.5\n"))
    found = {series.name: series.reference for series in load_spec(path).series}
    assert found["d/m=2"] is None
    assert sum(name is not None for name in found.values()) == 4


def test_a_figure_of_which_series_are_missing_makes_no_claim(tmp_path):
    for name in ("fig2c", "fig3", "fig5"):
        spec = load_spec(name)
        less = type(spec)(**{**vars(spec), "series": spec.series[1:]})
        assert (
            claims(
                {
                    name: Result(
                        less, {s.name: np.full((3, 9), 5.0) for s in less.series}, 3, 0
                    )
                }
            )
            == []
        )
