"""Everything that a protected device replies, whatever is asked: rows show through noise alone.

Noise is taken away here, and all that was to be noised with it: what still differs between two
tables would have gone past the mechanisms. The list of what replies hold is pinned, so that
whoever adds to it has to say here where it comes from.
"""

import numpy as np
import pytest

pytest.importorskip("flwr")

from persfl.federation.device import KINDS
from persfl.federation.node_folder import ChangingTable
from persfl.federation.privacy_settings import PrivacySettings
from persfl.federation.private_desk import PrivateDesk
from persfl.federation.private_messages import PrivateMessages
from persfl.federation.row_table import RowTable
from persfl.fleets.flower import Device
from persfl.methods.blend.questions import KINDS as QUESTIONS
from persfl.privacy import mechanisms
from persfl.wire import Terms, nested, pack, unpack

RANGES = {"a": [-4, 4], "ward=in": [0, 1], "ward=out": [0, 1]}
PRIVATE = PrivacySettings(epsilon=3.0, ranges=RANGES, label=(-9.0, 9.0))
LEVELS = {"ward": ("in", "out")}
HEADER = "a,ward,y\n"
FIRST = "0.5,in,1\n-1.5,out,0\n2,in,1\n"
# one table, and others with a row more, or fewer, that each is odd in its own way
TABLES = {
    "three rows": FIRST,
    "no row": "",
    "one row": "0.5,in,1\n",
    "a row more": FIRST + "1,out,0\n",
    "no number": FIRST + "x,out,0\n",
    "no label": FIRST + "1,out,\n",
    "a label that is no class": FIRST + "1,out,7.5\n",
    "an endless number": FIRST + "1e400,out,0\n",
    "a huge number": FIRST + "1e300,out,1e300\n",
    "an unknown level": FIRST + "1,attic,0\n",
    "too many cells": FIRST + "1,out,0,5\n",
    "too few cells": FIRST + "1\n",
    "a lone quotation mark": '"1,out,0\n' + FIRST,
    "no text": FIRST + "\udcff,\udcfe,0\n",
}
COLUMNS = ("a", "ward=in", "ward=out")
MODELS = {
    "linear": Terms(columns=COLUMNS, settings={"intercept": True}),
    "logistic": Terms(columns=COLUMNS, classes=2),
    "poisson": Terms(columns=COLUMNS, settings={"loss": "poisson"}),
    "tree": Terms(model="tree", columns=COLUMNS, settings={"max_depth": 2}),
    "classes": Terms(model="forest", columns=COLUMNS, classes=2, settings={"max_depth": 1}),
    "boosting": Terms(model="boosting", columns=COLUMNS),
    "other columns": Terms(columns=("a", "zz")),
    "public points": Terms(model="tree", columns=COLUMNS, public=np.zeros((2, 3))),
}  # fmt: skip
# What replies hold, and where it comes from.
HEADS = {
    "code": "public: a limit, the budget, or what is asked; never rows",
    "codes": "the same, question by question",
    "device": "its name",
    "run": "asked",
    "round": "asked",
    "ask": "asked",
    "kind": "asked",
    "seconds": "0",
    "rows": "the owner's public number",
    "new": "0",
    "after": "the round that others' words have led to",
    "columns": "the table's first line",
    "target": "the owner's setting",
    "protocol": "the program",
    "version": "the program",
    "privacy": "the owner's settings, and how much is spent",
}
ARRAYS = {
    "weight": "sums or units",
    "sums": "sums or units",
    "squares": "sums or units",
    "noise": "the owner's settings",
    "binary": "0",
    "seen": "the count beside a gradient, or of sums",
    "p.vector": "gradient or sums",
    "step.vector": "gradient or sums",
    "probe.vector": "others' words",
    "own": "losses or sums",
    "losses": "losses or sums",
    "lengths": "others' words",
    "k.leaves": "leaves",
    **{f"k.{name}": "sums" for name in ("square", "product", "label", "weight")},
}
PAID = {"sums", "units", "gradient", "losses", "leaves"}


