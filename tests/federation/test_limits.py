"""What a coordinator, a peer or a target can try, and what it costs whom."""

import federated
import numpy as np
import pytest

from persfl import (
    ArrayFleet,
    Best,
    Devices,
    GradientStep,
    Linear,
    Uniform,
    kin,
    personalize,
)
from persfl.errors import InputError
from persfl.federation.blend_device import family_of, work_of_question
from persfl.federation.device_words import (
    are_names,
    usual_columns,
    with_other_columns,
)
from persfl.federation.federation_folder import init
from persfl.federation.reply_inbox import RECORD
from persfl.fleets import Guarded
from persfl.fleets.flower import Device, FlowerFleet, Policy, Rows
from persfl.methods.blend.folds import Folding
from persfl.methods.blend.questions import Weigh
from persfl.methods.blend.views import ViewSettings
from persfl.sources import clustered_regression
from persfl.types import Data
from persfl.wire import Terms, WireError, model_from, pack, unpack

DEVICES = clustered_regression(n=6, clusters=2, rows=12, features=3, noise=0.1, seed=0)
TERMS = Terms(
    columns=federated.columns(DEVICES), settings={"intercept": False}, step_size=0.05
)


def device(**policy):
    rng = np.random.default_rng(0)
    return Device(
        "ann",
        Rows(["a", "b", "c"], Data(rng.normal(size=(20, 3)), rng.normal(size=20))),
        policy=Policy(**policy),
    )


def terms(**changes):
    return Terms(
        **{"columns": ("a", "b", "c"), "settings": {"intercept": False}} | changes
    )


def ask(one, kind, asked, head, arrays=None, r=0):
    told, more = asked.to_wire()
    return unpack(
        one.reply(
            kind,
            pack(
                {"run": "r", "round": r, "ask": 1, "me": 0} | told | head,
                more | (arrays or {}),
            ),
        )
    )


def question(**more):
    return {"targets": np.array([0]), "q0.vector": np.zeros(3)} | more


def test_fewest_rows_are_those_an_answer_is_computed_from():
    one = device(rows=10)
    assert ask(one, "describe", terms(holdout=0.9), {"sums": True})[0]["code"] == "rows"
    assert (
        ask(one, "answer", terms(holdout=0.9), {"names": ["t"]}, question())[0]["code"]
        == "rows"
    )
    assert ask(one, "score", terms(holdout=0.9), {"count": 0})[0]["code"] == "rows"
    assert (
        ask(one, "answer", terms(batch=1), {"names": ["t"]}, question())[0]["code"]
        == "rows"
    )
    assert ask(one, "answer", terms(batch=10), {"names": ["t"]}, question())[0][
        "codes"
    ] == ["ok"]


def test_a_question_is_another_one_if_its_answer_may_be():
    one = device(rows=0, questions=1)
    asked = [
        ask(one, "answer", terms(batch=6), {"names": ["t"], "me": me}, question())[0][
            "codes"
        ]
        for me in (0, 0, 1)
    ]
    assert asked == [["ok"], ["ok"], ["questions"]]
    other = ask(
        one, "answer", terms(batch=6), {"names": ["t"]}, question(targets=np.array([1]))
    )[0]
    assert other["codes"] == ["questions"]


def test_what_a_device_tells_as_a_target_counts():
    one, step = device(questions=1), {"count": 0, "step": True}
    anew = [{"round": 0, "stay": 0.0, "weights": [1.0], "set": True}]
    first = {"a0.0.vector": np.ones(3)}
    for _ in range(2):  # put again word by word
        assert (
            ask(one, "score", terms(), step | {"adoptions": anew}, first)[0]["code"]
            == "ok"
        )
    assert (
        ask(
            one,
            "score",
            terms(),
            step | {"adoptions": anew},
            {"a0.0.vector": np.zeros(3)},
        )[0]["code"]
        == "questions"
    )
    assert ask(one, "adopt", terms(), {"probe": True})[0]["code"] == "questions"
    assert ask(one, "describe", terms(), {"sums": True})[0]["code"] == "questions"


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"trees": 10}, {"model": "forest"}),
        ({"trees": 89}, {"model": "boosting", "classes": 3}),
        ({"trees": 0}, {"model": "tree"}),
    ],
)
def test_trees_count_also_where_nothing_is_said(policy, told):
    asked = Terms(columns=("a",), public=np.zeros((2, 1)), **told)
    assert Policy(**policy).refuses(asked, 100) == "trees"
    assert Policy(trees=90).refuses(asked, 100) is None


