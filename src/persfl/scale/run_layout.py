"""The files of the folder of a run over shards.

sharded.json      what was asked; once it is over, what came out
shards/           the rows by device, where the fit had to sort them itself
fleet.npz         units, trees and the model for newcomers: what predictions need beside models
models/           a Parquet table, one row a device
helpers/          a Parquet table, one row for each helper of a device
learned.npz, learned.json, trial.npz, made.jsonl, rounds-trial.npz, rounds-final.npz
                  until the run is over: what the fleet knows, which shards have models, and where
                  the rounds of a method stand
"""

from __future__ import annotations

SHARDS = "shards"
FLEET = "fleet.npz"
MODELS = "models"
HELPERS = "helpers"
COEF = "coef_"  # how columns of coefficients begin
FINAL = "learned.npz"
TRIAL = "trial.npz"
MADE = "made.jsonl"
FACTS = "learned.json"
STAGES = ("trial", "final")


def part_name(shard: int) -> str:
    """The file of a shard.

    >>> part_name(3)
    'part-00003.parquet'
    """
    return f"part-{shard:05d}.parquet"


def rounds_name(stage: str) -> str:
    """The file of the rounds of a stage."""
    return f"rounds-{stage}.npz"
