"""Public points on tensors, which carry what targets' models say of them to peers that refit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from persfl.traits import traits_of

if TYPE_CHECKING:
    import torch

    from persfl.proposers.refit import Refit
    from persfl.traits import Parts, TensorMath
    from persfl.types import Learner

    Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # X, y, weight


class CarriedPoints:
    """The points, and how a proposer puts them beside private rows."""

    def __init__(
        self, points: torch.Tensor, proposer: Refit, learner: Learner, math: TensorMath
    ) -> None:
        self.points = points
        self.proposer = proposer
        self.traits = traits_of(learner)
        self.learner = learner
        self.math = math

    @property
    def soft(self) -> bool:
        """Whether points carry chances."""
        return self.proposer.softly(self.learner)

    def beside(self, rows: Rows, parts: Parts) -> Rows:
        """Private rows and the public points that carry the target's model, as
        `persfl.proposers.refit` puts them together.
        """
        import torch

        proposer = self.proposer
        X, y, weight = rows
        C, S = X.shape[:2]
        points, labels, mass = self._carried(parts, proposer.point_weight)
        if proposer.private_weight is None:
            total = weight.sum(dim=-1, keepdim=True)
            weight = proposer.step_size * weight / torch.where(total > 0, total, 1.0)
        else:
            weight = proposer.private_weight * weight
        size = labels.shape[-1]
        return (
            torch.cat([X, points.expand(C, S, size, -1)], dim=2),
            torch.cat([y, labels[:, None].expand(C, S, size)], dim=2),
            torch.cat([weight, mass[:, None].expand(C, S, size)], dim=2),
        )

    def _carried(self, parts: Parts, weight: float) -> Rows:
        """The points, what the targets' models say of them, and what that weighs."""
        import torch
        from torch.func import vmap

        points = self.points
        z = vmap(self.math.said, in_dims=(0, None))(parts, points)
        if not self.traits.chances:
            return points, z[..., 0], torch.full_like(z[..., 0], weight)
        chances = (
            z.softmax(dim=-1)
            if self.traits.loss == "cross_entropy"
            else torch.cat([-z, z], dim=-1).sigmoid()
        )
        if not self.soft:
            labels = chances.argmax(dim=-1).to(points.dtype)
            return points, labels, torch.full_like(labels, weight)
        # every point once for each class, by its chance
        k = chances.shape[-1]
        classes = torch.arange(k, device=points.device).to(points.dtype)
        mass = weight * chances.flatten(start_dim=1)
        return (
            points.repeat_interleave(k, dim=0),
            classes.repeat(len(z), len(points)),
            mass,
        )

    def rows_of(self, model: torch.Tensor) -> int:
        """How many rows the points are: once per class where they carry chances."""
        if not self.soft:
            return len(self.points)
        moving, fixed = self.math.parts(model)
        said = self.math.said(moving | fixed, self.points[:1])
        return len(self.points) * max(2, int(said.shape[-1]))
