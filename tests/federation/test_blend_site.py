"""Blend over a federation: equal to blend in one process, whatever peers do, exact after an
interruption.
"""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr")

from federated import OPEN, at_home, columns, names, post

from persfl import Devices, Linear, Tree
from persfl.federation.blend_device import family_of
from persfl.federation.blend_exchange import BlendScene
from persfl.federation.blend_group import FlowerBundle, FlowerGroup
from persfl.federation.blend_journal import Journal
from persfl.federation.blend_site import FlowerSite
from persfl.federation.fleet import Away
from persfl.federation.last_look import Alone, is_worse
from persfl.federation.letters import Letters, Limited
from persfl.federation.lockstep import side_by_side
from persfl.federation.model_store import mixture_from
from persfl.fleets.flower import Device, Policy, Rows
from persfl.learners.responses import respond
from persfl.methods.blend import blend, blend_over, local_site
from persfl.methods.blend.folds import Folding, TargetRows
from persfl.methods.blend.questions import Mix
from persfl.methods.blend.views import ViewSettings
from persfl.sources import clustered_regression
from persfl.types import Data
from persfl.wire import Terms, WireError, nested, pack, unpack
from persfl.wire.codec import within

DEVICES = clustered_regression(
    n=7, clusters=2, rows=(6, 12), features=2, noise=0.3, seed=1
)
CLASSES = Devices.of(
    [(d.X, np.digitize(d.X @ [1.0, -1.0], [-0.7, 0.7]) + 0.0) for d in DEVICES],
    quiet=True,
)
LINEAR = Terms(columns=columns(DEVICES), seed=5, settings={"loss": "huber"})
BUDGET = 60


@pytest.fixture(autouse=True)
def _as_wide(monkeypatch):
    """Linear models of other losses are asked as those are that have many columns."""
    for place in ("device", "blend_run"):
        monkeypatch.setattr(
            f"persfl.federation.{place}.tells_losses", lambda terms: False
        )


class Direct:
    """A post that hands letters to devices without a network; `tamper` may change a reply, or
    drop it (None).
    """

    def __init__(self, homes, tamper=lambda name, reply: reply):
        self.homes, self.tamper, self.messages = homes, tamper, 0

    def exchange(self, letters, deadline):
        from persfl.federation.reply_inbox import Failed

        self.messages += len(letters)
        found = {
            name: self.tamper(name, self.homes[name].reply(*letter))
            for name, letter in letters.items()
        }
        return {
            name: Failed("late") if reply is None else reply
            for name, reply in found.items()
        }


def homes_of(
    devices,
    terms,
    *,
    through=None,
    journal=None,
    targets=None,
    tamper=None,
    policy=OPEN,
    run="run",
    **more,
):
    through = through or Direct(
        at_home(devices, policy), tamper or (lambda name, reply: reply)
    )
    letters = Letters(through, terms, run=run, home={}, deadline=5.0)
    targets = np.arange(len(devices)) if targets is None else np.array(targets)
    options = {"patience": 0.0, "journal": journal or Journal(), "seed": terms.seed}
    scene = BlendScene(ids=names(len(devices)), targets=targets, **options | more)
    return FlowerSite(letters, scene)


@pytest.fixture(scope="module")
def here():
    return blend(DEVICES, LINEAR.learner(), seed=5, budget=BUDGET)


def test_the_same_models_as_in_one_process(here):
    homes = homes_of(DEVICES, LINEAR)
    found = blend_over(homes, budget=BUDGET)
    np.testing.assert_allclose(np.stack(found.models), here.models, atol=1e-9)
    np.testing.assert_allclose(found.shares, here.shares, atol=1e-9)
    for ours, theirs in zip(found.rounds, here.rounds, strict=True):
        np.testing.assert_array_equal(ours.peers, theirs.peers)
    # one message to each device, however many questions
    assert homes.letters.post.messages == 7 * homes.exchanges
    assert homes.exchanges < 40


