import numpy as np

from persfl import ArrayFleet, BestOrStay, Devices, GradientStep, Linear, Uniform, personalize
from persfl.datasets import load_housing, load_vowels
from persfl.sources import from_table


def standardized(devices):
    devices.X = (devices.X - devices.X.mean(axis=0)) / devices.X.std(axis=0)
    return devices


def test_housing_in_the_loop():
    housing = load_housing()
    assert list(housing.frame.columns) == ["city", "year", "month", "sales", "listings", "inventory", "log_price"]
    assert not housing.frame.isna().any().any()
    devices = standardized(from_table(housing.frame, device="city", label="log_price"))
    assert len(devices) == 46
    fleet = ArrayFleet(devices, learner=Linear(intercept=True), proposer=GradientStep(0.1))
    *_, last = personalize(fleet, sampler=Uniform(10), adopter=BestOrStay(), rounds=100)
    assert np.median(last.loss) < 0.1


def test_vowels_in_the_loop():
    vowels = load_vowels()
    assert (np.bincount(vowels.target) == 152).all()
    assert (vowels.devices.value_counts() == 20).all()
    devices: Devices = standardized(from_table(vowels.frame, device="speaker", label="vowel"))
    learner = Linear("multinomial", classes=10, intercept=True)
    fleet = ArrayFleet(devices, learner=learner, proposer=GradientStep(1.0), targets=devices.ids[:3])
    *_, last = personalize(fleet, sampler=Uniform(10), adopter=BestOrStay(), rounds=150)
    right = [(learner.labels(model, devices[i].X) == devices[i].y).mean() for i, model in enumerate(fleet.models)]
    assert np.mean(right) > 0.6
    assert (last.loss < np.log(10)).all()
