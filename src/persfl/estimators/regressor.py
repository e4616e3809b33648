"""Numbers: `PersonalizedRegressor`."""

from __future__ import annotations

from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from persfl.estimators.base import Personalized
from persfl.fitting.schema import Ids, Table
from persfl.types import Array


class PersonalizedRegressor(RegressorMixin, Personalized):  # type: ignore[misc]
    """A regression model for every device, learned from own rows and from peers who really help.

    Parameters
    ----------
    estimator : what a model is. None: linear; peers answer by refits or gradient steps (Algorithm
        1). A scikit-learn regressor that takes sample weights: by refits on private rows plus
        public points (Algorithm 2). A `torch.nn.Module` for one row of the table, all devices
        starting from its weights, or a function of (features, outputs) that makes one, such as
        `persfl.learners.MLP()`: by gradient steps. Or a persfl learner, such as `Linear("huber",
        intercept=True)`.
    device : the column of X that says whose row it is, instead of `devices=` in every call.
    method : how models are made: a name, or a method of `persfl.methods` with its settings, such as
        `Blend(budget=300)` or `Paper(peers=5, rounds=50)`. "blend", the default: mix what own rows,
        the fleet and neighbours offer, by the evidence of own folds and of the fleet
        (docs/blend.md). "paper": Algorithm 1 or 2 as printed. "kin": find out who answers from the
        same truth, learn from all of those, then stop asking (docs/kin.md). "own", "pooled",
        "fine-tuned", "clustered", "fedavg", "fedavg+fine-tuning", "ditto", "ifca": what they are
        compared with. `persfl methods` lists all of them; `set_params(method__budget=300)` reaches
        their settings, and so does a grid search.
    units : "shared" (fleet mean and spread per column), "centred" (about each device's own means),
        "raw", or "auto": shared for models that take steps, raw for others. See `persfl.units` for
        what each reveals. Blend looks at shared and centred units itself.
    public : points for Algorithm 2: an array or table with X's columns, or how many to make up from
        the fleet's means and spreads.
    holdout : share of each device's rows held back in a trial run to answer "is it worth it?"
        (`worth_`); 0 skips it.
    trials : how many times to do that, with other rows held back; "auto" is until nearly every row
        was, where that takes a moment, else 1.
    fallback : keep a device's own model where the evidence of the whole fleet says that it is the
        better one.
    unseen : "pooled" predicts devices that were not there when fitting by one model for all, with a
        warning (`persfl.errors.UnseenWarning`); "error" refuses them.
    impute : fill missing values with each column's mean (texts: most frequent) instead of refusing
        them.
    window : for `partial_fit`: how many rows each device keeps; None is all of them.
    ordered : whether a device's rows come in the order of time. Then the latest are held back.
    compute : where gradient steps are computed, as torch names it: "cuda" for a GPU, "cpu"; None is
        this processor, without torch where the models are linear. For methods that ask a fleet
        round by round; blend computes on this processor.
    n_jobs : parallel processes for refits.
    random_state : the same number gives the same result; None draws one.

    Attributes
    ----------
    devices_ : ids, in the order of all that follows.
    models_ : one model per device, in the units of the run.
    fitted_ : all of this as one value, see `persfl.fitting.Fitted`.
    method_ : the name of the method that ran; "own" where there is one device.
    helpers_ : who helps whom, a DataFrame.
    worth_ : errors on rows held back, see `persfl.evaluation.verdicts.Worth`; None without any.
    notes_ : what a person should know about this fit, in sentences; the first says by which method.
    losses_ : (rounds, devices) own losses at the start of every round.
    fallback_ : which devices keep their own model.
    step_size_ : the step size in the end.
    n_rounds_ : how many rounds there were.
    rows_ : rows per device.
    units_, learner_, trust_ : the parts underneath.
    progress_ : errors before learning, of `partial_fit`.

    >>> from persfl.datasets import load_housing
    >>> housing = load_housing()
    >>> few = housing.frame.groupby("city").head(12)
    >>> model = PersonalizedRegressor(holdout=0).fit(
    ...     few[housing.feature_names], few["log_price"], devices=few["city"]
    ... )
    >>> (
    ...     model.method_,
    ...     model.predict(few[housing.feature_names][:2], devices=few["city"][:2])
    ...     .round(1)
    ...     .tolist(),
    ... )
    ('blend', [11.1, 11.1])
    >>> list(model.helpers_.columns)
    ['device', 'peer', 'asked', 'adopted', 'share', 'reward_mean', 'reward_low', 'reward_high',
    'verdict']
    """

    numeric = True

    def predict(self, X: Table, devices: Ids = None) -> Array:
        """(rows,) each row's label by its own device's model."""
        return self._responses(X, devices)

    def score(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """R squared over all rows."""
        predicted = self.predict(X, devices=devices)
        return float(r2_score(y, predicted, sample_weight=sample_weight))
