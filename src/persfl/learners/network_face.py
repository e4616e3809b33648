"""The face of a network to engines: on tensors, one model and one device's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from persfl.learners.network_batches import NetworkBatches
    from persfl.learners.network_tensors import CutNetwork, NetworkTensors
    from persfl.traits import Parts


class NetworkFace:
    """See `persfl.traits.TensorLearner`."""

    _tensors: NetworkTensors
    _batches: NetworkBatches

    @property
    def precision(self) -> str:
        """How many digits it is computed with; see `Network.on`."""
        return self._batches.precision

    @property
    def memory(self) -> float | None:
        """How many GiB it may take at once; see `Network.on`."""
        return self._batches.memory

    @property
    def tensors(self) -> NetworkTensors:
        """What the module computes for one device, on tensors."""
        return self._tensors

    @property
    def width(self) -> int:
        """About how many numbers a row takes on its way through the module and back."""
        return self._tensors.width

    def width_of_output(self, features: int) -> int:
        """How many numbers the module says about a row."""
        return self._tensors.width_of_output(features)

    def cut(self, features: int) -> CutNetwork | None:
        """What steps are taken with behind a frozen body, where the module has one."""
        return self._tensors.cut(features)

    def parts(self, w: torch.Tensor) -> tuple[Parts, Parts]:
        """Named views of a model's vector: parameters, and buffers, which steps do not change."""
        return self._tensors.parts(w)

    def joined(self, parts: Parts) -> torch.Tensor:
        """The vector again."""
        return self._tensors.joined(parts)

    def said(self, parts: Parts, X: torch.Tensor) -> torch.Tensor:
        """(rows, outputs) what the module says."""
        return self._tensors.said(parts, X)

    def outputs(self, w: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        """(rows, outputs) what the module says."""
        return self._tensors.outputs(w, X)

    def slopes(self, w: torch.Tensor, *rows: torch.Tensor) -> torch.Tensor:
        """(size,) the gradient for `X, y, weight`; 0 for running statistics, and without rows."""
        return self._tensors.slopes(w, *rows)

    def part_loss(self, parts: Parts, *rows: torch.Tensor) -> torch.Tensor:
        """The weighted mean loss for `X, y, weight`."""
        return self._tensors.part_loss(parts, *rows)

    def part_slopes(self, parts: Parts, fixed: Parts, *rows: torch.Tensor) -> Parts:
        """Its gradient by part."""
        return self._tensors.part_slopes(parts, fixed, *rows)
