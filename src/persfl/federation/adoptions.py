"""What targets are told to adopt, in letters and in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from persfl.federation.messages import MOST, Arrays, Head, parts_of
from persfl.federation.run_codec import RunCodec
from persfl.types import Model
from persfl.wire.codec import WireError, nested


class Adoption(NamedTuple):
    """What a target adopts after a round; `anew` replaces its model whatever it was."""

    round: int
    stay: float
    weights: tuple[float, ...]
    pieces: tuple[Model, ...]
    anew: bool = False

    @staticmethod
    def whole(r: int, model: Model, *, anew: bool = False) -> Adoption:
        """This model and nothing else."""
        return Adoption(r, 0.0, (1.0,), (model,), anew)


def adoptions_to(
    codec: RunCodec, adoptions: Sequence[Adoption]
) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """A head for each, oldest first, and the arrays of their models."""
    heads: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    for i, one in enumerate(adoptions):
        told = {"round": one.round, "stay": one.stay, "set": one.anew}
        heads.append(told | {"weights": list(one.weights)})
        for k, piece in enumerate(one.pieces):
            arrays |= nested(f"a{i}.{k}", codec.model_to(piece))
    return heads, arrays


def adoption_heads(told: object) -> list[dict[str, Any]]:
    """The heads of `adoptions_to`, if that is what these are."""
    if not isinstance(told, list) or len(told) > MOST:
        raise WireError("adoptions must be a list.")
    for head in told:
        _check(head)
    return told


def adoption_from(codec: RunCodec, head: Head, arrays: Arrays) -> Adoption:
    """One of `adoption_heads`, with the models in its arrays."""
    weights = tuple(head["weights"])
    parts = parts_of(arrays)
    pieces = [codec.model_from(parts.get(str(k), {})) for k in range(len(weights))]
    return Adoption(head["round"], head["stay"], weights, tuple(pieces), head["set"])


def _check(head: object) -> None:
    """Stop where what should be an adoption is none."""
    if (
        not isinstance(head, dict)
        or set(head) != {"round", "stay", "weights", "set"}
        or not isinstance(head["set"], bool)
        or not isinstance(head["round"], int)
        or isinstance(head["round"], bool)
        or not isinstance(head["weights"], list)
    ):
        raise WireError("an adoption must say its round and weights.")
    shares = [head["stay"], *head["weights"]]
    if (
        not all(isinstance(w, int | float) and 0 <= w <= 1 for w in shares)
        or not abs(sum(shares) - 1) <= 1e-6
    ):
        raise WireError("an adoption's weights must sum to 1.")
