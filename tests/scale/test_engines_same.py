"""Every engine makes the models of one process, whatever the method: real processes, a real local
Dask and a real local Ray.
"""

from __future__ import annotations

import pandas as pd
import pytest
from shard_tables import COLUMNS, fleet, models_of, sharded

from persfl.methods import Blend, Ditto, Kin, Method, Mixed, Paper
from persfl.scale.executor import InThisProcess
from persfl.scale.local_processes import LocalProcesses
from persfl.scale.sharded_fit import ShardedFit, fit_shards

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.slow,
    # processes that other packages leave to their end
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]
METHODS = [
    Blend(panel=10, trees=False),
    Paper(rounds=2, peers=4),
    Mixed(),
    Kin(rounds=6, peers=4),
    Ditto(rounds=2),
]
# Dask and Ray take seconds to begin a worker. They carry the same questions whatever the method:
# one that asks for sums once, and one that asks in rounds, with a trial.
CARRIED = METHODS[:2]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """The shards of a table, and the models of each method in this process."""
    place = tmp_path_factory.mktemp("here")
    index = sharded(fleet(16), place, 3)
    runs = [
        fit_shards(index, place / str(k), asked_of(one), InThisProcess())
        for k, one in enumerate(METHODS)
    ]
    return index, [models_of(run) for run in runs]


def asked_of(method: Method) -> ShardedFit:
    """One of them with a trial, which takes as long as the run itself."""
    return ShardedFit(COLUMNS, method, holdout=0.25 * isinstance(method, Paper))


@pytest.mark.parametrize(
    ("name", "methods"),
    [("processes", METHODS), ("dask", CARRIED), ("ray", CARRIED)],
    ids=["processes", "dask", "ray"],
)
def test_models_are_those_of_one_process(
    wanted, name, methods, tmp_path, request, monkeypatch
):
    index, models = wanted
    # a panel that is not the whole fleet: its rows, or its sums, go by the engine
    monkeypatch.setattr("persfl.scale.sharded_fit.PANEL", 10)
    for k, method in enumerate(methods):
        engine = LocalProcesses(2)
        if name != "processes":
            engine = request.getfixturevalue(f"{name}_of_tests")()
        run = fit_shards(index, tmp_path / str(k), asked_of(method), engine)
        pd.testing.assert_frame_equal(models_of(run), models[k], rtol=1e-9, atol=1e-9)
