"""The targets' models where torch computes: from round to round in one place, which recordings
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from persfl.fleets.chip_rounds import ChipRounds
    from persfl.fleets.torch_pairs import TensorPairs
    from persfl.fleets.torch_runtime import Runtime
    from persfl.types import Array, Models


class TensorModels:
    """What an engine holds of its targets."""

    device: torch.device
    pairs: TensorPairs
    runtime: Runtime
    ahead: ChipRounds | None = None
    """Rounds of which one may be under way that nobody asked for yet."""
    _held: torch.Tensor | None = None
    _past: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def there(self) -> torch.Tensor:
        """(T, size) the models where they are computed."""
        if self.ahead is not None:
            self.ahead.take_back()
        assert self._held is not None
        return self._held

    @property
    def past(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(T, size) each: where whole rounds keep the models before the last one that was begun,
        and before the one before.
        """
        if self._past is None:
            models = self.there
            self._past = models.clone(), models.clone()
        return self._past

    @property
    def models(self) -> Array:
        """(T, size) a copy on this side."""
        return np.asarray(self.there.detach().to("cpu", copy=True).numpy())

    @models.setter
    def models(self, models: Models) -> None:
        import torch

        given = models if isinstance(models, np.ndarray) else np.stack(list(models))
        # one model for everybody goes there once
        apart = given[:1] if len(given) and not given.strides[0] else given
        new = torch.tensor(apart, dtype=self.pairs.dtype, device=self.device)
        new = new.expand(given.shape)
        if self._held is None or self.there.shape != new.shape:
            self._held = new.contiguous()
            self._past = None
            self.runtime.forget()
        else:
            self.there.copy_(new)  # recordings read this place