def test_classes_units_weights_and_time_too(monkeypatch):
    """As models are asked that are too large to tell bends."""
    monkeypatch.setattr("persfl.federation.device.tells_bends", lambda terms: False)
    few = Devices.of([CLASSES[i] for i in range(4)], quiet=True)
    weighted = Devices(
        few.X, few.y, np.linspace(0.5, 2.0, len(few.y)), few.start, few.ids
    )
    terms = Terms(
        columns=columns(DEVICES),
        classes=3,
        seed=2,
        mean=np.full(2, 0.3),
        scale=np.full(2, 1.5),
    )
    inside = Devices(
        (weighted.X - 0.3) / 1.5,
        weighted.y,
        weighted.weight,
        weighted.start,
        weighted.ids,
    )
    found = blend_over(homes_of(weighted, terms, ordered=True), budget=4)
    want = blend(inside, terms.learner(), seed=2, budget=4, ordered=True, classes=3)
    np.testing.assert_allclose(np.stack(found.models), want.models, atol=1e-8)


ONE = clustered_regression(n=6, clusters=2, rows=(6, 9), features=1, noise=0.3, seed=1)
CUT = Devices.of(
    [(d.X, np.digitize(d.X[:, 0], [-0.5, 0.5]) + 0.0) for d in ONE], quiet=True
)
POINTS = np.linspace(-2.0, 2.0, 9)[:, None]


@pytest.mark.parametrize("budget", [1, 40, 110])
def test_trees_are_those_of_one_process_bit_for_bit(budget):
    """One feature: between several, ties are broken by a secret of the device."""
    terms = Terms(
        model="tree",
        columns=columns(ONE),
        seed=5,
        public=POINTS,
        settings={"max_depth": 2},
    )
    found = blend_over(homes_of(ONE, terms), budget=budget)
    one_process = local_site(ONE, Tree(2), POINTS, seed=5, together=False)
    want = blend_over(one_process, budget=budget)
    assert ("neighbours" in " ".join(want.names)) == (budget > 100)
    assert found.names == want.names
    np.testing.assert_array_equal(found.shares, want.shares)
    for ours, theirs in zip(found.rounds, want.rounds, strict=True):
        np.testing.assert_array_equal(ours.peers, theirs.peers)
        np.testing.assert_array_equal(ours.losses, theirs.losses)
    for ours, theirs in zip(found.models, want.models, strict=True):
        for (share, tree), (other, same) in zip(ours, theirs, strict=True):
            assert share == other
            for part, again in zip(tree, same, strict=True):
                np.testing.assert_array_equal(part, again)


def test_who_has_no_peer_that_tells_its_tree_has_its_own():
    """Of two devices one that was silent once ended the run, with an AttributeError."""
    some = Devices.of([ONE[i] for i in range(2)], quiet=True)
    terms = Terms(
        model="tree",
        columns=columns(ONE),
        seed=5,
        public=POINTS,
        settings={"max_depth": 2},
    )

    def tamper(name, reply):
        return None if name == "d01" and unpack(reply)[0]["round"] == 0 else reply

    site = homes_of(some, terms, tamper=tamper)
    found = blend_over(site, budget=40)
    assert all(model is not None for model in found.models)
    counts = {row["device"]: row for row in site.roster.table()}
    # what these models do not need is not asked
    assert counts["d00"]["format"] == 0


@pytest.mark.parametrize("n", [2, 3])
def test_no_share_of_an_absurd_tree_is_taken(n):
    """A thousandth of a liar's leaves of 1e14 was part of honest models: losses were measured by
    their mean.
    """
    some = Devices.of([ONE[i] for i in range(n)], quiet=True)
    terms = Terms(
        model="tree",
        columns=columns(ONE),
        seed=5,
        public=POINTS,
        settings={"max_depth": 2},
    )

    def tamper(name, reply):
        head, arrays = unpack(reply)
        if name != "d01" or head["round"] % 2:
            return reply
        lies = {
            key: np.full_like(array, 1e14) if array.dtype == np.float64 else array
            for key, array in arrays.items()
        }
        return pack(head, lies)

    found = blend_over(homes_of(some, terms, tamper=tamper), budget=12)
    for i in range(n):
        if i != 1:
            said = respond(terms.learner(), found.models[i], some[i].X, 0)
            assert np.abs(said).max() < 3.0 * np.abs(some.y).max()


def test_trees_of_classes_predict_as_in_one_process():
    terms = Terms(
        model="tree",
        columns=columns(CUT),
        seed=5,
        classes=3,
        public=POINTS,
        soft=True,
        settings={"max_depth": 2},
    )
    learner = terms.learner()
    found = blend_over(homes_of(CUT, terms, ordered=True), budget=40)
    site = local_site(
        CUT, learner, POINTS, seed=5, classes=3, ordered=True, together=False
    )
    want = blend_over(site, budget=40)
    np.testing.assert_allclose(found.shares, want.shares, atol=1e-12)
    for ours, theirs in zip(found.models, want.models, strict=True):
        np.testing.assert_allclose(
            respond(learner, ours, POINTS, 3), respond(learner, theirs, POINTS, 3)
        )


