"""The promises of learners and proposers."""

from __future__ import annotations

import numpy as np

from persfl.errors import InputError
from persfl.seeds import stream
from persfl.testing.promises import (
    doubled,
    expect,
    nth,
    ordinary_rows,
    same,
    with_padding,
)
from persfl.traits import has_gradients, moving_parts
from persfl.types import Array, Data, Differentiable, Learner, Model, Proposer


def check_learner(learner: Learner, data: Data | None = None) -> None:
    """A model family: deterministic, indifferent to padding, and (if it has gradients) with
    leading axes and right slopes.
    """
    data = ordinary_rows(learner) if data is None else data
    place = stream(0, "check")

    def says(model: Model) -> Array:
        return learner.predict(model, data.X)

    first = learner.init(data, place)
    again = learner.init(data, place)
    begin = learner.loss(first, data)
    expect(same(says(first), says(again)), "init must depend on data and stream only")
    expect(np.isfinite(begin), "the loss of the starting model must be finite")

    fitted = learner.fit(data, place)
    again = learner.fit(data, place)
    loss = learner.loss(fitted, data)
    expect(same(says(fitted), says(again)), "fit must be deterministic")
    expect(loss <= begin + 1e-9, "fit must not be worse than init on its own rows")
    labels = learner.labels(fitted, data.X)
    numbers = np.shape(labels) == (data.rows,) and np.isfinite(labels).all()
    expect(numbers, "labels must be one finite number per row")

    longer = with_padding(data)
    blind = np.isclose(loss, learner.loss(fitted, longer))
    expect(blind, "rows of weight 0 must not change the loss")
    refitted = learner.loss(learner.fit(longer, place), data)
    blind = np.isclose(refitted, loss, rtol=1e-4, atol=1e-9)
    expect(blind, "rows of weight 0 must not change the fit")

    features = data.X.shape[1]
    checked = learner.loss(learner.check(fitted, features), data)
    expect(np.isclose(checked, loss), "check must accept its own models")
    for wrong in ("a model?", np.full(3, np.nan)):
        try:
            learner.check(wrong, features)
        except InputError:
            continue
        raise AssertionError(f"check must refuse {wrong!r} with an InputError")
    if has_gradients(learner):
        _check_vectors(learner, data, fitted)


def _check_vectors(learner: Differentiable, data: Data, fitted: Array) -> None:
    """Slopes, leading axes and means of models that are vectors."""
    rng = np.random.default_rng(0)
    shape = np.shape(fitted)
    moves = moving_parts(learner, fitted)
    model = np.where(moves, 0.3 * rng.standard_normal(shape) + 0.01, fitted)
    slope = learner.grad(model, data)
    expect(not slope[~moves].any(), "what does not move must have no slope")
    for direction in rng.standard_normal((3, *shape)) * moves:
        ahead = learner.loss(model + 1e-6 * direction, data)
        behind = learner.loss(model - 1e-6 * direction, data)
        rise = (ahead - behind) / 2e-6
        run = (slope * direction).sum()
        right = np.isclose(rise, run, rtol=1e-3, atol=1e-5)
        expect(right, "grad must be the gradient of loss")
    blind = np.allclose(slope, learner.grad(model, with_padding(data)))
    expect(blind, "rows of weight 0 must not change the gradient")
    models = np.stack([model, 2 * model])
    both = doubled(data)
    for method in (learner.loss, learner.grad):
        one_by_one = [method(models[i], nth(both, i)) for i in range(2)]
        equal = np.allclose(method(models, both), one_by_one)
        expect(equal, "leading axes must give what one by one gives")
    mixed = learner.mix(models, np.array([0.25, 0.75]))
    expect(np.allclose(mixed, 1.75 * model), "mix must be the weighted mean")


def check_proposer(
    proposer: Proposer, learner: Learner, data: Data | None = None
) -> None:
    """A question and its answer: deterministic, without side effects, one model of the asker's
    family.
    """
    data = ordinary_rows(learner) if data is None else data
    place = stream(0, "check", 1)
    model = learner.fit(data, place)
    before = learner.predict(model, data.X).copy()
    probe = proposer.ask(learner, model)
    proposal, again = (proposer.answer(learner, probe, data, place) for _ in range(2))
    said = learner.predict(proposal, data.X)
    equal = same(said, learner.predict(again, data.X))
    expect(equal, "the same question must get the same answer")
    unchanged = same(before, learner.predict(model, data.X))
    expect(unchanged, "answering must not change the asker's model")
    finite = np.isfinite(learner.loss(proposal, data))
    expect(finite, "an answer must have a finite loss on ordinary rows")
    length = proposer.length(learner, probe, proposal)
    expect(np.isnan(length) or length >= 0, "a length must be at least 0, or NaN")
    advice = proposer.advice()
    expect(isinstance(advice, str) and advice, "advice must say what to change")
    if has_gradients(learner):
        _check_batch(proposer, learner, data, model)


def _check_batch(
    proposer: Proposer, learner: Differentiable, data: Data, model: Array
) -> None:
    """Two askers at once get what each gets alone."""
    two = np.stack([model, 0.5 * model])
    both = doubled(data)
    places = stream(0, "check").at(np.arange(2))
    together = proposer.answer(learner, proposer.ask(learner, two), both, places)
    for i in range(2):
        probe = proposer.ask(learner, two[i])
        alone = proposer.answer(learner, probe, nth(both, i), stream(0, "check", i))
        equal = np.allclose(together[i], alone, rtol=1e-6, atol=1e-8)
        expect(equal, "leading axes must give what one by one gives")