def test_proximal_steps_count():
    asked = Terms(model="mlp", columns=("a",), public=np.zeros((2, 1)))
    assert Policy(steps=4).refuses(asked, 100) == "steps"
    assert Policy(steps=5).refuses(asked, 100) is None


def test_nothing_is_built_that_could_not_travel():
    with pytest.raises(InputError, match="at most 8388608 weights"):
        Terms(model="mlp", columns=("a",), settings={"hidden": [4096] * 8}).learner()
    asked = Terms(columns=("a",), classes=1000, public=np.zeros((10_000, 1)))
    with pytest.raises(WireError, match="once per class"):
        Terms.from_wire(*asked.to_wire())
    for odd in (None, "many", -1, 1.5):
        with pytest.raises(InputError, match="do not fit"):
            Terms(
                model="forest", columns=("a",), settings={"n_estimators": odd}
            ).learner()


def chain_of(n, trees=1):
    """A forest of trees that ask one question after the other, n nodes each."""
    inner = np.arange(0, n - 1, 2)
    feature, left, right = np.full(n, -1), np.full(n, -1), np.full(n, -1)
    feature[inner], left[inner], right[inner] = 0, inner + 1, inner + 2
    return {
        "link": np.array([0]),
        "rate": np.ones(1),
        "stride": np.array([1]),
        "base": np.zeros(1),
        "nodes": np.full(trees, n),
        "feature": np.tile(feature, trees),
        "threshold": np.zeros(n * trees),
        "left": np.tile(left, trees),
        "right": np.tile(right, trees),
        "value": np.zeros((n * trees, 1)),
    }


def test_a_chain_is_no_tree_of_a_forest():
    n = 101
    chain = chain_of(n)
    deep = Terms(model="forest", columns=("a",), settings={"max_depth": None})
    assert model_from(deep.learner(), chain, 1).trees[0].feature.size == n
    with pytest.raises(WireError):
        model_from(Terms(model="forest", columns=("a",)).learner(), chain, 1)
    many = "asks at most 100 questions on the way down. Got one of 500."
    with pytest.raises(WireError, match=many):
        model_from(deep.learner(), chain_of(1001), 1)


@pytest.mark.parametrize(("model", "most"), [("forest", 2), ("boosting", 2)])
def test_a_forest_has_no_more_trees_than_its_family_grows(model, most):
    """Work is counted by what the terms say, not by what is then shown."""
    settings = {"n_estimators": 2}
    learner = Terms(model=model, columns=("a",), settings=settings).learner()
    for trees in (most, most + 1):
        told = chain_of(3, trees)
        told["value"] = told["value"] if model == "forest" else told["value"][:, 0]
        if trees == most:
            assert len(model_from(learner, told, 1).trees) == most
            continue
        with pytest.raises(WireError):
            model_from(learner, told, 1)


@pytest.mark.parametrize(("depth", "allowed"), [(6, True), (None, False)])
def test_every_tree_that_is_shown_is_work(depth, allowed):
    """A question that shows forests took as much as one that shows numbers."""
    settings = {"n_estimators": 100, "max_depth": depth}
    asked = Terms(
        model="forest", columns=("a",), settings=settings, public=np.zeros((2, 1))
    )
    family = family_of(asked)
    look = ViewSettings("shared", np.ones(1))
    shown = Weigh(look=look, many=20, models=None)
    work = work_of_question(family, asked, shown, 10_000, 1)
    none = Weigh(look=look, many=0, models=None)
    alone = work_of_question(family, asked, none, 10_000, 1)
    copies = 1 + Folding(0, False).count
    levels = copies * 20 * 100 * (depth or 100)
    assert work - alone >= levels * 10_000 * 20
    assert (work <= Policy().work) == allowed


