"""Devices' rows on a device such as a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from persfl.devices import Devices

if TYPE_CHECKING:
    import torch


class Rows:
    """Devices' rows as tensors: a device's are a slice, gathered for the pairs at hand."""

    def __init__(self, rows: Devices, device: Any, dtype: Any) -> None:
        import torch

        self.devices = rows
        self.X, self.y, self.weight = (torch.as_tensor(part).to(device, dtype) for part in (rows.X, rows.y, rows.weight))
        self.start = torch.as_tensor(rows.start[:-1].copy()).to(device)
        self.counts = torch.as_tensor(rows.counts).to(device)
        self.longest = max(1, int(rows.counts.max(initial=1)))
        self.even = len(rows) * self.longest == len(rows.X)
        self.slots = torch.arange(self.longest, device=device)
        if self.even:
            self.X, self.y, self.weight = (t.reshape(len(rows), self.longest, *t.shape[1:]) for t in (self.X, self.y, self.weight))

    def __getitem__(self, which: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Padded rows, leading axes as `which`; weight 0 where there are none."""
        import torch

        somebody = which >= 0
        safe = which.clamp_min(0)
        if self.even:
            return self.X[safe], self.y[safe], self.weight[safe] * somebody[..., None]
        real = (self.slots < self.counts[safe][..., None]) & somebody[..., None]
        at = torch.where(real, self.start[safe][..., None] + self.slots, 0)
        return self.X[at], self.y[at], self.weight[at] * real