@pytest.mark.parametrize(("classes", "budget"), [(0, 1), (0, 60), (3, 60)])
def test_networks_are_those_of_one_process(classes, budget, brief_descents):
    pytest.importorskip("torch")
    some = CUT if classes else ONE
    devices = Devices.of([some[i] for i in range(3)], quiet=True)
    terms = Terms(
        model="mlp",
        columns=columns(devices),
        seed=5,
        classes=classes,
        settings={"hidden": [3], "dtype": "float64"},
    )
    found = blend_over(homes_of(devices, terms), budget=budget)
    want = blend_over(
        local_site(devices, terms.learner(), seed=5, classes=classes), budget=budget
    )
    assert ("neighbours" in " ".join(want.names)) == (budget > 1)
    assert found.names == want.names
    np.testing.assert_allclose(found.shares, want.shares, atol=1e-9)
    for ours, theirs in zip(found.rounds, want.rounds, strict=True):
        np.testing.assert_array_equal(ours.peers, theirs.peers)
    for ours, theirs in zip(found.models, want.models, strict=True):
        for (share, vector), (other, same) in zip(ours, theirs, strict=True):
            assert share == pytest.approx(other, abs=1e-9)
            np.testing.assert_allclose(vector, same, atol=1e-9)


def test_bad_peers_cost_trees_and_networks_their_own_answers(brief_descents):
    pytest.importorskip("torch")
    some = Devices.of([ONE[i] for i in range(3)], quiet=True)
    for terms in (
        Terms(model="tree", columns=columns(ONE), seed=5, public=POINTS),
        Terms(model="mlp", columns=columns(ONE), seed=5, settings={"hidden": [3]}),
    ):
        homes = homes_of(some, terms, tamper=nonsense("nan"))
        found = blend_over(homes, budget=110)
        for i in (1, 2):
            said = respond(terms.learner(), found.models[i], POINTS)
            assert np.isfinite(said).all()


def absurd(part, number):
    """A peer whose models hold this number wherever a name ends in `part`."""

    def tamper(name, reply):
        if name != "d03":
            return reply
        head, arrays = unpack(reply)
        for key, array in arrays.items():
            if ".answers." in key and key.endswith(part):
                arrays[key] = np.full_like(array, number)
        return pack(head, arrays)

    return tamper


@pytest.mark.parametrize(
    ("model", "classes", "lie"),
    [
        ("tree", 0, absurd(".value", 9e14)),
        ("boosting", 0, absurd((".value", ".rate"), 9e14)),
        ("tree", 3, absurd(".value", -1e14)),
        ("tree", 3, absurd(".value", 1.0)),
    ],
    ids=["values", "rates", "no chances", "every chance"],
)
def test_a_peer_with_absurd_trees_costs_its_own_answers(model, classes, lie):
    """It took every device's model away, or ended the run."""
    devices, few = (CUT if classes else ONE), {"n_estimators": 2}
    settings = {"max_depth": 2} | (few if model == "boosting" else {})
    named = {"model": model, "classes": classes, "columns": columns(ONE)}
    terms = Terms(**named, seed=5, public=POINTS, settings=settings)
    budget = 110 if terms.learner() == Tree(2) else 40
    found = blend_over(homes_of(devices, terms, tamper=lie), budget=budget)
    for mix in found.models:
        said = respond(terms.learner(), mix, POINTS, classes)
        assert np.abs(said).max() < 20.0
        assert not classes or said.sum(axis=1) == pytest.approx(1.0)


def mixed_of(device, terms, starts, start):
    """What a device makes of these starts, where the fleet believes in one of them alone."""
    family = family_of(terms)
    names = [f"{view} {name}" for view in family.views for name in family.names()]
    shares = np.zeros(len(names))
    shares[next(k for k, name in enumerate(names) if f" {start} " in name)] = 1.0
    looks = [ViewSettings(view, np.ones(2)) for view in family.views]
    wire = Mix(views=tuple((look, starts) for look in looks), shares=shares)
    wire = wire.wire(family)
    asks = {"asks": [wire.head]}
    letters = Letters(None, terms, run="run", home={}, deadline=1.0)
    letter = letters.letter(0, 0, asks, nested("k0", wire.arrays))
    told = within("k0", unpack(device.reply("blend", letter))[1])
    model = mixture_from(terms, within("model", told))
    return told["alone"].tolist(), respond(terms.learner(), model, DEVICES[0].X)


