"""Steps and scores of models that are handed in to the torch engine: what baselines are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from persfl.fleets.engine import Slice
    from persfl.fleets.torch_engine import Torch
    from persfl.seeds import Stream
    from persfl.types import AnyArray, Array


def stepped(engine: Torch, models: Array, movers: Slice, place: Stream) -> Array:
    """(D, size) where a step on these devices' rows takes these models."""
    rows = engine.moved(movers.rows)
    everybody = engine.stays(movers)

    def work(part: slice) -> AnyArray:
        at = None if engine.pairs.batch is None else place[part, None]

        def moved(their: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
            start = start.to(engine.pairs.dtype)
            return engine.pairs.whole(
                engine.pairs.firsts, [start, their[:, None]], [rows], at
            )

        key = ("stepped", chunk_ends(part), everybody)
        return np.array(engine.run(key, moved, movers.which[part], models[part]))

    return np.concatenate(engine.chunked(len(movers.which), 1, rows.longest, work))


def scored(engine: Torch, models: Array, judges: Slice) -> Array:
    """(D, K) the losses of K models on these devices' rows."""
    rows = engine.moved(judges.rows)

    def work(part: slice) -> AnyArray:
        def score(their: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return engine.pairs.whole(engine.pairs.losses, [w, their], [rows], None)

        key = ("scored", chunk_ends(part), len(models))
        return np.array(engine.run(key, score, judges.which[part], models))

    parts = engine.chunked(len(judges.which), len(models), rows.longest, work)
    found = np.concatenate(parts).astype(np.float64)
    return np.where(np.isfinite(found), found, np.inf)


def chunk_ends(part: slice) -> tuple[int, int]:
    """From where to where a chunk goes."""
    return part.start, part.stop
