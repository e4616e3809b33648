"""Measures how far the rows a device holds back tell what asking peers does for that device: not far. For docs/how-it-works.md.

python docs/measure_worth.py               twenty draws (ten seconds)

Each draw gives every city of the bundled housing data ten random rows; the estimator holds back eight of them in turn and judges by
them. The truth is the same gain on the city's other rows, about 145, that nothing ever saw.
"""

import argparse
import warnings

import numpy as np
import pandas as pd

from persfl import PersflWarning, PersonalizedRegressor
from persfl.datasets import load_housing
from persfl.sources import from_table
from persfl.worth import measured, tried


def draw(seed: int) -> tuple[pd.DataFrame, str, float]:
    """Every city's gain by its own held-out rows and in truth; what is said of the fleet, and the fleet's gain in truth."""
    housing = load_housing()
    mixed = housing.frame.sample(frac=1.0, random_state=seed)
    few = mixed.groupby("city").cumcount() < 10
    learn, rest = (from_table(mixed[which], device="city", label="log_price") for which in (few, ~few))
    table = mixed[few]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PersflWarning)
        model = PersonalizedRegressor(random_state=seed)
        model.fit(table[housing.feature_names], table["log_price"], devices=table["city"])
    truth = measured([tried(learn, rest, learner=model.learner_, units=model.units_, models=model.models_)], 0)
    said = model.worth_.device()
    both = pd.DataFrame({"own": said["gain"], "truth": truth.device()["gain"], "verdict": said["verdict"]})
    return both, model.worth_.fleet().says, truth.fleet().gain


def main() -> None:
    """Print what was found."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--draws", type=int, default=20)
    draws = asked.parse_args().draws
    found = [draw(seed) for seed in range(draws)]
    cities = pd.concat([both for both, _, _ in found])
    rank = np.mean([both["own"].corr(both["truth"], method="spearman") for both, _, _ in found])
    gains, loses = cities["truth"] > 0, cities["own"] < 0
    helped = cities["verdict"] == "helps here"
    print(f"{draws} draws of 46 cities; in truth asking peers helps {gains.mean():.0%} of them")
    print(f"rank correlation of a city's own held-out gain with the truth, mean over draws: {rank:.2f}")
    print(f'"helps here" was said {helped.sum()} times and right in {gains[helped].mean():.0%}')
    print(f"a negative own gain, {loses.sum()} times, was right in {(~gains)[loses].mean():.0%}")
    for says in ("helps", "no clear difference", "hurts"):
        now = [gain for _, said, gain in found if said == says]
        print(
            f'of the fleet "{says}" was said {len(now)} times; its true gain was above 0 in {sum(gain > 0 for gain in now)} of them'
        )


if __name__ == "__main__":
    main()