def rows_of(tmp_path, name):
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + TABLES[name], errors="surrogateescape")
    return ChangingTable(RowTable(data=str(path), label="y"), LEVELS, apart=True)


def questions(terms):
    """(kind, head, arrays) of everything that can be asked under some terms."""
    size = 4 if terms.model == "linear" else 0
    vector = {"vector": np.linspace(-1, 1, size)}
    asked = {"targets": np.array([0])} | nested("q0", vector)
    yield "describe", {}, {}
    yield "describe", {"sums": True}, {}
    yield "describe", {"sums": True}, {"about": np.ones(4)}
    yield "answer", {"names": ["a"]}, asked
    yield "score", {"count": 1, "step": True, "adoptions": []}, nested("p0", vector)
    yield "score", {"count": 0, "judge": True, "adoptions": []}, {}
    yield "adopt", {"probe": True, "adoptions": []}, {}
    for what in QUESTIONS:
        yield "blend", {"asks": [{"what": what, "ordered": False}]}, {}
    for numbers in (4, 2 * 8 * 4, 2 * 8 * 2):  # as linear models and trees take them
        given = nested("k0", {"model": np.ones(numbers)})
        yield "blend", {"asks": [{"what": "take"}]}, given
    yield "", {}, {}


class Asked:
    """All replies to everything there is: of a fresh device under each model, and of one that
    spends its budget on all of them. `told` is by what was asked, `paid` what was paid for.
    """

    def __init__(self, tmp_path, name):
        self.told = {}
        self.paid = set()
        self.source = rows_of(tmp_path, name)
        spent = self.device()
        for model, terms in MODELS.items():
            for which, device in (("fresh", self.device()), ("spent", spent)):
                self.ask(which, device, model, terms)

    def device(self):
        return Device("d", self.source, privacy=PRIVATE)

    def ask(self, which, device, model, terms):
        told, more = terms.to_wire()
        for k, (kind, head, arrays) in enumerate(questions(terms)):
            where = {"run": model, "round": 0, "ask": 7, "me": 0}
            body = pack(where | told | head, more | arrays)
            self.told[which, model, kind, k] = device.reply(kind, body)
        self.paid |= {line["kind"] for line in device.ledger.protected.table()}


@pytest.fixture
def without_noise(monkeypatch):
    """Whatever rows add up to, nothing is told of it."""

    def nothing(total, deviation, step, source):
        return np.zeros(total.shape)

    monkeypatch.setattr(mechanisms, "noised", nothing)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """What a table of three rows replies when nothing of rows is told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mechanisms, "noised", lambda total, *_: np.zeros(total.shape))
        return Asked(tmp_path_factory.mktemp("usual"), "three rows")


@pytest.mark.parametrize("name", [name for name in TABLES if name != "three rows"])
def test_rows_show_through_noise_alone(tmp_path, without_noise, usual, name):
    told = Asked(tmp_path, name).told
    assert [asked for asked in told if told[asked] != usual.told[asked]] == []


def test_every_reply_is_accounted_for(usual):
    """A reply that holds something new fails here, until it is said above where that is from."""
    home = Device("d", lambda _: None, privacy=PRIVATE)
    desk = PrivateMessages(PrivateDesk(home, PRIVATE), print)
    assert set(desk.kinds()) == set(KINDS)
    assert set(KINDS) == {kind for kind, _, _ in questions(MODELS["linear"])} - {""}
    heads, arrays = set(), set()
    for reply in usual.told.values():
        head, out = unpack(reply)
        heads |= set(head)
        arrays |= {name.replace("p0.", "p.").replace("k0.", "k.") for name in out}
    assert heads == set(HEADS)
    assert arrays == set(ARRAYS)
    assert usual.paid == PAID
