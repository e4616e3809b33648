"""Measures how often what is said to a device, of similar devices and of the fleet is true. For
docs/how-it-works.md.

python docs/measure_worth.py               twenty draws of each (four minutes)

Each draw gives every city of the bundled housing data random rows, ten each or 5 to 40; the
estimator holds them back in turn and judges by them. The truth is the same gain on the city's other
rows, about 150, that nothing ever saw.
"""

import argparse
import warnings

import numpy as np
import pandas as pd

from persfl import PersflWarning, PersonalizedRegressor
from persfl.datasets import load_housing
from persfl.evaluation.intervals import Verdict
from persfl.evaluation.trials import run_trial, worth_of_trials
from persfl.evaluation.verdicts import HELPS
from persfl.sources import from_table


def draw(seed: int, method: str, uneven: bool) -> tuple[pd.DataFrame, Verdict, Verdict]:
    """What is said to every city and its gain in truth; what is said of the fleet, and that in
    truth.
    """
    housing = load_housing()
    mixed = housing.frame.sample(frac=1.0, random_state=seed)
    cities = mixed["city"].unique()
    many = np.exp(
        np.random.default_rng(seed).uniform(np.log(5), np.log(40), len(cities))
    ).astype(int)
    rows = mixed["city"].map(dict(zip(cities, many, strict=True))) if uneven else 10
    few = mixed.groupby("city").cumcount() < rows
    learn, rest = (
        from_table(
            mixed[which],
            device="city",
            label="log_price",
            features=housing.feature_names,
        )
        for which in (few, ~few)
    )
    table = mixed[few]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PersflWarning)
        model = PersonalizedRegressor(method=method, random_state=seed)
        model.fit(
            table[housing.feature_names], table["log_price"], devices=table["city"]
        )
    truth = worth_of_trials(
        [
            run_trial(
                learn,
                rest,
                learner=model.learner_,
                units=model.units_,
                models=model.models_,
            )
        ],
        0,
    )
    said = (
        model.worth_.device()
        .set_index("device")
        .join(truth.device().set_index("device")[["gain"]].add_prefix("true_"))
    )
    held = model.worth_.table.set_index("device").loc[said.index]
    # the same similar devices
    again = truth.table.assign(held=truth.table["device"].map(held["held"]))
    said["true_similar"] = (
        type(truth)(again, truth.scale, 0)
        .similar()["gain"]
        .set_axis(truth.table["device"])
        .loc[said.index]
    )
    return said, model.worth_.fleet(), truth.fleet()


def show(method: str, uneven: bool, draws: int) -> None:
    """One fleet's lines."""
    found = [draw(seed, method, uneven) for seed in range(draws)]
    cities = pd.concat([said for said, _, _ in found])
    gains, helped, loses = (
        cities["true_gain"] > 0,
        cities["verdict"] == HELPS,
        cities["gain"] < 0,
    )
    inside = (cities["similar_low"] <= cities["true_similar"]) & (
        cities["true_similar"] <= cities["similar_high"]
    )
    more = pd.concat(
        [said["similar_gain"] > said["similar_gain"].median() for said, _, _ in found]
    )

    def rank(column: str) -> str:
        each = [
            said[column].corr(said["true_gain"], method="spearman")
            for said, _, _ in found
        ]
        return f"{np.mean(each):+.2f}"

    print(
        f"\n{method}, {'5 to 40 rows a city' if uneven else '10 rows a city'}, {draws} draws of 46"
        " cities"
    )
    line("it truly helps", f"{gains.mean():.0%} of the cities")
    line(
        "rank correlation of a city's own held-out gain with its true gain",
        rank("gain"),
    )
    line(
        f'"{HELPS}" was said',
        f"{helped.sum()} times, right in {gains[helped].mean():.0%}",
    )
    line(
        "a negative own gain (nothing is said of it)",
        f"{loses.sum()} times, true in {(~gains)[loses].mean():.0%}",
    )
    line("similar devices, in the middle", f"{cities['similar_devices'].median():.0f}")
    line(
        "their true gain lies inside the interval that was said",
        f"in {inside.mean():.0%}",
    )
    if uneven:
        line(
            "rank correlation of similar devices' gain with the city's true gain",
            rank("similar_gain"),
        )
        line(
            "true gain where similar devices gained much, little",
            f"in {gains[more].mean():.0%}, in {gains[~more].mean():.0%}",
        )
    for says in ("helps", "no clear difference", "hurts"):
        now = [true.gain > 0 for _, fleet, true in found if fleet.says == says]
        if now:
            line(
                f'of the fleet "{says}" was said',
                f"{len(now)} times, its true gain above 0 in {sum(now)}",
            )


def line(what: str, value: str) -> None:
    """A line of a table."""
    print(f"  {what:68} {value}", flush=True)


def main() -> None:
    """Print what was found."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--draws", type=int, default=20)
    draws = asked.parse_args().draws
    for method in ("blend", "paper"):
        for uneven in (False, True):
            show(method, uneven, draws)


if __name__ == "__main__":
    main()
