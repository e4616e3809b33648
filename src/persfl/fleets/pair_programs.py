"""Rounds of small models on a GPU: one program of the chip per pair, for the models that have one.

A linear model of one output has one, and a module of two linear layers with ReLU or tanh between
them. What they say is what `persfl.fleets.torch_pairs` says of any model, without writing down
what is in between: for models this small that is most of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from persfl.learners.linear import ROUNDING, Linear

if TYPE_CHECKING:
    import torch
    from torch import nn

    from persfl.fleets.torch_runtime import TensorRows
    from persfl.learners.network_tensors import NetworkTensors
    from persfl.proposers.gradient import GradientStep

# Found on an H200:
_ROWS = 64  # of a block, for networks; half of it where nobody has more
_MOST = 8192  # numbers in a first layer that registers hold
_LEAST = 16  # of a side that products of blocks take
_WIDEST = 1024  # features of linear models
_NUMBERS = 1024  # of a block of their rows


class PairProgram(Protocol):
    """What `TensorPairs` says of one chunk, by programs of the chip."""

    def answers(
        self,
        w: torch.Tensor,
        mine: torch.Tensor,
        their: torch.Tensor,
        theirs: TensorRows,
        own: TensorRows,
    ) -> torch.Tensor:
        """(C, 1 + 2 S): the own loss, the answers' losses, their lengths."""

    def mixes(
        self,
        w: torch.Tensor,
        their: torch.Tensor,
        weights: torch.Tensor,
        theirs: TensorRows,
    ) -> torch.Tensor:
        """(C, size) models and answers by these weights."""


def _blocked(size: int, least: int = _LEAST) -> int:
    """The side of a block that holds so many."""
    return max(least, 1 << (size - 1).bit_length())


