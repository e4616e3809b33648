"""Models as named arrays on the wire, checked by family when they come back.

    vector learners (linear, networks)      vector
    Tree                                    feature, threshold, left, right, value
    Estimator                               base, labels, slopes, or the nodes of many trees one
    after the other

>>> import numpy as np
>>> from persfl import Linear
>>> sent = model_to(Linear(), np.array([1.0, 2.0]))
>>> model_from(Linear(), sent, features=2).tolist()
[1.0, 2.0]
>>> model_from(Linear(), {"vector": np.array([1.0, np.nan])}, features=2)
Traceback (most recent call last):
...
persfl.wire.codec.WireError: a model must hold finite numbers of a sensible size.
"""

from __future__ import annotations

from persfl.errors import InputError
from persfl.learners.storage import Arrays, model_to, read_model
from persfl.learners.storage.named_arrays import LARGE, is_sensible
from persfl.types import Learner, Model
from persfl.wire.codec import WireError, finite

__all__ = ["LARGE", "finite", "model_from", "model_to"]


def model_from(
    learner: Learner, arrays: Arrays, features: int, classes: int = 0
) -> Model:
    """The inverse of `model_to`, for arrays that somebody else sent."""
    for array in arrays.values():
        if array.dtype.kind == "f" and not is_sensible(array):
            raise WireError("a model must hold finite numbers of a sensible size.")
    try:
        return read_model(learner, arrays, features, classes)
    except InputError as error:
        raise WireError(str(error)) from None
    except (KeyError, ValueError, TypeError, IndexError):
        raise WireError("a model does not have the form of its family.") from None
