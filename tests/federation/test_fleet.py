"""Federated rounds in one process: equal to LoopFleet's, whatever peers do."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr")

from federated import OPEN, at_home, columns, fleet, loop, names, post, same_rounds
from flwr.app import ConfigRecord, Message, RecordDict

from persfl import ArrayFleet, Best, Devices, TopK, Uniform, kin, personalize
from persfl.errors import Diverged, NotReady
from persfl.federation.fleet import Away
from persfl.federation.row_stock import Lot
from persfl.fleets import Guarded, LoopFleet
from persfl.fleets.flower import Device, Ledger, Policy, Rows, Shelf
from persfl.sources import clustered_regression
from persfl.testing import check_fleet
from persfl.wire import Terms, pack, unpack

DEVICES = clustered_regression(
    n=8, clusters=2, rows=(6, 12), features=3, noise=0.1, seed=1
)
PUBLIC = np.random.default_rng(0).standard_normal((20, 3))
LINEAR = Terms(columns=columns(DEVICES), step_size=0.05, seed=5)
CLASSES = Devices.of(
    [(d.X, np.digitize(d.X @ [1.0, -1.0, 0.5], [-0.7, 0.7]) + 0.0) for d in DEVICES],
    quiet=True,
)


def run(made, rounds=5, adopter=None, peers=4, **more):
    return list(
        personalize(
            made,
            sampler=Uniform(peers),
            adopter=adopter or Best(),
            rounds=rounds,
            seed=9,
            **more,
        )
    )


def terms(**changes):
    return Terms(**{"columns": columns(DEVICES), "seed": 5} | changes)


FAMILIES = {
    "linear": (DEVICES, LINEAR),
    "huber, minibatches": (
        DEVICES,
        terms(settings={"loss": "huber", "delta": 0.5}, steps=3, batch=4),
    ),
    "linear by refits": (DEVICES, terms(public=PUBLIC, step_size=1.0)),
    "own units": (
        DEVICES,
        terms(mean=np.ones(3), scale=np.full(3, 2.0), label_mean=0.5, label_scale=3.0),
    ),
    "own step": (DEVICES, terms(local=0.02)),
    "tree": (DEVICES, terms(model="tree", public=PUBLIC, step_size=1.0)),
    "ridge": (DEVICES, terms(model="ridge", public=PUBLIC, settings={"alpha": 0.1})),
    "forest": (
        DEVICES,
        terms(
            model="forest", public=PUBLIC, settings={"n_estimators": 4, "max_depth": 3}
        ),
    ),
    "boosting": (
        DEVICES,
        terms(model="boosting", public=PUBLIC, settings={"n_estimators": 4}),
    ),
    "multinomial": (CLASSES, terms(classes=3, step_size=0.5)),
    "tree classes": (CLASSES, terms(model="tree", classes=3, public=PUBLIC, soft=True)),
    "forest classes": (
        CLASSES,
        terms(
            model="forest",
            classes=3,
            public=PUBLIC,
            soft=True,
            settings={"n_estimators": 3},
        ),
    ),
    "boosting classes": (
        CLASSES,
        terms(model="boosting", classes=3, public=PUBLIC, settings={"n_estimators": 3}),
    ),
}


@pytest.mark.smoke
@pytest.mark.parametrize("family", FAMILIES)
def test_rounds_are_those_of_one_process(family):
    devices, asked = FAMILIES[family]
    same_rounds(run(fleet(devices, asked), 4), run(loop(devices, asked), 4))


@pytest.mark.parametrize("classes", [0, 3])
def test_refits_of_networks_by_proximal_steps(classes):
    pytest.importorskip("torch")
    devices = CLASSES if classes else DEVICES
    public = np.random.default_rng(0).standard_normal((7, devices.features))
    asked = terms(
        model="mlp",
        classes=classes,
        settings={"hidden": [4], "dtype": "float64"},
        public=public,
        step_size=1.0,
    )
    ours, theirs = fleet(devices, asked), loop(devices, asked)
    same_rounds(
        *(
            personalize(one, sampler=Uniform(3), adopter=Best(), rounds=4, seed=2)
            for one in (ours, theirs)
        )
    )


def test_a_network_as_wide_as_somebody_wishes_is_refused():
    pytest.importorskip("torch")
    home = at_home(DEVICES)["d00"]
    wide = terms(model="mlp", settings={"hidden": [10**9]})
    head, arrays = wide.to_wire()
    asked = {"run": "r", "round": 0, "ask": 1, "me": 0, "probe": True} | head
    assert unpack(home.reply("adopt", pack(asked, arrays)))[0]["code"] in (
        "failed",
        "format",
    )


@pytest.mark.parametrize("norm", [False, True])
def test_networks_by_name(norm):
    pytest.importorskip("torch")
    asked = terms(
        model="network",
        classes=3,
        step_size=0.1,
        settings={"make": f"federated_modules:{'normed' if norm else 'small'}"},
    )
    homes = at_home(CLASSES, replace(OPEN, networks=(asked.settings["make"],)))
    ours = run(fleet(CLASSES, asked, homes=homes), 3)
    for a, b in zip(ours, run(loop(CLASSES, asked), 3), strict=True):
        np.testing.assert_allclose(a.losses, b.losses, rtol=1e-5)
    # an owner who has not named the module in the policy gets no code run
    with pytest.raises(Away):
        run(fleet(CLASSES, asked), 1)


@pytest.mark.parametrize("guard", [False, True])
def test_kin_over_flower(guard):
    """Remembered steps live with the coordinator; a target tells its own with its scores."""
    devices = clustered_regression(
        n=10, clusters=2, rows=12, features=3, noise=0.1, seed=4
    )
    asked = terms(step_size=0.05, settings={"intercept": False})
    rule = kin(4)
    ours, theirs = fleet(devices, asked), loop(devices, asked)
    wrapped = [
        Guarded(one, reach=1e9, growth=1e9) if guard else one for one in (ours, theirs)
    ]
    same_rounds(
        *(
            personalize(
                one, sampler=rule.sampler, adopter=rule.adopter, rounds=40, seed=1
            )
            for one in wrapped
        )
    )
    np.testing.assert_allclose(ours.models, np.stack(theirs.models), atol=1e-9)
    assert ours.kept is not None


def test_kin_over_flower_goes_on_exactly():
    asked, rule = terms(step_size=0.05), kin(3)
    parts = {"sampler": rule.sampler, "adopter": rule.adopter, "rounds": 20, "seed": 1}
    homes = at_home(DEVICES)
    whole = fleet(DEVICES, asked)
    list(personalize(whole, **parts))
    first = fleet(DEVICES, asked, homes=homes)
    for round_ in personalize(first, **parts):
        if round_.r == 11:
            break
    again = fleet(DEVICES, asked, homes=homes, state=first.state())
    again.kept = first.kept
    list(personalize(again, **parts, trust=round_.trust, first=12))
    np.testing.assert_array_equal(again.models, whole.models)


def test_the_contract_of_fleets():
    def make(devices, **parts):
        asked = terms(step_size=0.05)
        return fleet(devices, asked, homes=at_home(devices), start=parts.get("start"))

    check_fleet(
        make,
        learner=LINEAR.learner(),
        proposer=LINEAR.proposer(),
        adopter=TopK(3),
        rounds=8,
    )


def test_peers_are_those_of_an_array_fleet():
    array = ArrayFleet(
        DEVICES, learner=LINEAR.learner(), proposer=LINEAR.proposer(), seed=5
    )
    for a, b in zip(run(fleet(DEVICES, LINEAR)), run(array), strict=True):
        np.testing.assert_array_equal(a.peers, b.peers)
        np.testing.assert_array_equal(a.choice.peers, b.choice.peers)


def test_a_round_has_as_many_messages_as_devices():
    made = fleet(DEVICES, LINEAR)
    run(made, 1)
    before = made.post.messages
    rounds = run(made, 3, first=1)
    asked = sum(len(np.unique(round_.peers)) for round_ in rounds)
    assert made.post.messages - before == asked + 2 * len(DEVICES)


def test_target_at_home():
    """Only probes go out: the target is a device of this process, and nobody else is asked to
    score.
    """
    homes = at_home(DEVICES)
    home = {"d00": homes.pop("d00")}
    kinds = []

    def watch(name, reply):
        kinds.append(unpack(reply.content.config_records["persfl"]["body"])[0]["kind"])
        return reply

    made = fleet(DEVICES, LINEAR, homes=homes, tamper=watch, home=home)
    same_rounds(run(made), run(loop(DEVICES, LINEAR, targets=["d00"])))
    assert set(kinds) == {"answer"}


def test_rows_that_keep_arriving():
    """Devices whose rows grow between rounds: equal to a stream in one process, and each says
    how many are new.
    """

    def upto(i, r):
        return DEVICES[i].take(np.arange(3 + r))

    homes = {
        name: Device(
            name,
            lambda r, i=i: Rows(columns(DEVICES), upto(i, r)),
            policy=OPEN,
            lot=Lot(5, i),
        )
        for i, name in enumerate(names(len(DEVICES)))
    }

    class Source:
        ids = names(len(DEVICES))

        def __call__(self, r):
            return [upto(i, r) for i in range(len(DEVICES))]

    reference = LoopFleet(
        Source(), learner=LINEAR.learner(), proposer=LINEAR.proposer(), seed=5
    )
    made = fleet(DEVICES, LINEAR, homes=homes, need=1, quorum=1.0)
    ours = []
    for round_ in personalize(
        made, sampler=Uniform(4), adopter=Best(), rounds=3, seed=9
    ):
        ours.append(round_)
        assert made.rows["d00"] == 3 + round_.r
        # every device had one new row
        assert round_.r == 0 or set(made.new.values()) == {1}
        made.new.clear()
    same_rounds(ours, run(reference, 3))
    with pytest.raises(NotReady, match="needs 5 new rows"):
        run(fleet(DEVICES, LINEAR, homes=homes, need=5, quorum=1.0), 1)


# What peers may do


def changed(reply, change):
    """The same reply with its body changed."""
    head, arrays = unpack(reply.content.config_records["persfl"]["body"])
    head, arrays = change(dict(head), dict(arrays))
    body = head if isinstance(head, bytes) else pack(head, arrays)
    made = RecordDict({"persfl": ConfigRecord({"body": body})})
    reply.content = made
    return reply


def vectors(value):
    return lambda head, arrays: (
        head,
        {k: value(v) if k.startswith("p") else v for k, v in arrays.items()},
    )


FAULTS = {
    "NaN": ("format", vectors(lambda v: v * np.nan)),
    "infinite": ("format", vectors(lambda v: v + np.inf)),
    "huge": ("format", vectors(lambda v: v + 1e200)),
    "wrong shape": ("format", vectors(lambda v: np.append(v, 1.0))),
    "wrong kind": ("format", vectors(lambda v: v.astype(np.float32))),
    "another round": (
        "stale",
        lambda head, arrays: (head | {"round": head["round"] + 1}, arrays),
    ),
    "another run": ("stale", lambda head, arrays: (head | {"run": "other"}, arrays)),
    "another device": (
        "stale",
        lambda head, arrays: (head | {"device": "d01"}, arrays),
    ),
    "another question": (
        "stale",
        lambda head, arrays: (head | {"ask": head["ask"] - 1}, arrays),
    ),
    "junk": ("format", lambda head, arrays: (b"junk" * 10, arrays)),
    "nothing": ("format", lambda head, arrays: (head, {})),
    "too few": ("format", lambda head, arrays: (head | {"codes": []}, arrays)),
    "refusal": ("refused", lambda head, arrays: (head | {"code": "rows"}, arrays)),
    "failure": ("failed", lambda head, arrays: (head | {"code": "failed"}, arrays)),
    "odd code": (
        "failed",
        lambda head, arrays: (head | {"code": {"x": ["private"]}}, arrays),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_answer_costs_that_peer_its_answer(fault):
    way, change = FAULTS[fault]

    def tamper(name, reply):
        bad = (
            name == "d03"
            and unpack(reply.content.config_records["persfl"]["body"])[0]["kind"]
            == "answer"
        )
        return changed(reply, change) if bad else reply

    made = fleet(DEVICES, LINEAR, tamper=tamper)
    rounds = run(made, 12)
    counts = made.roster.counts["d03"]
    assert counts[way] > 0
    assert counts["answered"] == 0
    assert counts["rested"] > 0  # it keeps failing, so it is asked less
    assert (
        made.roster.counts["d04"]["answered"]
        == made.roster.counts["d04"]["asked"]
        > counts["asked"]
    )
    assert all(
        not np.isfinite(round_.losses[:, 1:][round_.peers == 3]).any()
        for round_ in rounds
    )
    assert rounds[-1].loss.mean() < 0.7 * rounds[0].loss.mean()
    assert all((round_.choice.peers != 3).all() for round_ in rounds)


def test_replays_are_stale():
    old = {}

    def tamper(name, reply):
        if name != "d03":
            return reply
        body = reply.content.config_records["persfl"]["body"]
        kind = unpack(body)[0]["kind"]
        if kind == "answer":
            reply.content = RecordDict(
                {"persfl": ConfigRecord({"body": old.setdefault(kind, body)})}
            )
        return reply

    made = fleet(DEVICES, LINEAR, tamper=tamper)
    run(made, 6)
    assert made.roster.counts["d03"]["stale"] > 0
    assert made.roster.counts["d03"]["answered"] <= 8  # the first, honest one


def test_late_and_gone():
    made = fleet(
        DEVICES, LINEAR, tamper=lambda name, reply: None if name == "d02" else reply
    )
    rounds = run(made, 6)
    assert made.roster.counts["d02"]["late"] > 0
    assert np.isinf(rounds[-1].losses[2]).all()  # as a target it never scored
    assert rounds[-1].choice.stay[2] == 1


def test_errors_of_a_peer_are_codes():
    secret = "patient 4711 is ill"

    def rows(r):
        raise ValueError(f"could not convert string to float: {secret!r}")

    said = []
    homes = at_home(DEVICES) | {
        "d03": Device("d03", rows, policy=OPEN, log=said.append)
    }
    seen = []

    def watch(name, reply):
        seen.append(
            repr(reply.content) + str(reply.content.config_records["persfl"]["body"])
        )
        return reply

    made = fleet(DEVICES, LINEAR, homes=homes, tamper=watch)
    run(made, 3)
    assert made.roster.counts["d03"]["failed"] > 0
    assert secret in said[0]
    assert not any("4711" in text for text in seen)
    assert "4711" not in str(made.state()) + str(made.roster.table())


def test_errors_of_flower_are_never_read():
    from flwr.app import Error

    def tamper(name, reply):
        if name != "d03":
            return reply
        return Message(Error(code=2, reason="patient 4711"), reply_to=_asked(reply))

    made = fleet(DEVICES, LINEAR, tamper=tamper)
    run(made, 3)
    assert made.roster.counts["d03"]["failed"] > 0
    assert "4711" not in str(made.state())


def _asked(reply):
    made = Message(RecordDict({}), reply.metadata.src_node_id, "query.answer")
    made.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return made


def test_peers_come_and_go():
    made = fleet(DEVICES, LINEAR)
    grid = made.post.grid
    rounds = []
    for round_ in personalize(
        made, sampler=Uniform(4), adopter=Best(), rounds=12, seed=9
    ):
        rounds.append(round_)
        grid.away = {"d01", "d02"} if 2 <= round_.r < 6 else set()
    assert made.roster.counts["d01"]["gone"] > 0
    assert np.isfinite(rounds[-1].losses[1:3]).any()
    assert rounds[-1].loss[1] < rounds[0].loss[1]
    kept = [made.post.grid.devices[name].shelf.get("run") for name in names(8)]
    made.finish()
    # everybody has, at home, the model that was seen here
    for i, name in enumerate(names(8)):
        np.testing.assert_array_equal(
            made.post.grid.devices[name].shelf.get("run").model, made.models[i]
        )
    assert kept[1].round >= 10


def test_all_gone_stops_cleanly_and_goes_on():
    made = fleet(DEVICES, LINEAR)
    grid, done = made.post.grid, []
    rounds = personalize(made, sampler=Uniform(4), adopter=Best(), rounds=6, seed=9)
    done += [next(rounds), next(rounds), next(rounds)]
    kept, trust = made.state(), done[-1].trust
    grid.away = set(names(8))
    with pytest.raises(Away, match="go on when they are back"):
        next(rounds)
    grid.away = set()
    again = fleet(DEVICES, LINEAR, homes=grid.devices, state=kept)
    done += run(again, 6, first=3, trust=trust)
    same_rounds(done, run(loop(DEVICES, LINEAR), 6))


@pytest.mark.parametrize("family", ["linear", "tree", "forest", "own step"])
def test_cut_anywhere_and_resumed(family):
    """The coordinator dies after any round, before or after its targets have adopted: the same
    result to the last bit.
    """
    devices, asked = FAMILIES[family]
    whole = fleet(devices, asked)
    rounds = run(whole, 5)
    for cut in (1, 4) if family == "forest" else (1, 2, 4):
        for further in (False, True):
            homes = at_home(devices)
            begun = fleet(devices, asked, homes=homes)
            half = run(begun, cut)
            kept = begun.state()
            if further:  # it went on a little without keeping that
                begun.probe(rounds[cut].peers, cut)
            again = fleet(devices, asked, homes=homes, state=kept)
            rest = run(again, 5, first=cut, trust=half[-1].trust)
            for a, b in zip(half + rest, rounds, strict=True):
                np.testing.assert_array_equal(a.losses, b.losses)


def test_a_device_that_lost_its_model_gets_it_back():
    homes = at_home(DEVICES)
    made = fleet(DEVICES, LINEAR, homes=homes)
    for round_ in personalize(
        made, sampler=Uniform(4), adopter=Best(), rounds=6, seed=9
    ):
        if round_.r == 2:
            homes["d04"].shelf = Shelf()
    assert made.roster.counts["d04"]["failed"] == 1  # once, then it was told
    assert np.isfinite(round_.losses[4]).all()
    made.finish()
    np.testing.assert_array_equal(homes["d04"].shelf.get("run").model, made.models[4])


# The owner decides


def test_policy_limits_are_kept_and_counted():
    limited = {
        name: Device(
            name,
            Rows(columns(DEVICES), DEVICES[i]),
            policy=replace(OPEN, questions_per_target=2, questions=9),
        )
        for i, name in enumerate(names(8))
    }
    made = fleet(DEVICES, LINEAR, homes=limited)
    rounds = run(made, 40)
    # nobody answers any more: everybody keeps the model it has
    assert (rounds[-1].choice.stay == 1).all()
    for name, device in limited.items():
        askers = [entry for entry in device.ledger.table() if entry["kind"] == "answer"]
        assert all(entry["answered"] <= 2 for entry in askers)
        assert sum(entry["answered"] for entry in askers) <= 9
        assert made.roster.counts[name]["refused"] > 0


@pytest.mark.parametrize(
    ("policy", "asked", "code"),
    [
        (replace(OPEN, models=("tree",)), LINEAR, "models"),
        (Policy(rows=100), LINEAR, "rows"),
        (replace(OPEN, steps=2), terms(steps=3), "steps"),
        (
            replace(OPEN, trees=5),
            terms(model="forest", public=PUBLIC, settings={"n_estimators": 6}),
            "trees",
        ),
        (OPEN, terms(model="network", settings={"make": "os:getcwd"}), "models"),
    ],
)
def test_refusals_are_polite(policy, asked, code):
    device = at_home(DEVICES, policy)["d00"]
    head, arrays = asked.to_wire()
    for kind in ("answer", "score"):
        more = {"names": ["ann"], "count": 0, "run": "r", "round": 0, "ask": 1, "me": 0}
        told, out = unpack(
            device.reply(kind, pack(more | head, arrays | {"targets": np.array([1])}))
        )
        assert told["code"] == code
        assert out == {}
    assert {entry["code"] for entry in device.ledger.refusals()} == {code}


def test_a_device_may_be_a_peer_only():
    homes = at_home(DEVICES) | {
        "d05": at_home(DEVICES, replace(OPEN, target=False))["d05"]
    }
    made = fleet(DEVICES, LINEAR, homes=homes)
    rounds = run(made, 3)
    assert made.roster.counts["d05"]["refused"] > 0
    assert np.isfinite(
        np.concatenate([round_.losses[:, 1:][round_.peers == 5] for round_ in rounds])
    ).any()


def test_the_ledger_is_written_before_an_answer_leaves(tmp_path):
    class Full(Ledger):
        def write(self, entries, policy=None):
            if any(entry.kind == "answer" for entry in entries):
                raise OSError("disk full")
            super().write(entries, policy)

    device = Device(
        "d00",
        Rows(columns(DEVICES), DEVICES[0]),
        policy=OPEN,
        ledger=Full(tmp_path / "ledger"),
    )
    head, arrays = LINEAR.to_wire()
    asked = pack(
        {"names": ["ann"], "run": "r", "round": 0, "ask": 1, "me": 0} | head,
        arrays | {"targets": np.array([1]), "q0.vector": np.zeros(4)},
    )
    told, out = unpack(device.reply("answer", asked))
    assert told["code"] == "failed"
    assert out == {}


def test_the_same_question_again_does_not_count_again():
    device = at_home(DEVICES, replace(OPEN, questions_per_target=1))["d00"]
    head, arrays = LINEAR.to_wire()

    def ask(vector, ask=1):
        body = pack(
            {"names": ["ann"], "run": "r", "round": 0, "ask": ask, "me": 0} | head,
            arrays | {"targets": np.array([1]), "q0.vector": vector},
        )
        return unpack(device.reply("answer", body))[0]["codes"]

    assert ask(np.zeros(4)) == ask(np.zeros(4), ask=2) == ["ok"]
    assert ask(np.ones(4)) == ["questions_per_target"]
    assert device.ledger.counts("r", "ann")[:3] == (1, 1, 1)


def test_a_node_may_not_take_anothers_name():
    """Where a federation knows its keys, a node is who its key says; a claim in a message does
    not help.
    """
    homes = at_home(DEVICES)
    homes["d07"].name = "d00"
    made = fleet(DEVICES, LINEAR, homes=homes)
    run(made, 3)
    assert made.roster.counts["d07"]["stale"] > 0
    assert made.roster.counts["d00"]["answered"] == made.roster.counts["d00"]["asked"]


def test_nodes_without_known_keys_are_asked_who_they_are():
    sent = post(at_home(DEVICES))
    sent.names = None
    assert sorted(sent.members()) == names(8)
    sent.grid.devices["d07"].name = "d00"
    sent._told.clear()
    assert sorted(sent.members()) == names(7)
    assert sent.doubled == {"d00"}


# The guard


def test_the_guard_holds_against_liars_where_the_rule_alone_does_not():
    devices = clustered_regression(
        n=20, clusters=2, rows=20, features=5, noise=0.1, seed=3
    )
    asked = Terms(columns=columns(devices), step_size=0.05, seed=5)
    bad = set(names(20)[4:])

    def lie(head, arrays):
        rng = np.random.default_rng(head["round"])
        return head, {
            k: v + 30 * rng.standard_normal(v.shape) if k.startswith("p") else v
            for k, v in arrays.items()
        }

    def tamper(name, reply):
        kind = unpack(reply.content.config_records["persfl"]["body"])[0]["kind"]
        return changed(reply, lie) if name in bad and kind == "answer" else reply

    final = {}
    for guard in (False, True):
        made = fleet(devices, asked, tamper=tamper, targets=names(20)[:4])
        used = Guarded(made) if guard else made
        final[guard] = run(used, 25)[-1].loss.max()
        if guard:
            assert {names(20)[jump.peer] for jump in used.jumps} <= bad
            assert {jump.why for jump in used.jumps} <= {"loss", "length"}
    assert final[True] < 0.3 * final[False]


def test_the_guard_costs_nothing_among_the_honest():
    plain, guarded = (
        run(fleet(DEVICES, LINEAR)),
        run(Guarded(fleet(DEVICES, LINEAR), growth=1e6, reach=1e6)),
    )
    same_rounds(plain, guarded)


def test_diverging_runs_stop():
    with pytest.raises(Diverged, match="step_size"):
        run(fleet(DEVICES, terms(step_size=1e4)), 40)


def test_handing_over_data_that_does_not_fit():
    homes = at_home(DEVICES) | {
        "d03": Device("d03", Rows(["x0", "other", "x2"], DEVICES[3]), policy=OPEN)
    }
    made = fleet(DEVICES, LINEAR, homes=homes)
    run(made, 3)
    assert made.roster.counts["d03"]["failed"] > 0


def test_one_target_without_losses_ends_no_run():
    """Once others have stopped asking, as with kin, its losses were all that was told."""
    some = Devices.of([DEVICES[i] for i in range(4)], quiet=True)
    homes = at_home(some)
    reply = homes["d03"].reply

    def lying(kind, body):
        head, arrays = unpack(reply(kind, body))
        lost = {key: array * np.nan for key, array in arrays.items()}
        return pack(head, lost if kind == "score" else arrays)

    homes["d03"].reply = lying
    made = fleet(some, LINEAR, homes=homes)
    made.observe(0)
    peers = np.full((4, 2), -1)
    peers[3] = 1, 2
    for r in range(6):
        assert not np.isfinite(made.probe(peers, r).losses[3, 1:]).any()
    peers = np.array([[3], [3], [3], [1]])
    junk = homes["d03"].reply

    def worse(kind, body):
        head, arrays = unpack(junk(kind, body))
        lost = {key: array * np.nan for key, array in arrays.items()}
        return pack(head, lost if kind == "answer" else arrays)

    homes["d03"].reply = worse
    for r in range(6, 12):
        made.probe(peers, r)