def _blocks(rows: TensorRows, size: int) -> int:
    """How many blocks of rows everybody has; 0 where they have not alike."""
    return -(-rows.longest // size) if rows.even else 0


def _size(longest: int) -> int:
    """How many rows a network's block has."""
    return _ROWS if longest > _ROWS // 2 else _ROWS // 2


def _read(rows: TensorRows) -> tuple[torch.Tensor, ...]:
    return rows.X, rows.y, rows.weight, rows.start, rows.counts


@dataclass(frozen=True)
class LinearProgram:
    """Linear models of one output."""

    learner: Linear
    features: int
    steps: int
    rate: float

    def answers(
        self,
        w: torch.Tensor,
        mine: torch.Tensor,
        their: torch.Tensor,
        theirs: TensorRows,
        own: TensorRows,
    ) -> torch.Tensor:
        """(C, 1 + 2 S): the own loss, the answers' losses, their lengths."""
        from persfl.learners.linear_kernels import linear_answers

        C, S = their.shape
        out = w.new_empty((C, 1 + 2 * S))
        known = {"squared": ROUNDING, "huber": ROUNDING, "absolute": ROUNDING**0.5}
        floor = known.get(self.learner.kind, 0.0)
        linear_answers[(C * (S + 1),)](
            w, w.shape[1], their.contiguous(), *_read(theirs), mine, *_read(own), out,
            S, *self._numbers(), floor, **self._block(max(theirs.longest, own.longest)),
        )  # fmt: skip
        return out

    def mixes(
        self,
        w: torch.Tensor,
        their: torch.Tensor,
        weights: torch.Tensor,
        theirs: TensorRows,
    ) -> torch.Tensor:
        """(C, size) models and answers by these weights."""
        from persfl.learners.linear_kernels import linear_mixes

        out = w.new_empty(w.shape)
        C, K = their.shape
        linear_mixes[(C,)](
            w, w.shape[1], their.contiguous(), weights.contiguous(), *_read(theirs), out,
            K, *self._numbers(), **self._block(theirs.longest),
        )  # fmt: skip
        return out

    def _numbers(self) -> tuple[int, float, float, float]:
        learner = self.learner
        return self.steps, self.rate, float(learner.l2), float(learner.delta)

    def _block(self, longest: int) -> dict[str, int | str | bool]:
        wide = _blocked(self.features)
        high = min(_blocked(longest, 1), max(1, _NUMBERS // wide))
        return {
            "F": self.features,
            "KIND": self.learner.kind,
            "INTERCEPT": self.learner.intercept,
            "BR": high,
            "FP": wide,
            "num_warps": 1,
        }


@dataclass(frozen=True)
class PerceptronProgram:
    """Modules of two linear layers with a bend between them."""

    features: int
    hidden: int
    outputs: int
    biases: tuple[bool, bool]
    tanh: bool
    loss: str
    l2: float
    steps: int
    rate: float
    digits: str  # of products, as Triton names them

    def answers(
        self,
        w: torch.Tensor,
        mine: torch.Tensor,
        their: torch.Tensor,
        theirs: TensorRows,
        own: TensorRows,
    ) -> torch.Tensor:
        """(C, 1 + 2 S): the own loss, the answers' losses, their lengths."""
        from persfl.learners.perceptron_kernels import perceptron_answers

        C, S = their.shape
        out = w.new_empty((C, 1 + 2 * S))
        rows = _size(max(theirs.longest, own.longest))
        perceptron_answers[(C * (S + 1),)](
            w, w.shape[1], their.contiguous(), *_read(theirs), mine, *_read(own), out,
            S, self.steps, self.rate, self.l2, BR=rows, num_warps=rows // 16,
            EVEN=_blocks(theirs, rows), EVEN0=_blocks(own, rows), **self._block(),
        )  # fmt: skip
        return out

    def mixes(
        self,
        w: torch.Tensor,
        their: torch.Tensor,
        weights: torch.Tensor,
        theirs: TensorRows,
    ) -> torch.Tensor:
        """(C, size) models and answers by these weights."""
        from persfl.learners.perceptron_kernels import perceptron_mixes

        out = w.new_empty(w.shape)
        C, K = their.shape
        rows = _size(theirs.longest)
        perceptron_mixes[(C,)](
            w, w.shape[1], their.contiguous(), weights.contiguous(), *_read(theirs), out,
            K, self.steps, self.rate, self.l2, BR=rows, num_warps=rows // 16,
            EVEN=_blocks(theirs, rows), **self._block(),
        )  # fmt: skip
        return out

    def _block(self) -> dict[str, int | str | bool]:
        return {
            "F": self.features,
            "H": self.hidden,
            "C": self.outputs,
            "TANH": self.tanh,
            "LOSS": self.loss,
            "B1": self.biases[0],
            "B2": self.biases[1],
            "EXACT": self.digits,
            "FP": _blocked(self.features),
            "HP": _blocked(self.hidden),
            "OP": _blocked(self.outputs),
            "num_stages": 1,
        }


def linear_program(
    learner: Linear, features: int, proposer: GradientStep
) -> LinearProgram | None:
    """The program of such models; None where there is none."""
    if learner.classes > 1 or not 0 < features <= _WIDEST:
        return None
    return LinearProgram(learner, features, proposer.steps, float(proposer.step_size))


def perceptron_program(
    math: NetworkTensors, features: int, proposer: GradientStep, precision: str
) -> PerceptronProgram | None:
    """The program of such a module; None where there is none."""
    from torch import nn

    layers = _two_layers(math.module)
    if layers is None or math.shape is not None:
        return None
    if math.loss.free or precision == "bf16":
        return None
    first, bend, last = layers
    names = [slot.name for slot in math.slots if slot.begin < math.trained]
    every = math.module.named_parameters(remove_duplicate=False)
    if names != [name for name, _ in every]:  # some are frozen, or one another
        return None
    hidden = _blocked(first.out_features)
    sides = _blocked(features), _blocked(last.out_features)
    if hidden * sides[0] > _MOST or hidden * sides[1] > _MOST // 2:
        return None
    return PerceptronProgram(
        features=features,
        hidden=first.out_features,
        outputs=last.out_features,
        biases=(first.bias is not None, last.bias is not None),
        tanh=isinstance(bend, nn.Tanh),
        loss=math.loss.name,
        l2=float(math.l2),
        steps=proposer.steps,
        rate=float(proposer.step_size),
        digits="tf32" if precision == "tf32" else "tf32x3",
    )


def _two_layers(
    module: nn.Module,
) -> tuple[nn.Linear, nn.Module, nn.Linear] | None:
    """The layers of such a module, if it is one and nobody listens in."""
    from torch import nn

    if type(module) is not nn.Sequential:
        return None
    layers = list(module)
    kinds = [type(layer).__name__ for layer in layers]
    known = [type(layer) in (nn.Linear, nn.ReLU, nn.Tanh) for layer in layers]
    bends = ("ReLU", "Tanh")
    if kinds not in (["Linear", bend, "Linear"] for bend in bends) or not all(known):
        return None
    for layer in (module, *layers):
        hooks = vars(layer)
        if hooks["_forward_hooks"] or hooks["_forward_pre_hooks"]:
            return None
    first, bend, last = layers
    return cast("nn.Linear", first), bend, cast("nn.Linear", last)
