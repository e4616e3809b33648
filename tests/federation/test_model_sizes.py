"""One device's trees that are far larger than anybody's end no run."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from federated import at_home, plan

from persfl.federation import letters, model_sizes
from persfl.federation.conduct import conduct
from persfl.federation.local_grid import LocalGrid
from persfl.runs import load_model
from persfl.sources import clustered_regression
from persfl.wire import pack, unpack

DEVICES = clustered_regression(n=4, clusters=1, rows=20, features=2, noise=0.2, seed=4)
ROOM = 100_000  # bytes of a message


def bushy(nodes):
    """A sound tree of many nodes that says the same everywhere."""
    i = np.arange(nodes)
    inner = 2 * i + 2 < nodes
    return {
        "feature": np.where(inner, 0, -1),
        "threshold": np.zeros(nodes),
        "left": np.where(inner, 2 * i + 1, -1),
        "right": np.where(inner, 2 * i + 2, -1),
        "value": np.full((nodes, 1), 0.5),
    }


class Padding:
    """A device whose first trees fill a message nearly alone."""

    def __init__(self, inner):
        self.inner = inner
        self.padded = 0

    def reply(self, kind, body):
        head, arrays = unpack(self.inner.reply(kind, body))
        # what it answers as a peer: the model of a target stays with the coordinator
        which = [name[:-5] for name in arrays if name.endswith("nodes")]
        for first in [name for name in which if ".model." not in name][:1]:
            sizes = arrays[f"{first}nodes"]
            for name, part in bushy(2_451).items():
                rest = arrays[first + name][sizes[0] :]
                part = part.reshape(-1, *rest.shape[1:]).astype(rest.dtype)
                arrays[first + name] = np.concatenate([part, rest])
            arrays[f"{first}nodes"] = np.array([2_451, *sizes[1:]])
            self.padded += 1
        return pack(head, arrays)


@pytest.mark.parametrize("method", ["paper", "blend"])
def test_one_large_model_ends_no_run(method, tmp_path, monkeypatch):
    """With others' answers it was more than a message holds, and the run stopped for all."""
    monkeypatch.setattr(letters, "LARGEST", ROOM)
    monkeypatch.setattr(model_sizes, "LARGEST", ROOM)
    homes = at_home(DEVICES)
    homes["d03"] = Padding(homes["d03"])
    settings = {"n_estimators": 1, "max_depth": 20}
    asked = {"method": method, "model": "forest", "settings": settings, "points": 20}
    asked |= {"rounds": 1, "budget": 160, "holdout": 0.0, "deadline": 5.0}
    out = tmp_path / "run"
    conduct(LocalGrid(homes), plan(out, homes, **asked))
    assert homes["d03"].padded
    found = load_model(out)
    assert all(found.models_[i] is not None for i in range(3))
