"""What a learner can do is a value: stated by ours, looked up once from the methods of others'."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

from persfl import Best, Estimator, GradientStep, Linear, Refit, Tree, kin
from persfl.errors import InputError
from persfl.traits import (
    Traits,
    has_gradients,
    is_learner,
    is_proposer,
    keeps_steps,
    traits_of,
)
from persfl.types import Data, Keeping, Noting


class Theirs:
    """Somebody else's learner: the seven methods, and no word about traits."""

    def __init__(self, **more):
        self.__dict__.update(more)

    def init(self, data, stream): ...
    def fit(self, data, stream): ...
    def predict(self, model, X): ...
    def labels(self, model, X): ...
    def loss(self, model, data): ...
    def mix(self, models, weights): ...
    def check(self, model, features): ...


def test_our_learners_state_their_traits():
    assert Linear("poisson").traits == Traits(
        True, True, False, False, False, "counts", "poisson"
    )
    assert Linear("multinomial", classes=3).traits.chances
    assert Tree().traits == Traits(
        False, False, False, False, False, "numbers", "squared"
    )
    assert Estimator(LogisticRegression()).traits.task == "classes"
    assert not Estimator(Ridge()).traits.chances


def test_a_network_states_what_its_module_needs():
    nn = pytest.importorskip("torch.nn")
    from persfl.learners import Network

    plain = Network(lambda: nn.Linear(2, 2)).traits
    assert plain == Traits(True, True, True, False, True, "classes", "cross_entropy")
    norm = Network(
        lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)), loss="squared"
    )
    assert norm.traits.renews


def test_the_traits_of_others_are_looked_up():
    nothing = traits_of(Theirs())
    assert nothing == Traits(False, False, False, False, False, "numbers", "")
    slopes = traits_of(Theirs(grad=len, size=len, kind="logistic", renews=True))
    assert slopes.gradients
    assert slopes.mixes
    assert slopes.renews
    assert slopes.task == "classes"
    assert not slopes.tensors
    assert traits_of(Theirs(chances=len)).task == "classes"
    assert not traits_of(Theirs(chances=len, classifies=False)).chances


def test_what_they_state_is_believed():
    stated = Traits.of("squared", gradients=False)
    assert traits_of(Theirs(grad=len, traits=stated)) is stated
    assert not has_gradients(Theirs(grad=len, traits=stated))
    assert traits_of(Theirs(grad=len, traits="any")).gradients


def test_a_class_is_not_a_part():
    assert is_learner(Linear())
    assert not is_learner(Linear)
    assert not is_learner("Linear")
    assert is_proposer(GradientStep(0.1))
    assert not is_proposer(GradientStep)


def test_adopters_that_note_and_keep():
    by_steps, by_losses = kin(4).adopter, kin(4, steps=False).adopter
    assert isinstance(by_steps, Keeping)
    assert keeps_steps(by_steps)
    assert isinstance(by_losses, Noting)
    assert not keeps_steps(by_losses)
    assert not isinstance(Best(), Noting)
    assert not keeps_steps(lambda trust, peers, losses: None)


def test_an_adopter_may_say_that_it_does_not_keep():
    class Quiet(Best):
        keeps = False

        def note(self, trust, r, peers, losses, kept):
            return {}

    assert not keeps_steps(Quiet())


def test_a_question_that_a_learner_cannot_answer_is_refused_in_words():
    data = Data(np.eye(2), np.arange(2.0))
    with pytest.raises(InputError, match="needs a learner with gradients"):
        GradientStep(0.1).answer(Tree(), np.zeros(2), data, None)
    for learner in (Tree(), Estimator(Ridge())):
        with pytest.raises(InputError, match="soft=True sends chances of classes"):
            Refit(np.eye(2), soft=True).ask(learner, None)
    hard = Estimator(DecisionTreeClassifier(), loss="error")
    assert Refit(np.eye(2), soft=True).softly(hard)
