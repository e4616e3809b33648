"""Trackers that draw curves: TensorBoard, and Weights & Biases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from persfl.errors import need
from persfl.tracking.callbacks import Callback, fleet_metrics, round_metrics

if TYPE_CHECKING:
    from pathlib import Path

    from persfl.fitting.fitted import Fitted
    from persfl.types import Round


class TensorBoard(Callback):
    """Writes curves of the fleet for `tensorboard --logdir FOLDER` (packages torch, tensorboard).

    Tags are `trial-0/loss`, `final/adopted` and so on, and `fleet/gain` at the end.
    """

    def __init__(self, folder: str | Path) -> None:
        boards = need(
            "torch.utils.tensorboard", extra="track", why="writing for TensorBoard"
        )
        self.writer: Any = boards.SummaryWriter(str(folder))

    def on_round(self, round_: Round, stage: str) -> None:
        """A point on every curve."""
        for name, value in round_metrics(round_).items():
            self.writer.add_scalar(f"{stage}/{name}", value, round_.r)

    def on_fit(self, fitted: Fitted) -> None:
        """What came out; then the file is complete."""
        for name, value in fleet_metrics(fitted).items():
            self.writer.add_scalar(f"fleet/{name}", value, 0)
        self.writer.close()


class WandB(Callback):
    """Logs to a run of Weights & Biases, as `wandb.init` gives it."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def on_round(self, round_: Round, stage: str) -> None:
        """One step; curves of a stage share a beginning of their names."""
        found = round_metrics(round_)
        self.run.log(
            {f"{stage}/{name}": value for name, value in found.items()}
            | {f"{stage}/round": round_.r}
        )

    def on_fit(self, fitted: Fitted) -> None:
        """What came out, in the run's summary."""
        self.run.summary.update(fleet_metrics(fitted))
