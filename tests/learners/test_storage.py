"""Learners and models as plain data: the same bytes as ever, and back as what they were."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from storage_cases import ABSENT, CASES, FLEETS, LEAF, SMALL, network

from persfl import Estimator, Linear, Tree
from persfl.errors import InputError
from persfl.formats import json_to, numbers_from, numbers_to
from persfl.learners.plain import Plain
from persfl.learners.plain_families import as_plain
from persfl.learners.storage.family_table import (
    learner_from,
    learner_to,
    model_to,
    models_from,
    models_to,
    read_model,
    refuse_unfit,
)
from persfl.learners.storage.mix_arrays import mixtures_from, mixtures_to
from persfl.learners.storage.network_files import networks_from, networks_to

BEFORE = json.loads((Path(__file__).parent / "storage_bytes.json").read_text())


def of_arrays(arrays):
    """The hash of names, types, shapes and numbers, in their order."""
    digest = hashlib.sha256()
    for name, values in arrays.items():
        array = np.asarray(values)
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def of_bytes(content):
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("name", CASES)
def test_one_model_is_the_same_arrays_as_before(name):
    learner, model = CASES[name]
    assert of_arrays(model_to(learner, model)) == BEFORE[f"wire {name}"]
    assert of_arrays(models_to([model])) == BEFORE[f"disk {name}"]


@pytest.mark.parametrize("name", FLEETS)
def test_a_fleet_is_the_same_arrays_as_before_and_comes_back(name):
    arrays = models_to(FLEETS[name])
    assert of_arrays(arrays) == BEFORE[f"fleet {name}"]
    again = models_from(numbers_from(numbers_to(arrays)))
    assert of_arrays(models_to(again)) == BEFORE[f"fleet {name}"]


@pytest.mark.parametrize("name", CASES)
def test_learners_are_the_same_words_as_before(name):
    words = learner_to(CASES[name][0])
    assert json_to(learner_to(learner_from(json.loads(json_to(words))))) == json_to(
        words
    )
    if (
        words["kind"] == "estimator"
    ):  # whose settings are those of scikit-learn's version
        words["family"] = {"name": words["family"]["name"]}
    assert of_bytes(json_to(words)) == BEFORE[f"words {name}"]


def test_networks_are_the_same_bytes_as_before():
    pytest.importorskip("torch")
    learner = network()
    assert of_bytes(json_to(learner_to(learner))) == BEFORE["words network"]
    size = learner.size()
    models = np.arange(2.0 * size).astype(np.float32).reshape(2, size)
    content = networks_to(
        learner, {"models": models, "pooled": np.ones(size, dtype=np.float32)}
    )
    assert of_bytes(content) == BEFORE["packed networks"]
    np.testing.assert_array_equal(
        networks_from(learner.shapes, content)["models"], models
    )


@pytest.mark.parametrize("name", CASES)
def test_models_are_taken_from_their_own_family_only(name):
    learner, model = CASES[name]
    features = 3 if isinstance(learner, Linear) else 2
    classes = 0
    if isinstance(learner, Estimator) and as_plain(model).labels is not None:
        classes = 3
    (again,) = models_from(models_to([model]), features=features, classes=classes)
    refuse_unfit(learner, [again], features)
    for other in (Tree(), Linear("multinomial", classes=4), CASES["ridge"][0]):
        if type(other) is not type(learner) or isinstance(other, Linear):
            with pytest.raises(InputError, match="family"):
                refuse_unfit(other, [again], features)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mix_sizes": np.array([2, 0])},
        {"mix_sizes": np.array([3])},
        {"mix_sizes": np.array([2.0])},
        {"mix_sizes": np.array([2**62, 2**62, 2**62, 2**62, 2])},  # whose sum is 2
        {"mix_sizes": np.empty(0, dtype=int), "mix_shares": np.empty(0)},
        {"mix_shares": np.array([0.5, 0.6])},
        {"mix_shares": np.array([1.5, -0.5])},
        {"mix_shares": np.array([np.nan, 1.0])},
        {"mix_shares": np.array([1, 0])},
    ],
)
def test_mixes_are_shares_of_models(wrong):
    parts, shares = mixtures_to([[(0.25, SMALL), (0.75, LEAF)]])
    assert mixtures_from(parts, shares)[0][1] == (0.75, LEAF)
    with pytest.raises(InputError, match="mix"):
        mixtures_from(parts, shares | wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tree_nodes": np.array([5, 2, 0])},
        {"tree_nodes": np.array([5.0, 1.0, 1.0])},
        {"tree_nodes": np.array([2**62, 2**62, 2**62, 2**62, 5, 1, 1])},
        {"tree_nodes": np.array([[5, 1, 1]])},
        {"tree_feature": np.zeros(7)},
        {"tree_left": np.zeros(7, dtype=int)},
        {"tree_value": np.zeros(6)},
        {"tree_value": np.zeros((7, 1))},
        {"tree_value": np.array([0, 1, 0, np.nan, 3, 1, 1])},
        {"tree_threshold": np.full(7, np.inf)},
    ],
)
def test_trees_of_a_folder_are_sound(wrong):
    arrays = models_to([SMALL, LEAF, ABSENT])
    assert len(models_from(arrays, features=2)) == 3
    with pytest.raises(InputError):
        models_from(arrays | wrong, features=2)
    with pytest.raises(InputError):
        models_from(arrays, features=1)


def test_on_the_wire_there_is_less_than_on_disk():
    learner, model = CASES["fine"]
    assert isinstance(model, Plain)
    with pytest.raises(InputError):
        read_model(learner, model_to(learner, model), features=2)
    learner, model = CASES["scaled"]
    with pytest.raises(InputError):
        read_model(learner, model_to(learner, model), features=2)
    learner, model = CASES["boosted"]
    again = read_model(learner, model_to(learner, model), features=2)
    np.testing.assert_array_equal(
        again.predict(np.ones((1, 2))), model.predict(np.ones((1, 2)))
    )
