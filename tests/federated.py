"""A federation inside the test process: real messages, the real ClientApp, no network."""

import numpy as np

from persfl import GradientStep, LoopFleet
from persfl.devices import Devices
from persfl.federation.blend_exchange import BlendScene
from persfl.federation.device_home import steps_on
from persfl.federation.letters import Letters
from persfl.federation.local_grid import LocalGrid
from persfl.federation.reply_inbox import Failed
from persfl.federation.row_stock import Deal, Lot, Stock
from persfl.federation.run_plan import RunPlan
from persfl.fleets.flower import Device, FlowerFleet, Ledger, Policy, Post, Rows

OPEN = Policy(rows=0, rows_per_leaf=0)


def names(n):
    return [f"d{i:02d}" for i in range(n)]


def columns(devices):
    return tuple(f"x{i}" for i in range(devices.features))


def at_home(devices, policy=OPEN, seed=5, **more):
    """A Device for each of these; rows are dealt as by a run in one process with this seed."""
    return {
        name: Device(
            name,
            Rows(columns(devices), devices[i]),
            policy=policy,
            lot=Lot(seed, i),
            **more,
        )
        for i, name in enumerate(names(len(devices)))
    }


def post(homes, tamper=None):
    grid = LocalGrid(homes, tamper)
    return Post(grid, {name.encode(): name for name in homes}, pause=0.001)


class Direct:
    """A post that hands letters to devices without a network; `tamper` may change a reply, or
    drop it (None).
    """

    def __init__(self, homes, tamper=lambda name, reply: reply):
        self.homes, self.tamper, self.messages = homes, tamper, 0

    def exchange(self, letters, deadline):
        self.messages += len(letters)
        found = {}
        for name, letter in letters.items():
            reply = self.tamper(name, self.homes[name].reply(*letter))
            found[name] = Failed("late") if reply is None else reply
        return found


def fleet(devices, terms, *, homes=None, tamper=None, **options):
    homes = homes if homes is not None else at_home(devices)
    options = {"deadline": 0.05, "patience": 0.0} | options
    return FlowerFleet(post(homes, tamper), terms, ids=names(len(devices)), **options)


def loop(devices, terms, **options):
    """The same devices in one process, under the same terms."""
    inside = Devices.of(
        [terms.inside(devices[i]) for i in range(len(devices))],
        ids=names(len(devices)),
        quiet=True,
    )
    return LoopFleet(
        inside,
        learner=terms.learner(),
        proposer=in_batches(inside, terms) if terms.batch else terms.proposer(),
        seed=terms.seed,
        local=terms.own_step(),
        start=terms.start,
        **options,
    )


def in_batches(devices, terms):
    """Steps on the batches that devices deal at home."""

    class Batches(GradientStep):
        def answer(self, learner, probe, data, place):
            who = next(
                i for i in range(len(devices)) if np.array_equal(devices[i].y, data.y)
            )
            rows, nothing = np.arange(data.rows), data.take(np.arange(0))
            deal = Deal(data, nothing, rows, np.zeros_like(rows), rows[:0])
            dealt = Stock(Ledger(), Lot(terms.seed, who), 1).batches(deal, self.batch)
            first = int(place.at("batch").uniform(1)[0] * len(dealt))
            return steps_on(
                self, learner, probe, [data.take(batch) for batch in dealt], first
            )

    return Batches(terms.step_size, terms.steps, terms.batch)


def same_rounds(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.peers, b.peers)
        np.testing.assert_allclose(a.losses, b.losses, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(a.lengths, b.lengths, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(a.choice.peers, b.choice.peers)


def plan(out, homes, **changes):
    """What `persfl federate` would ask for."""
    usual = {
        "members": {name: name for name in homes},
        "devices": tuple(sorted(homes)),
        "rounds": 6,
        "peers": 3,
        "deadline": 0.05,
        "patience": 0.0,
        "run": "r1",
    }
    path = out.parent / f"{out.name}.plan.json"
    RunPlan(out=str(out), **usual | changes).write(path)
    return path


def blend_site(
    kind, rows, terms, *, homes=None, tamper=lambda name, reply: reply, **more
):
    """The coordinator's site of a blend by sums over these devices, without a wire."""
    through = Direct(homes or at_home(rows), tamper)
    letters = Letters(through, terms, run="run", home={}, deadline=5.0)
    usual = {"targets": np.arange(len(rows)), "seed": 5, "patience": 0.0}
    return kind(letters, BlendScene(ids=names(len(rows)), **usual | more))