def scores_of_d01(**lies):
    """Tampering by which d01 tells these numbers with its scores."""

    def tamper(name, message):
        record = message.content.config_records[RECORD]
        head, arrays = unpack(record["body"])
        if name == "d01" and head.get("kind") == "score":
            record["body"] = pack(
                head,
                dict(arrays)
                | {part: np.array([value]) for part, value in lies.items()},
            )
        return message

    return tamper


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_target_without_a_loss_costs_itself_alone(value):
    fleet = federated.fleet(DEVICES, TERMS, tamper=scores_of_d01(own=value))
    rounds = list(
        personalize(fleet, sampler=Uniform(3), adopter=Best(), rounds=3, seed=0)
    )
    assert np.isfinite(rounds[-1].loss[[0, 2, 3, 4, 5]]).all()
    assert fleet.roster.counts["d01"]["format"] > 0


def shortened(liars, share):
    """What some devices answer to the first target is `share` as long as it should be."""
    asked = {}

    def tamper(name, message):
        record = message.content.config_records[RECORD]
        head, arrays = unpack(record["body"])
        if name in liars and head.get("kind") == "answer" and head["code"] == "ok":
            probe = asked["fleet"].states.probes[0]
            short = probe + share * (arrays["p0.vector"] - probe)
            record["body"] = pack(head, dict(arrays) | {"p0.vector": short})
        return message

    return tamper, asked


def personal(devices, share, guard):
    """Four rounds of nine peers of one kind, six of whom shorten their steps."""
    tamper, asked = shortened(federated.names(10)[4:], share)
    told = Terms(
        columns=federated.columns(devices),
        settings={"intercept": False},
        step_size=0.05,
    )
    asked["fleet"] = federated.fleet(devices, told, tamper=tamper, targets=["d00"])
    fleet = guard(asked["fleet"])
    for _ in personalize(fleet, sampler=Uniform(9), adopter=Best(), rounds=4, seed=0):
        pass
    return fleet


def test_a_majority_of_short_steps_does_not_make_honest_ones_long_between_machines():
    devices = clustered_regression(n=10, clusters=1, rows=24, features=6, seed=4)
    used, plain = (
        personal(devices, 0.01, Guarded),
        personal(devices, 0.01, lambda fleet: fleet),
    )
    assert not used.jumps
    assert np.array_equal(used.models[0], plain.models[0])


@pytest.mark.parametrize("more", [{}, {"steps": 2, "batch": 6}])
def test_targets_tell_how_long_their_own_steps_are(more):
    told = Terms(columns=TERMS.columns, settings={"intercept": False}, seed=5, **more)
    ours, theirs = federated.fleet(DEVICES, told), federated.loop(DEVICES, told)
    peers = np.array([[(t + 1) % 6] for t in range(6)])
    for fleet in (ours, theirs):
        fleet.observe(0)
        fleet.probe(peers, 0)
    assert np.allclose(ours.own_lengths(0), theirs.own_lengths(0))
    assert np.isnan(ours.own_lengths(1)).all()
    assert all(
        home.ledger.counts("run", "").numbers
        for home in ours.post.grid.devices.values()
    )


@pytest.mark.parametrize("lie", [np.nan, np.inf, -1.0])
def test_an_own_step_without_a_length_is_none(lie):
    fleet = federated.fleet(DEVICES, TERMS, tamper=scores_of_d01(length=lie))
    list(
        personalize(
            Guarded(fleet), sampler=Uniform(3), adopter=Best(), rounds=1, seed=0
        )
    )
    assert np.isnan(fleet.own_lengths(0)).tolist() == [False, True, *[False] * 4]


def test_refusals_are_answers_for_a_quorum():
    homes = federated.at_home(DEVICES)
    for name in ("d00", "d01", "d02", "d03"):
        homes[name].policy = Policy(rows=100)
    fleet = federated.fleet(DEVICES, TERMS, homes=homes, targets=["d05"])
    rounds = list(
        personalize(fleet, sampler=Uniform(5), adopter=Best(), rounds=2, seed=0)
    )
    assert np.isfinite(rounds[0].losses[0, 1:]).sum() == 1


def test_a_guard_lets_losses_below_zero_fall():
    rng = np.random.default_rng(0)
    X = [np.column_stack([rng.normal(size=30) * 0.1, np.ones(30)]) for _ in range(4)]
    devices = Devices.of(
        [(x, rng.poisson(8, size=30).astype(float)) for x in X], quiet=True
    )
    found = []
    for guard in (Guarded, lambda fleet: fleet):
        fleet = guard(
            ArrayFleet(devices, learner=Linear("poisson"), proposer=GradientStep(0.02))
        )
        found.append(
            list(
                personalize(
                    fleet, sampler=Uniform(2), adopter=Best(), rounds=40, seed=0
                )
            )[-1].loss
        )
    assert (found[0] < -5).all()
    np.testing.assert_array_equal(*found)