def test_a_peer_that_is_honest_about_folds_alone_does_not_decide():
    """A forest's error was 700,000 times as large: no fold had judged what it ended with."""
    good = np.append(DEVICES.true_weights[0], 0.0)
    for policy in (OPEN, Policy(rows=3)):
        device = at_home(DEVICES, policy)["d00"]
        for whole, folds, alone in [(1, 1, 0.0), (1e4, 1, 1.0), (1, -50, 1.0)]:
            starts = starts_of(whole * good, folds * good)
            told, said = mixed_of(device, LINEAR, starts, "neighbours")
            assert told == [alone]
            assert ((said - DEVICES[0].y) ** 2).mean() < 0.5


def starts_of(whole, folds):
    """What is told of all rows, and of all but a fold."""
    each = np.stack([whole, *[folds] * Folding().count])
    return {"pooled": whole, "alike": each, "neighbours": each}


class OneLiar:
    """A group of five whose gradients all lead to 1, but for one."""

    def __init__(self, lie):
        self.lie = lie
        self.weight = np.ones(5)

    def begin(self):
        return np.zeros((1, 2))

    def slopes(self, models, who, whose=None):
        found = models - 1.0
        found[who == 3] = self.lie
        return found


@pytest.mark.parametrize("lie", [1e14, -1e14, 1e3, np.nan])
def test_one_peer_with_absurd_gradients_leads_no_network_away(lie):
    """All others' models went where it pointed, and everybody was left with own rows."""
    group = OneLiar(lie)
    pooled = FlowerGroup.pooled_descent(group, np.arange(5), 100, 0.05)
    np.testing.assert_allclose(pooled, 1.0, atol=0.1)
    who = np.arange(5)[None]
    start = group.begin()
    near = FlowerBundle(group).near_descent([0], [who], start, 100, 0.05)
    np.testing.assert_allclose(near, 1.0, atol=0.1)


def heavy(weight):
    """A device that says its rows weigh so much."""

    def tamper(name, reply):
        head, arrays = unpack(reply)
        lies = {key: array * 0.0 + weight for key, array in arrays.items()}
        lies = {key: lie for key, lie in lies.items() if key.endswith(".weight")}
        return pack(head, arrays | lies) if name == "d03" else reply

    return tamper


@pytest.mark.parametrize("weight", [1e15, 1e4])
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_nobody_decides_by_the_weight_it_tells(model, weight):
    """With 1e15 the model for all was its own, and usual variances were 0."""
    settings = {"hidden": [3]} if model == "mlp" else {"loss": "huber"}
    terms = Terms(model=model, columns=columns(DEVICES), seed=5, settings=settings)
    honest = homes_of(DEVICES, terms).spreads()
    site = homes_of(DEVICES, terms, tamper=heavy(weight))
    found = site.spreads()
    others = np.arange(7) != 3
    np.testing.assert_array_equal(found.weight[others], honest.weight[others])
    assert found.weight[3] <= found.weight[others].sum()
    np.testing.assert_array_equal(site.weight, found.weight)
    usual = [each.squares.sum(axis=0) / each.weight.sum() for each in (honest, found)]
    assert (usual[1] >= 0.4 * usual[0]).all()


def test_weights_that_differ_within_reason_count_as_they_are():
    counts = (5, 6, 7, 8, 20)
    rows = [(np.arange(k)[:, None] + 0.0, np.ones(k)) for k in counts]
    devices = Devices.of(rows, quiet=True)
    terms = Terms(columns=columns(devices), seed=5, settings={"loss": "huber"})
    found = homes_of(devices, terms).spreads()
    assert found.weight.tolist() == list(counts)


