"""How much memory a pair of the torch engine takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from persfl.fleets.torch_engine import Torch

_TRIED = 8  # pairs whose memory is measured


def pair_bytes(engine: Torch, longest: int) -> float:
    """How many bytes a pair takes whose devices are padded to so many rows: measured on a GPU,
    elsewhere about.
    """
    pairs = engine.pairs
    model = engine.there
    features = engine.rows.scoring.rows.features
    numbers = 6 * model.shape[1] + pairs.row_numbers(longest, features, model[0])
    if engine.device.type != "cuda" or pairs.batch is not None:
        return float(pairs.dtype.itemsize * numbers)
    own = engine.moved(engine.rows.scoring.rows)
    mine = engine.mine()[:1]

    def tried() -> torch.Tensor:
        return pairs.tried(model[:1], mine, own, _TRIED)

    tried()  # libraries take memory of their own once
    taken = engine.runtime.peak(tried)
    return max(1.0, taken / _TRIED * longest / own.longest)
