"""Taking helpers out: named ones matter where there are kinds, and it is said where none do."""

import numpy as np
import pandas as pd
import pytest

from persfl import PersonalizedRegressor
from persfl.cli import main
from persfl.errors import InputError
from persfl.fitting.removal import Removal, Rise
from persfl.methods import Blend
from persfl.runs import save_model
from persfl.sources import clustered_regression


@pytest.fixture(scope="module")
def kinds():
    """Three devices of each of eight kinds: the other two are all that helps."""
    return clustered_regression(
        n=24, clusters=8, rows=10, features=6, noise=0.3, seed=0
    )


@pytest.fixture(scope="module")
def model(kinds):
    found = PersonalizedRegressor(method=Blend(trees=False), holdout=0)
    return found.fit(kinds.X, kinds.y, devices=kinds.owner)


def test_named_helpers_matter_more_than_random_ones(kinds, model):
    found = model.removal(kinds.X, kinds.y, kinds.owner, many=2, targets=6)
    assert found.many == 2
    assert found.refits == 13
    assert list(found.table) == ["device", "all", "named", "random"]
    assert found.named.rise > 0.5 + max(found.random.rise, 0.0)


def test_where_the_named_matter_it_is_said_by_how_much():
    rises = Rise(0.17, 0.12, 0.22), Rise(0.01, -0.02, 0.04), Rise(0.16, 0.1, 0.2)
    found = Removal(*rises, 10, 25, pd.DataFrame(range(12)))
    assert found.sentence.startswith(
        "Without the 10 devices named for each, errors rise by 17 % (12 % to 22 %);"
    )


def test_the_same_seed_takes_out_the_same(kinds, model):
    rows = kinds.X, kinds.y, kinds.owner
    first, again = (model.removal(*rows, many=2, targets=2) for _ in range(2))
    assert first.sentence == again.sentence


def test_where_nobody_matters_more_it_is_said():
    rise = Rise(0.01, -0.02, 0.04)
    found = Removal(rise, rise, Rise(0.0, -0.03, 0.03), 10, 25, pd.DataFrame(range(12)))
    assert "no 10 devices matter clearly more" in found.sentence
    assert "the fleet as a whole" in found.sentence


def test_it_takes_devices_and_rows(kinds, model):
    few = kinds.owner < 3
    small = PersonalizedRegressor(holdout=0).fit(
        kinds.X[few], kinds.y[few], devices=kinds.owner[few]
    )
    with pytest.raises(InputError, match="at least 4 devices"):
        small.removal(kinds.X[few], kinds.y[few], kinds.owner[few])


def test_the_command_takes_the_table(kinds, model, tmp_path, capsys):
    frame = pd.DataFrame(kinds.X, columns=list("abcdef"))
    frame = frame.assign(who=kinds.owner, y=kinds.y)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    fitted = PersonalizedRegressor(method=Blend(trees=False), holdout=0)
    fitted.fit(frame[list("abcdef")], frame["y"], devices=frame["who"])
    run = str(save_model(fitted, tmp_path / "run", device="who"))
    assert main(["helpers", run, "--prove"]) != 0
    assert "--table" in capsys.readouterr().err
    words = ["helpers", run, "--prove", "--table", str(tmp_path / "rows.csv")]
    assert main([*words, "--targets", "3", "--without", "2"]) == 0
    said = capsys.readouterr().out
    assert "errors rise by" in said
    assert "7 fits." in said
    assert np.isfinite(fitted.helpers_["alike"]).all()