def test_a_target_that_tells_no_loss_at_all_does_not_end_a_blend_of_networks(
    brief_descents,
):
    pytest.importorskip("torch")

    def perfect(name, reply):
        head, arrays = unpack(reply)
        lies = {key: array * 0.0 for key, array in arrays.items() if "losses" in key}
        return pack(head, arrays | lies) if name == "d01" else reply

    some = Devices.of([ONE[i] for i in range(3)], quiet=True)
    named = {"model": "mlp", "columns": columns(ONE), "settings": {"hidden": [3]}}
    found = blend_over(
        homes_of(some, Terms(**named, seed=5), tamper=perfect), budget=60
    )
    assert all(model is not None for model in found.models)


def test_real_messages(here):
    some = Devices.of([DEVICES[i] for i in range(4)])
    through = post(at_home(some))
    found = blend_over(homes_of(some, LINEAR, through=through), budget=30)
    np.testing.assert_allclose(
        np.stack(found.models),
        blend(some, LINEAR.learner(), seed=5, budget=30).models,
        atol=1e-9,
    )


def test_an_interrupted_run_goes_on_and_ends_the_same(here):
    journal, left = Journal(), [80]

    def tamper(name, reply):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return reply

    with pytest.raises(KeyboardInterrupt):
        blend_over(
            homes_of(DEVICES, LINEAR, journal=journal, tamper=tamper),
            budget=BUDGET,
        )
    again = homes_of(DEVICES, LINEAR, journal=journal)
    found = blend_over(again, budget=BUDGET)
    np.testing.assert_allclose(np.stack(found.models), here.models, atol=1e-9)
    # eleven exchanges were whole: they are not made again
    assert again.letters.post.messages == 7 * (again.exchanges - 11)


def nonsense(how):
    def tamper(name, reply):
        if name not in ("d00", "d05"):
            return reply
        if how == "away":
            return None
        head, arrays = unpack(reply)
        if how == "codes":
            head["codes"] = head["codes"][:-1]
        elif how == "large":
            arrays = {
                key: np.full_like(array, 1e6 if name == "d00" else 1e300)
                for key, array in arrays.items()
            }
        else:
            arrays = {
                key: array * np.nan if name == "d00" else array[:0]
                for key, array in arrays.items()
            }
        return pack(head, arrays)

    return tamper


@pytest.mark.parametrize("how", ["away", "nan", "large", "codes"])
def test_bad_peers_cost_their_own_answers(how, here):
    found = blend_over(homes_of(DEVICES, LINEAR, tamper=nonsense(how)), budget=BUDGET)
    honest = [i for i in range(7) if i not in (0, 5)]
    away = [np.abs(found.models[i][:2] - DEVICES.true_weights[i]).max() for i in honest]
    before = [
        np.abs(here.models[i][:2] - DEVICES.true_weights[i]).max() for i in honest
    ]
    assert np.median(away) < np.median(before) + 0.25
    if how in ("away", "codes"):
        assert found.models[0] is None


def test_one_of_three_takes_nobodys_model_away():
    """What came of its answers was too large to travel: the two others were told no mix."""

    def tamper(name, reply):
        head, arrays = unpack(reply)
        lies = {key: np.full_like(array, 1e9) for key, array in arrays.items()}
        return pack(head, lies) if name == "d01" else reply

    some = Devices.of([DEVICES[i] for i in range(3)], quiet=True)
    found = blend_over(homes_of(some, LINEAR, tamper=tamper), budget=200)
    for i in (0, 2):
        assert np.abs(found.models[i][:2] - DEVICES.true_weights[i]).max() < 0.5


def test_too_few_devices_stop_the_run_and_nothing_is_lost(here):
    journal = Journal()
    gone = [80]

    def tamper(name, reply):
        gone[0] -= 1
        return reply if gone[0] > 0 else None

    with pytest.raises(Away, match="of 7 devices answered"):
        blend_over(
            homes_of(DEVICES, LINEAR, journal=journal, tamper=tamper),
            budget=BUDGET,
        )
    found = blend_over(homes_of(DEVICES, LINEAR, journal=journal), budget=BUDGET)
    assert all(model is not None for model in found.models)


def test_a_limit_ends_the_run_in_words_and_raising_it_goes_on(here):
    devices, journal = (
        at_home(DEVICES, replace(OPEN, questions_per_target=3)),
        Journal(),
    )
    homes = homes_of(DEVICES, LINEAR, through=Direct(devices), journal=journal)
    with pytest.raises(
        Limited,
        match=r"exchange \d+: device 'd0\d' .* 'questions_per_target' .* in node.toml",
    ):
        blend_over(homes, budget=BUDGET)
    counts = [
        devices["d00"].ledger.counts("run", name).target for name in ["", *names(7)]
    ]
    assert max(counts) <= 3  # different questions, for anybody
    for device in devices.values():
        device.policy = OPEN
    found = blend_over(
        homes_of(DEVICES, LINEAR, through=Direct(devices), journal=journal),
        budget=BUDGET,
    )
    np.testing.assert_allclose(np.stack(found.models), here.models, atol=1e-9)


