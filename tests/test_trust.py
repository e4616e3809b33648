import pickle
import tracemalloc

import numpy as np
import pytest

from persfl import Choice, Trust, Uniform
from persfl.errors import InputError


def play(trust, rounds, seed=0, S=4, bad=0.1):
    """Made-up rounds; yields trust after each, and the same sums kept in a plain dict."""
    rng = np.random.default_rng(seed)
    plain = {}
    for r in range(rounds):
        peers = Uniform(S)(trust, r, 0)
        losses = rng.uniform(0, 1, (len(peers), S + 1))
        losses[:, 1:][rng.random(peers.shape) < bad] = np.inf
        weights = rng.dirichlet(np.ones(2), len(peers))
        choice = Choice(peers[:, :2], weights, np.zeros(len(peers)))
        trust = trust.updated(peers, losses, np.zeros(peers.shape), choice)
        for t, target in enumerate(trust.targets.tolist()):
            for s, peer in enumerate(peers[t].tolist()):
                known = plain.setdefault((target, peer), [0, 0, [], 0.0])
                known[0] += 1
                if np.isfinite(losses[t, s + 1]):
                    known[1] += 1
                    known[2].append(losses[t, 0] - losses[t, s + 1])
                if s < 2:
                    known[3] += weights[t, s]
        yield trust, plain


@pytest.mark.parametrize("queue", [1, 100, 10**6])
@pytest.mark.parametrize(("n", "targets"), [(10, [0, 3, 9]), (100_000, [5])])
def test_it_adds_up_like_a_plain_loop(n, targets, queue, monkeypatch):
    monkeypatch.setattr("persfl.trust._QUEUE", queue)
    *_, (trust, plain) = play(Trust(n, np.array(targets)), 50)
    table = trust.table()
    assert len(table) == len(plain)
    for row in table.itertuples():
        asked, answered, rewards, adopted = plain[row.target, row.peer]
        assert (row.asked, row.answered) == (asked, answered)
        assert np.isclose(row.adopted, adopted)
        if rewards:
            assert np.isclose(row.reward_mean, np.mean(rewards))
            assert np.isclose(row.reward_spread, np.std(rewards), atol=1e-6)
        else:
            assert np.isnan(row.reward_mean)


def test_neither_the_moment_of_folding_nor_numba_changes_a_bit(monkeypatch, uncompiled):
    tables = []
    for queue in (1, 37, 10**6, 37):
        if len(tables) == 3:
            uncompiled()
        monkeypatch.setattr("persfl.trust._QUEUE", queue)
        *_, (trust, _) = play(Trust(50, np.arange(20)), 40)
        tables.append(trust.table())
    assert all(table.equals(tables[0]) for table in tables[1:])


def test_sums_that_nobody_may_write_to_go_on():
    *_, (trust, _) = play(Trust(6, np.arange(6)), 4)
    saved = trust.to_arrays()
    for name in ("key", "asked", "answered", "reward", "reward_squared", "adopted"):
        saved[name].flags.writeable = False
    *_, (again, _) = play(Trust.from_arrays(saved), 4)
    *_, (usual, _) = play(trust, 4)
    assert again.table().equals(usual.table())


def test_it_is_a_value():
    blank = Trust(10, np.array([0]))
    states = [trust for trust, _ in play(blank, 5)]
    assert len(blank.table()) == 0
    assert [int(state.table()["asked"].sum()) for state in states] == [4, 8, 12, 16, 20]


def test_one_target_among_a_million_costs_only_whom_it_asked():
    trust = Trust(1_000_000, np.array([123]))
    sampler = Uniform(20)
    sampler(trust, 0, 0)  # whatever is loaded once
    tracemalloc.start()
    for r in range(50):
        peers = sampler(trust, r, 0)
        trust = trust.updated(
            peers,
            np.ones((1, 21)),
            np.ones((1, 20)),
            Choice(peers[:, :1], np.ones((1, 1)), np.zeros(1)),
        )
    assert len(trust.table()) <= 1000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000  # a single array with an entry per device would take 8 MB


def test_it_can_be_pickled_after_many_rounds_and_read_in_every_one():
    *_, (trust, _) = play(Trust(10, np.array([0])), 3000)
    assert pickle.loads(pickle.dumps(trust)).table().equals(trust.table())
    states = [state.table() for state, _ in play(Trust(10, np.array([0, 3])), 20)]
    *_, (unread, _) = play(Trust(10, np.array([0, 3])), 20)
    assert states[-1].equals(unread.table())


def test_overflowing_rewards_stay_with_their_peer():
    choice = Choice(np.array([[2]]), np.ones((1, 1)), np.zeros(1))
    trust = Trust(5, np.array([0])).updated(
        np.array([[1, 2]]), np.array([[1.0, 1e200, 0.5]]), np.zeros((1, 2)), choice
    )
    table = trust.table().set_index("peer")
    assert table.loc[2, "reward_mean"] == 0.5
    assert table.loc[1, "reward_mean"] < -1e199


@pytest.mark.parametrize("damage", ["drop", "length", "order", "range", "overflow"])
def test_damaged_arrays_are_refused(damage):
    *_, (trust, _) = play(Trust(10, np.array([0])), 5)
    arrays = trust.to_arrays()
    if damage == "drop":
        del arrays["asked"]
    elif damage == "length":
        arrays["asked"] = arrays["asked"][:-1]
    elif damage == "order":
        arrays["key"] = arrays["key"][::-1]
    # differences of neighbours are above 0 only because they overflow
    elif damage == "overflow":
        columns = set(arrays) - {"n", "targets"}
        arrays |= {name: arrays[name][:3] for name in columns}
        arrays["key"] = np.array([2**63 - 1, -(10**12), 5])
    else:
        arrays["key"] = arrays["key"] + 10
    with pytest.raises(InputError, match="saved trust"):
        Trust.from_arrays(arrays)


def test_a_device_that_there_is_not_is_refused_before_compiled_code_sees_it():
    one = np.array([[1.0]])
    for peers, chosen in (([[1]], [[10**8]]), ([[10**8]], [[1]]), ([[1], [0]], [[1]])):
        choice = Choice(np.array(chosen), one, np.zeros(1))
        trust = Trust(2, np.array([0])).updated(
            np.array(peers), np.array([[3.0, 1.0]]), one, choice
        )
        with pytest.raises(InputError, match="1 targets and 2 devices"):
            _ = trust.pairs


def test_rounds_in_which_nobody_was_asked_leave_the_same_bytes():
    nobody = np.full((2, 0), -1)
    choice = Choice(nobody, np.empty((2, 0)), np.ones(2))
    trust = Trust(2, np.arange(2)).updated(
        nobody, np.ones((2, 1)), np.ones((2, 1)), choice
    )
    kept = trust.to_arrays()
    again = Trust.from_arrays(kept).to_arrays()
    assert {k: v.dtype for k, v in kept.items()} == {
        k: v.dtype for k, v in again.items()
    }
