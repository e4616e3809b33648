"""`--track`: the trackers of a fit on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from persfl.errors import InputError, need
from persfl.tracking.callbacks import Callback
from persfl.tracking.scalars import TensorBoard, WandB

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted

KINDS = ("tensorboard", "mlflow", "wandb")


def trackers(words: list[str]) -> list[Callback]:
    """What --track names: TRACKER=WHERE, each its own way of where."""
    return [_tracker(word) for word in words]


def _tracker(word: str) -> Callback:
    kind, _, where = word.partition("=")
    if kind not in KINDS or not where:
        raise InputError(
            "--track must be tensorboard=FOLDER, mlflow=EXPERIMENT or wandb=PROJECT. Got"
            f" {word!r}."
        )
    if kind == "tensorboard":
        return TensorBoard(where)
    if kind == "wandb":
        wandb: Any = need("wandb", extra="wandb", why="Weights & Biases")
        return WandB(wandb.init(project=where))
    return _MLflowRun(where)


class _MLflowRun(Callback):
    """A run of an experiment, from here to the end of the fit."""

    def __init__(self, experiment: str) -> None:
        from persfl.mlflow import Tracker

        self.mlflow: Any = need("mlflow", extra="track", why="MLflow")
        self.mlflow.set_experiment(experiment)
        self.mlflow.start_run()
        self.inner = Tracker()

    def on_round(self, round_: Any, stage: str) -> None:
        self.inner.on_round(round_, stage)

    def on_fit(self, fitted: Fitted) -> None:
        from persfl.mlflow import log_fitted

        log_fitted(fitted)
        self.mlflow.end_run()