def test_four_runs_over_the_same_devices_are_each_whole():
    """Limits count per run: the fourth run is answered as the first, and equals one process as
    the first does.
    """
    some = Devices.of([DEVICES[i] for i in range(3)], quiet=True)
    devices, most = at_home(some), 0
    for k in range(4):
        away = np.full(2, 0.1 * k)  # other units, other questions
        terms = replace(LINEAR, mean=away, scale=np.ones(2))
        homes = homes_of(some, terms, through=Direct(devices), run=f"run {k}")
        found = blend_over(homes, budget=2)
        inside = Devices(some.X - away, some.y, some.weight, some.start, some.ids)
        want = blend(inside, terms.learner(), seed=5, budget=2)
        np.testing.assert_allclose(np.stack(found.models), want.models, atol=1e-9)
        counts = devices["d00"].ledger.counts(f"run {k}", "")
        most = (
            most
            or max(
                home.ledger.counts(f"run {k}", "").target for home in devices.values()
            )
            + 9
        )
        for device in devices.values():  # no more than a run needs
            device.policy = replace(OPEN, questions_per_target=most)
    assert counts.ever > 2 * most
    for device in devices.values():
        device.policy = replace(OPEN, questions_ever=counts.ever)
    terms = replace(LINEAR, mean=np.ones(2), scale=np.ones(2))
    with pytest.raises(
        Limited, match="'questions_ever' \\(different questions in all runs together\\)"
    ):
        blend_over(
            homes_of(some, terms, through=Direct(devices), run="run 4"),
            budget=2,
        )


def test_ordinary_runs_have_room_under_the_default_limits():
    devices = clustered_regression(
        n=4, clusters=2, rows=30, features=2, noise=0.3, seed=1
    )
    terms = Terms(columns=columns(devices), seed=5, settings={"loss": "huber"})
    homes = homes_of(devices, terms, through=Direct(at_home(devices, Policy())))
    blend_over(homes, budget=640)
    book, policy = homes.letters.post.homes["d00"].ledger, Policy()
    counts = [book.counts("run", name) for name in ("", *names(4))]
    assert max(each.target for each in counts) < policy.questions_per_target / 2
    assert counts[0].run < policy.questions / 50
    assert counts[0].numbers < policy.numbers / 500


def test_targets_without_folds_are_named():
    homes = homes_of(DEVICES, LINEAR, policy=Policy())
    found = blend_over(homes, budget=4)
    few = {
        name for i, name in enumerate(names(7)) if DEVICES[i].rows < 2 * Policy().rows
    }
    assert few
    assert homes.foldless == few < set(names(7))
    assert all(model is not None for model in found.models)


def test_without_sums_all_spreads_are_taken_to_be_one():
    silent = homes_of(DEVICES, LINEAR, policy=replace(OPEN, sums=False))
    assert blend_over(silent, budget=BUDGET).models[0] is not None


def test_a_target_alone(here):
    found = blend_over(homes_of(DEVICES, LINEAR, targets=[3]), budget=BUDGET)
    assert [model is not None for model in found.models] == [i == 3 for i in range(7)]
    assert found.shares[3].sum() == pytest.approx(1.0)
    assert found.shares[[0, 1, 2, 4]].sum() == 0


