"""A linear learner's losses and slopes on tensors, in closed form: what
`persfl.learners.linear` says, for one device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from persfl.learners.linear import ROUNDING, Linear

if TYPE_CHECKING:
    import torch

    Parts = dict[str, torch.Tensor]


class LinearTensors:
    """What `persfl.fleets.torch_engine` computes with, for `Linear`; `torch.func.vmap` adds axes.

    `fused` writes products as sums, which a compiler turns into one pass over rows where they lie;
    without one products are faster.
    """

    width = 4  # about how many numbers a row takes inside the model, there and back

    def __init__(self, learner: Linear, *, fused: bool) -> None:
        self.learner = learner
        self.fused = fused and learner.classes == 1

    def parts(self, w: torch.Tensor) -> tuple[Parts, Parts]:
        """What steps change, and what they do not."""
        return {"w": w}, {}

    def joined(self, parts: Parts) -> torch.Tensor:
        """The inverse of `parts`."""
        return parts["w"]

    def _scores(
        self, w: torch.Tensor, X: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        d = X.shape[-1]
        W = w.view(self.learner.classes, d + self.learner.intercept)
        z = (X * W[0, :d]).sum(dim=1, keepdim=True) if self.fused else X @ W[:, :d].T
        return (z + W[:, d] if self.learner.intercept else z), W

    def part_loss(
        self, parts: Parts, X: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """The weighted mean loss."""
        import torch

        z, W = self._scores(parts["w"], X)
        kind = self.learner.kind
        total = weight.sum()
        if kind == "multinomial":
            each = torch.logsumexp(z, dim=1) - z.gather(1, y.long()[:, None])[:, 0]
        else:
            each = self._value(z[:, 0], y)
        value = (torch.where(weight > 0, each, 0.0) * weight).sum() / total
        if kind in ("squared", "huber"):
            value = torch.where(
                value < ROUNDING * (weight * y**2).sum() / total, 0.0, value
            )
        elif kind == "absolute":
            value = torch.where(
                value < ROUNDING**0.5 * (weight * y.abs()).sum() / total, 0.0, value
            )
        return (
            value + self.learner.l2 * (W[:, : X.shape[-1]] ** 2).sum()
            if self.learner.l2
            else value
        )

    def _value(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        import torch
        from torch.nn import functional as F

        kind = self.learner.kind
        delta = self.learner.delta
        away = z - y
        if kind == "squared":
            return away**2
        if kind == "absolute":
            return away.abs()
        if kind == "huber":
            return torch.where(
                away.abs() <= delta, 0.5 * away**2, delta * (away.abs() - 0.5 * delta)
            )
        if kind == "logistic":
            return F.softplus(z) - y * z
        return z.exp() - y * z

    def part_slopes(
        self,
        parts: Parts,
        fixed: Parts,
        X: torch.Tensor,
        y: torch.Tensor,
        weight: torch.Tensor,
    ) -> Parts:
        """The gradient of `part_loss`."""
        import torch

        z, W = self._scores(parts["w"], X)
        kind = self.learner.kind
        total = weight.sum()
        share = (weight / torch.where(total > 0, total, 1.0))[:, None]
        if kind == "multinomial":
            slope = torch.softmax(z, dim=1) - (
                y[:, None] == torch.arange(self.learner.classes, device=y.device)
            ).to(z.dtype)
        else:
            slope = self._slope(z[:, 0], y)[:, None]
        pull = torch.where(share > 0, slope, 0.0) * share
        G = (pull * X).sum(dim=0, keepdim=True) if self.fused else pull.T @ X
        if self.learner.l2:
            G = G + 2.0 * self.learner.l2 * W[:, : X.shape[-1]]
        if self.learner.intercept:
            G = torch.cat([G, pull.sum(dim=0)[:, None]], dim=1)
        return {"w": G.reshape(-1)}

    def _slope(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        kind = self.learner.kind
        delta = self.learner.delta
        away = z - y
        if kind == "squared":
            return 2.0 * away
        if kind == "absolute":
            return away.sign()
        if kind == "huber":
            return away.clamp(-delta, delta)
        return (z.sigmoid() if kind == "logistic" else z.exp()) - y

    def said(self, parts: Parts, X: torch.Tensor) -> Any:
        """(rows, scores) what the model says."""
        return self._scores(parts["w"], X)[0]