def test_kin_waits_for_nobody():
    fleet = federated.fleet(DEVICES, TERMS)
    fleet.post.grid.away = {"d02"}
    rule = kin(3)
    for round_ in personalize(
        fleet, sampler=rule.sampler, adopter=rule.adopter, rounds=6, seed=0
    ):
        if round_.r == 2:
            fleet.post.grid.away = set()
    assert all(model is not None for model in fleet.models)
    np.testing.assert_array_equal(fleet._steps.start, np.zeros((6, 3)))


def test_a_target_that_is_away_is_told_one_model():
    fleet = federated.fleet(DEVICES, TERMS)
    for round_ in personalize(
        fleet, sampler=Uniform(3), adopter=Best(), rounds=8, seed=0
    ):
        if round_.r == 1:
            fleet.post.grid.away = {"d02"}
        if round_.r == 5:
            assert len(fleet.states.pending[2]) == 1
            fleet.post.grid.away = set()
    assert fleet.finish() == []
    kept = fleet.post.grid.devices["d02"].shelf.get("run")
    np.testing.assert_array_equal(kept.model, fleet.models[2])


def test_a_state_may_be_larger_than_a_message():
    wide = Terms(columns=tuple(f"c{i}" for i in range(9000)), classes=100)
    start = [np.zeros(wide.learner().size(9000))] * 4
    options = {"ids": federated.names(6), "targets": federated.names(4)}
    post = federated.post(federated.at_home(DEVICES))
    state = FlowerFleet(post, wide, start=start, **options).state()
    assert len(FlowerFleet(post, wide, state=state, **options).models) == 4
    with pytest.raises(InputError, match="at most 64 MiB"):
        FlowerFleet(post, wide, state=state, **options).letters.letter(
            0, 0, {}, {str(i): start[0] for i in range(12)}
        )


@pytest.mark.parametrize(
    "options",
    [
        {"devices": ["coordinator"]},
        {"devices": ["federation.toml"]},
        {"host": 'a"b'},
        {"host": ""},
        {"host": "::1"},
        {"host": "müller.de"},
        {"port": 9443, "inner": 9443},
    ],
)
def test_a_folder_that_could_not_work_is_not_begun(tmp_path, options):
    with pytest.raises(InputError):
        init(tmp_path / "fed", **{"devices": ["a", "b"]} | options)
    assert not (tmp_path / "fed").exists()


def test_a_target_at_home_has_no_limits_of_its_own(tmp_path):
    from persfl.federation.conduct import _home
    from persfl.federation.run_plan import RunPlan

    table = tmp_path / "rows.csv"
    table.write_text("a,y\n" + "".join(f"{i},{i}\n" for i in range(6)))
    told = {
        "device": "home",
        "data": str(table),
        "label": "y",
        "drop": [],
        "weight": None,
    }
    one = _home(RunPlan(out="run", devices=("a",), home=told))["home"]
    assert (
        ask(one, "adopt", Terms(columns=("a",), steps=50), {"probe": True})[0]["code"]
        == "ok"
    )


@pytest.mark.parametrize(
    ("columns", "good"),
    [
        (["a", "b"], True),
        ([], False),
        (["a", "a"], False),
        (["a", 1], False),
        (["x" * 2000], False),
        ("ab", False),
    ],
)
def test_what_a_device_says_of_its_columns_is_names_or_nothing(columns, good):
    assert are_names(columns) is good


@pytest.mark.parametrize("liar", ["aaa", "eve", "zed"])
def test_whoever_differs_from_most_is_named(liar):
    there = {name: {"columns": ["x", "y"]} for name in ("bob", "cid", "fay")}
    assert not with_other_columns(there)
    there[liar] = {"columns": ["y", "z", "x"]}
    assert usual_columns(there) == ["x", "y"]
    assert list(with_other_columns(there)) == [liar]
    assert f"device {liar!r} differs in 'z'." in with_other_columns(there)[liar]