def test_questions_that_are_not_in_order():
    device = at_home(DEVICES)["d00"]
    letters = Letters(None, LINEAR, run="run", home={}, deadline=1.0)
    wrong = [
        {"what": "rows"},
        {"what": "steps", "view": "shared", "label": 1.0, "step": 0.1, "steps": 1},
        7,
        {"what": "steps", "view": "elsewhere", "label": 1.0, "step": 0.1, "steps": 1},
        {"what": "mix", "views": []},
        {"what": "weigh", "view": "shared", "label": 1.0, "many": 10**9},
        {"what": "spread", "names": ["x" * 300]},
        {"what": "refit", "view": "shared", "label": 1.0, "weight": -1.0},
        {"what": "offers", "view": "shared", "label": 1.0},
    ]
    head, arrays = unpack(device.reply("blend", letters.letter(0, 0, {"asks": wrong})))
    assert head["codes"] == ["format"] * len(wrong)
    assert not arrays
    head, _ = unpack(device.reply("blend", letters.letter(0, 0, {"asks": "all"})))
    assert head["code"] == "format"
    long = {"what": "steps", "view": "shared", "label": 1.0, "step": 0.1, "steps": 500}
    asked = {"k0.variance": np.ones(2), "k0.models": np.zeros((1, 3))}
    head, _ = unpack(
        device.reply("blend", letters.letter(0, 0, {"asks": [long]}, asked))
    )
    assert head["codes"] == ["steps"]


def asked_of(device, terms, asks, arrays=None):
    """Codes and arrays that a device answers these questions with."""
    letters = Letters(None, terms, run="run", home={}, deadline=1.0)
    letter = letters.letter(0, 0, {"asks": asks}, arrays or {})
    head, told = unpack(device.reply("blend", letter))
    return head["codes"], told


def viewed(what, **more):
    return {"what": what, "view": "shared", "label": 1.0} | more


TREES = Terms(model="tree", columns=("x0",), public=POINTS, settings={"max_depth": 3})
NETS = Terms(model="mlp", columns=("x0",), settings={"hidden": [2], "dtype": "float64"})
VARIANCE = {"k0.variance": np.zeros(1)}


def one_device(policy, rows=24):
    X = np.linspace(-1.0, 1.0, rows)[:, None]
    data = Data(X, np.arange(rows) + 0.0)
    return Device("ann", Rows(["x0"], data), policy=policy)


def test_a_family_is_asked_its_own_questions_alone():
    device = one_device(Policy())
    strange = [viewed("slopes"), viewed("falls"), viewed("pull"), {"what": "spread"}]
    assert asked_of(device, TREES, strange)[0] == ["format"] * 4
    strange = [viewed("fit"), viewed("refit"), viewed("pull"), viewed("rough")]
    assert asked_of(device, NETS, strange)[0] == ["format"] * 4
    strange = [viewed("fit"), viewed("refit"), viewed("slopes"), {"what": "weight"}]
    linear = Terms(columns=("x0",))
    assert asked_of(device, linear, strange)[0] == ["format"] * 4
    # a view of their own means belongs to linear models
    centred = [viewed("fit", view="centred")]
    assert asked_of(device, TREES, centred, VARIANCE)[0] == ["format"]
    # trees without public points cannot be refitted
    bare = replace(TREES, public=None)
    letters = Letters(None, bare, run="run", home={}, deadline=1.0)
    head, _ = unpack(device.reply("blend", letters.letter(0, 0, {"asks": []})))
    assert head["code"] == "format"


@pytest.mark.parametrize("what", ["fit", "refit", "mix"])
def test_no_leaf_that_leaves_rests_on_few_rows(what):
    """Labels are 0, 1, 2, ...: the mean of five or more neighbours is no label of an end."""
    question, arrays = viewed(what), dict(VARIANCE)
    if what == "refit":
        question["names"] = ["eve"]
        arrays["k0.probes.0.labels"] = np.full(9, 1e3)
    if what == "mix":
        question = {"what": "mix", "views": ["shared"], "labels": [1.0]}
        shares = np.zeros(7)
        shares[0] = 1.0
        arrays = {"k0.shares": shares, "k0.v0.variance": np.zeros(1)}
    smallest = {}
    for least in (1, 5):
        policy = Policy(rows_per_leaf=least, rows=1)
        codes, told = asked_of(one_device(policy), TREES, [question], arrays)
        assert codes == ["ok"]
        (value,) = [array for name, array in told.items() if name.endswith("value")]
        (feature,) = [array for name, array in told.items() if name.endswith("feature")]
        leaves = value[feature < 0]
        smallest[least] = leaves[leaves < 1e3 - 1].min()
    assert smallest[5] >= 2.0  # the mean of 0, 1, 2, 3, 4
    assert what == "refit" or smallest[1] < 2.0


def test_few_rows_for_a_leaf_make_fewer_folds():
    policy = Policy(rows=2, rows_per_leaf=10)
    codes, told = asked_of(one_device(policy), TREES, [viewed("own")], VARIANCE)
    assert codes == ["ok"]
    assert sorted(set(told["k0.weight"].tolist())) == [12.0, 24.0]


