"""A fleet in MLflow: one pyfunc model for all devices, with the run's page and numbers.

The model is a run folder, so nothing is pickled. Its rows have the device in a column of their own,
by the name that the fit had for it, or `device`.

    persfl.mlflow.log_model(model)                    # inside mlflow.start_run()
    mlflow.pyfunc.load_model(uri).predict(table)
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from persfl.errors import InputError, need
from persfl.fitting.fitted import HasFitted, fitted_of
from persfl.report.html import write_report
from persfl.report.info import info
from persfl.report.model_card import model_card
from persfl.runs.model import save_model
from persfl.runs.model_reader import load_model
from persfl.tracking.callbacks import Callback, fleet_metrics, round_metrics

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted
    from persfl.types import Round

DEVICE = "device"


class Tracker(Callback):
    """Logs curves of the fleet to the active MLflow run, and what came out at the end."""

    def on_round(self, round_: Round, stage: str) -> None:
        """A point on every curve."""
        found = round_metrics(round_)
        named = {f"{stage}.{name}": value for name, value in found.items()}
        _mlflow().log_metrics(named, step=round_.r)

    def on_fit(self, fitted: Fitted) -> None:
        """What came out."""
        _mlflow().log_metrics(fleet_metrics(fitted))


def log_model(
    model: HasFitted, name: str = "fleet", *, label: str = "y", **more: Any
) -> Any:
    """Log a fitted estimator to the active run: a pyfunc model of the whole fleet, its report and
    model card as artifacts, verdict and errors as metrics, the method as a parameter.

    `more` goes to `mlflow.pyfunc.log_model`, such as `registered_model_name`.
    """
    return log_fitted(fitted_of(model), name, label=label, **more)


def log_fitted(
    fitted: Fitted, name: str = "fleet", *, label: str = "y", **more: Any
) -> Any:
    """As `log_model`, of the value behind an estimator."""
    mlflow = _mlflow()
    device = fitted.schema.device or DEVICE
    if device in fitted.schema.inputs:
        raise InputError(
            f"a feature is called {device!r}, which is the name of the device's column here. Name"
            " the column of devices when fitting: device=..."
        )
    with tempfile.TemporaryDirectory() as made:
        run = Path(made) / "run"
        save_model(fitted, run)
        page = Path(made) / "report.html"
        write_report(info(fitted, device=device, label=label), page)
        card = Path(made) / "card.md"
        card.write_text(
            model_card(fitted, {"device": device, "label": label}), encoding="utf-8"
        )
        mlflow.log_artifact(str(page))
        mlflow.log_artifact(str(card))
        mlflow.log_param("method", fitted.ran)
        mlflow.log_metrics(fleet_metrics(fitted))
        return mlflow.pyfunc.log_model(
            name=name,
            loader_module=__name__,
            data_path=str(run),
            signature=_signature(fitted, device),
            pip_requirements=["persfl[app]"],
            **more,
        )


def _signature(fitted: Fitted, device: str) -> Any:
    """The columns of a table to predict, the device's first. MLflow takes no whole numbers for
    doubles, and a feature may be either, so numbers are of any type.
    """
    types = need("mlflow.types.schema", extra="track", why="MLflow")
    signatures = need("mlflow.models.signature", extra="track", why="MLflow")
    texts = fitted.schema.preparation.texts if fitted.schema.preparation else []
    whose = "string" if isinstance(fitted.devices.tolist()[0], str) else "long"
    kinds = {
        name: "string" if name in texts else types.AnyType()
        for name in fitted.schema.inputs
    }
    columns = [
        types.ColSpec(kind, name) for name, kind in ({device: whose} | kinds).items()
    ]
    return signatures.ModelSignature(inputs=types.Schema(columns))


class _Fleet:
    """What MLflow predicts with."""

    def __init__(self, folder: str) -> None:
        self.model = load_model(folder)
        self.device = self.model.fitted_.schema.device or DEVICE

    def predict(self, table: pd.DataFrame, params: Any = None) -> Any:
        """(rows,) values or labels, each row by its own device's model."""
        if self.device not in table.columns:
            raise InputError(f"the table has no column {self.device!r}: whose rows?")
        if self.model.device is not None:
            return self.model.predict(table)
        return self.model.predict(
            table.drop(columns=self.device), devices=table[self.device]
        )


def _load_pyfunc(path: str) -> _Fleet:
    """What MLflow calls to open the model."""
    return _Fleet(path)


def _mlflow() -> Any:
    return need("mlflow", extra="track", why="MLflow")
