"""Linear models: a score `z = x'w + b` under a loss.

L(w) = sum_i weight_i * loss(x_i'w, y_i) / sum_i weight_i + l2 * ||w||^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.checks import one_of, real, whole
from persfl.errors import InputError
from persfl.learners.losses import LOSSES, sigmoid, softmax
from persfl.traits import Traits
from persfl.types import Array, Data

if TYPE_CHECKING:
    from persfl.seeds import Stream

# A mean squared residual below this share of the labels' mean square is what rounding leaves, and
# counts as 0 (for absolute loss:
# its root): otherwise two fleets that add in another order would choose among perfect answers by
# noise.
ROUNDING = 1e-24


@dataclass(frozen=True, init=False)
class Linear:
    """Linear regression and classification; a model is a vector of weights, the intercept last.

    `loss` is one of "squared", "absolute", "huber" (with `delta`), "logistic" (labels 0 and 1),
    "poisson" (counts), "multinomial" (labels 0 to `classes` - 1; the vector then holds one block of
    weights per class). Every method takes leading axes.

    >>> learner = Linear()
    >>> data = Data(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([1.0, 4.0]))
    >>> learner.loss(np.zeros(2), data), learner.grad(np.zeros(2), data).tolist()
    (np.float64(8.5), [-1.0, -8.0])
    >>> learner.fit(data, None).round(6).tolist()
    [1.0, 2.0]
    """

    kind: str
    intercept: bool
    l2: float
    delta: float
    classes: int

    def __init__(
        self,
        loss: str = "squared",
        *,
        intercept: bool = False,
        l2: float = 0.0,
        delta: float = 1.0,
        classes: int | None = None,
    ) -> None:
        one_of("loss", loss, [*LOSSES, "multinomial"])
        if (loss == "multinomial") != (classes is not None):
            raise InputError(
                f"classes must be given for loss='multinomial' and for no other. Got loss={loss!r},"
                f" classes={classes}."
            )
        vars(self).update(
            kind=loss,
            intercept=bool(intercept),
            l2=real("l2", l2, least=0),
            delta=real("delta", delta, above=0),
            classes=1 if classes is None else whole("classes", classes, least=2),
        )

    @property
    def traits(self) -> Traits:
        """Vectors with gradients and a mean; chances where labels are classes."""
        return Traits.of(self.kind, gradients=True)

    def size(self, features: int) -> int:
        """How many numbers a model has."""
        return self.classes * (features + self.intercept)

    def init(self, data: Data, stream: Stream | None) -> Array:
        """All zeros."""
        return np.zeros((*data.X.shape[:-2], self.size(data.X.shape[-1])))

    def scores(self, model: Array, X: Array) -> Array:
        """(..., rows), or (..., rows, classes) for multinomial."""
        d = X.shape[-1]
        W = model.reshape(*model.shape[:-1], self.classes, d + self.intercept)
        z = np.matmul(X, np.swapaxes(W[..., :d], -1, -2))
        if self.intercept:
            z = z + W[..., None, :, d]
        return np.asarray(z if self.kind == "multinomial" else z[..., 0])

    def predict(self, model: Array, X: Array) -> Array:
        """The response: a value; the chance of label 1; a rate; the chance of every class (one
        more axis).
        """
        z = self.scores(model, X)
        return (
            softmax(z) if self.kind == "multinomial" else LOSSES[self.kind].response(z)
        )

    def labels(self, model: Array, X: Array) -> Array:
        """The response as a label: the likelier class for logistic and multinomial."""
        z = self.scores(model, X)
        if self.kind == "multinomial":
            return np.asarray(z.argmax(axis=-1), dtype=np.float64)
        return (
            (z > 0).astype(np.float64)
            if self.kind == "logistic"
            else LOSSES[self.kind].response(z)
        )

    def chances(self, model: Array, X: Array) -> tuple[Array, Array]:
        """The chance of every label, and the labels."""
        if self.kind == "multinomial":
            return softmax(self.scores(model, X)), np.arange(float(self.classes))
        if self.kind == "logistic":
            one = sigmoid(self.scores(model, X))
            return np.stack([1.0 - one, one], axis=-1), np.array([0.0, 1.0])
        raise InputError(
            f"chances of labels exist for loss='logistic' and 'multinomial'. Got {self.kind!r}."
        )

    def loss(self, model: Array, data: Data) -> Any:
        """(...) the mean loss over the rows; inf where it overflows or there are no rows."""
        total = data.weight.sum(axis=-1)
        with np.errstate(all="ignore"):
            z = self.scores(model, data.X)
            if self.kind == "multinomial":
                top = z.max(axis=-1)
                own = np.take_along_axis(z, _classes(data.y, z), axis=-1)[..., 0]
                each = top + np.log(np.exp(z - top[..., None]).sum(axis=-1)) - own
            else:
                each = LOSSES[self.kind].value(z, data.y, self.delta)
            each = np.where(data.weight > 0, each, 0.0)
            value = (each * data.weight).sum(axis=-1) / total
            if self.kind in ("squared", "huber"):
                floor = ROUNDING * (data.weight * data.y**2).sum(axis=-1) / total
                value = np.where(value < floor, 0.0, value)
            elif self.kind == "absolute":
                size = (data.weight * np.abs(data.y)).sum(axis=-1)
                floor = np.sqrt(ROUNDING) * size / total
                value = np.where(value < floor, 0.0, value)
            value = value + self.l2 * (self._slopes_only(model, data) ** 2).sum(axis=-1)
        return np.where(np.isfinite(value), value, np.inf)[()]

    def grad(self, model: Array, data: Data) -> Array:
        """(..., size) the gradient of `loss` (a sub-gradient where it has a kink)."""
        total = data.weight.sum(axis=-1)
        share = data.weight / np.where(total > 0, total, 1.0)[..., None]
        z = self.scores(model, data.X)
        if self.kind == "multinomial":
            slope = softmax(z) - (_classes(data.y, z) == np.arange(self.classes))
            pull = np.swapaxes(
                np.where(share[..., None] > 0, slope, 0.0) * share[..., None], -1, -2
            )
        else:
            slope = LOSSES[self.kind].slope(z, data.y, self.delta)
            pull = (np.where(share > 0, slope, 0.0) * share)[..., None, :]
        G = np.matmul(pull, data.X)
        if self.intercept:
            G = np.concatenate([G, pull.sum(axis=-1)[..., None]], axis=-1)
        G = G.reshape(*G.shape[:-2], self.size(data.X.shape[-1]))
        return np.asarray(
            G + 2.0 * self.l2 * self._slopes_only(model, data) if self.l2 else G
        )

    def fit(self, data: Data, stream: Stream | None) -> Array:
        """(..., size) a minimiser of `loss`; for squared loss the one of smallest norm."""
        lead = data.X.shape[:-2]
        if self.kind == "squared":
            return self._least_squares(data)
        models = np.zeros((*lead, self.size(data.X.shape[-1])))
        for i in np.ndindex(lead):
            # without padding the descent is the same to the last bit in every fleet
            used = data.weight[i] > 0
            models[i] = self._descend(
                Data(data.X[i][used], data.y[i][used], data.weight[i][used])
            )
        return models

    def mix(self, models: Array, weights: Array) -> Array:
        """(..., size) from models (..., K, size) and weights (..., K)."""
        shares = weights[..., None]
        # a share of 0 takes nothing, not even of what is no number
        return np.asarray(np.where(shares != 0, shares * models, 0.0).sum(axis=-2))

    def check(self, model: object, features: int) -> Array:
        """A handed-in model as an array of the right length."""
        try:
            array = np.array(model, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != (self.size(features),) or not np.isfinite(array).all():
            raise InputError(
                f"a model of {self!r} must be {self.size(features)} finite numbers. Got {model!r}."
            )
        return array

    def check_labels(self, data: Data) -> str | None:
        """What these labels lack, if this loss cannot take them."""
        if self.kind == "multinomial":
            good = (
                (data.y >= 0) & (data.y < self.classes) & (data.y == np.floor(data.y))
            )
            wants = f"whole labels from 0 to {self.classes - 1}"
        else:
            good = LOSSES[self.kind].fits(data.y)
            wants = LOSSES[self.kind].wants
        return (
            None
            if good.all()
            else f"loss={self.kind!r} takes {wants}. Got {data.y[~good][0]:g}."
        )

    def with_intercept(self, X: Array) -> Array:
        """Rows with a last column of ones, where there is an intercept."""
        if not self.intercept:
            return X
        return np.concatenate([X, np.ones((*X.shape[:-1], 1))], axis=-1)

    def _slopes_only(self, model: Array, data: Data) -> Array:
        """The model with its intercepts set to 0: they are not penalised."""
        if not self.intercept:
            return model
        d = data.X.shape[-1]
        W = model.reshape(*model.shape[:-1], self.classes, d + 1).copy()
        W[..., d] = 0.0
        return W.reshape(model.shape)

    def _least_squares(self, data: Data) -> Array:
        X = self.with_intercept(data.X)
        root = np.sqrt(data.weight / data.weight.sum(axis=-1, keepdims=True))
        A = X * root[..., None]
        b = (data.y * root)[..., None]
        if self.l2 == 0:
            return np.asarray((np.linalg.pinv(A) @ b)[..., 0])
        ridge = np.full(X.shape[-1], self.l2)
        ridge[data.X.shape[-1] :] = 0.0
        At = np.swapaxes(A, -1, -2)
        normal = At @ A + np.diag(ridge)
        right = At @ b
        try:
            return np.asarray(np.linalg.solve(normal, right)[..., 0])
        # columns that are copies of each other, and a penalty too small to tell
        except np.linalg.LinAlgError:
            return np.asarray((np.linalg.pinv(normal) @ right)[..., 0])

    def _descend(self, data: Data) -> Array:
        """L-BFGS; the absolute loss, which has kinks, is approached by ever sharper Huber
        losses.
        """
        from scipy.optimize import minimize

        size = np.sqrt((data.X**2).mean(axis=0))
        size[size == 0] = 1.0
        # descend in columns of equal size: large ones would make exp overflow
        if self.l2 == 0 and not np.allclose(size, 1.0):
            W = self._descend(Data(data.X / size, data.y, data.weight)).reshape(
                self.classes, -1
            )
            W[:, : len(size)] /= size
            return W.ravel()
        w = self.init(data, None)
        for smooth in self._path(data):
            w = np.asarray(
                minimize(
                    lambda v, s=smooth: (s.loss(v, data), s.grad(v, data)),
                    w,
                    jac=True,
                    method="L-BFGS-B",
                    options={"maxiter": 500},
                ).x
            )
        return w

    def _path(self, data: Data) -> list[Linear]:
        if self.kind != "absolute":
            return [self]
        size = float(np.abs(data.y).max()) or 1.0
        return [
            Linear("huber", intercept=self.intercept, l2=self.l2 * d, delta=d)
            for d in size * 10.0 ** -np.arange(1, 6)
        ]


def _classes(y: Array, z: Array) -> Any:
    """Labels as class numbers with one more axis, broadcast to the leading axes of the scores."""
    return np.broadcast_to(y.astype(np.int64), z.shape[:-1])[..., None]