def test_limits_hold_for_trees_and_networks():
    size = NETS.learner().size(1)
    falls = viewed("falls", step=0.1, steps=11)
    model = VARIANCE | {"k0.model": np.zeros(size)}
    assert asked_of(one_device(Policy()), NETS, [falls], model)[0] == ["steps"]
    device = one_device(Policy(numbers=3))
    for k, code in enumerate(["ok", "ok", "ok", "numbers"]):
        falls = viewed("falls", step=0.1 + k, steps=1)
        assert asked_of(device, NETS, [falls], model)[0] == [code]
    slopes = viewed("slopes", names=["a", "b"])
    models = VARIANCE | {"k0.models": np.zeros((2, size))}
    few = one_device(Policy(questions=1))
    assert asked_of(few, NETS, [slopes], models)[0] == ["questions"]
    shy = one_device(Policy(target=False))
    assert asked_of(shy, TREES, [viewed("own")], VARIANCE)[0] == ["target"]
    idle = one_device(Policy(work=1))
    assert asked_of(idle, TREES, [viewed("fit")], VARIANCE)[0] == ["work"]
    few_rows = one_device(Policy(rows=30))
    letters = Letters(None, NETS, run="run", home={}, deadline=1.0)
    head, _ = unpack(few_rows.reply("blend", letters.letter(0, 0, {"asks": []})))
    assert head["code"] == "rows"


@pytest.mark.parametrize("names", [["a", "a"], ["a", "b", "c"], [""] * 9])
def test_names_beside_a_question_do_not_make_numbers_fewer(names):
    """Told for two names, a bit was half a number in the ledger, and so none."""
    model = VARIANCE | {"k0.model": np.zeros(NETS.learner().size(1))}
    device = one_device(Policy(numbers=2))
    for k, code in enumerate(["ok", "ok", "numbers"]):
        falls = viewed("falls", step=0.1 + k, steps=1, names=names)
        assert asked_of(device, NETS, [falls], model)[0] == [code]
    assert device.ledger.counts("run", names[0]).numbers == 2


def test_work_side_by_side_fails_as_a_whole():
    def fails(ask):
        ask([1])
        raise WireError("no")

    with pytest.raises(WireError):
        side_by_side(
            [lambda ask: [ask([k]) for k in range(3)], fails], lambda asked: asked
        )
    with pytest.raises(ZeroDivisionError):
        side_by_side([lambda ask: ask([1])], lambda asked: [1 / 0])


def test_where_labels_have_no_noise_own_hidden_errors_bound_a_mix():
    """Two rows' share of what labels vary was a hundred thousand times the own error."""
    X = np.linspace(-1.0, 1.0, 20)[:, None]
    rows = Devices.of([(X, 2.0 * X[:, 0])], quiet=True)
    own = TargetRows(rows, Folding(), np.zeros(1, dtype=np.int64))
    alone = Alone(np.array([2.0]), 1e-6)
    for slope, worse in ((2.001, False), (2.2, True)):
        mix = [np.array([slope])] * (own.folding.count + 1)
        assert is_worse(Linear(), own, mix, alone) is worse
    # all labels alike by luck say nothing of how far the next one is
    same = Devices.of([(X[:3], np.full(3, 1.5))], quiet=True)
    own = TargetRows(same, Folding(), np.zeros(1, dtype=np.int64))
    learner = Linear(intercept=True)
    near = [np.array([0.0, 1.3])] * (own.folding.count + 1)
    assert not is_worse(learner, own, near, Alone(np.array([0.0, 1.5]), 0.0))


def test_a_mix_is_looked_at_where_own_rows_do_not_see_it():
    """With more columns than rows a model may fit all of them and say anything of others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 20))
    slopes = rng.normal(size=20)
    rows = Devices.of([(X, X @ slopes + rng.normal(size=12))], quiet=True)
    own = TargetRows(rows, Folding(), np.zeros(1, dtype=np.int64))
    folds = [slopes + 0.1 * rng.normal(size=20) for _ in range(own.folding.count)]
    alone = Alone(np.zeros(20), 20.0)
    for far, worse in ((0.0, False), (50.0, True)):
        mix = [slopes + far * np.linalg.svd(X)[2][-1], *folds]
        assert is_worse(Linear(), own, mix, alone) is worse
