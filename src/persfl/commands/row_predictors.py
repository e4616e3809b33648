"""What predicts the rows of a table: the models of a run folder, or the one that a node keeps."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from persfl.checks import named
from persfl.column_checks import refuse_text
from persfl.commands.run_tables import read_like_fit
from persfl.commands.user_module import load_module
from persfl.errors import InputError, UnseenWarning
from persfl.fitting.fitted import Fitted
from persfl.fitting.schema import TableSchema
from persfl.learners.responses import respond
from persfl.runs.model_checks import spec_of
from persfl.runs.model_reader import read_fitted
from persfl.runs.run_folder import Folder
from persfl.sources.table import read_frame
from persfl.types import Array
from persfl.units import Units

if TYPE_CHECKING:
    from persfl.federation.model_store import StoredModel

NODE = "node.toml"  # what tells a node's folder from a run's
_NO_MEANS = (
    "this run keeps no column means to fill gaps with. Fit again with --impute, or leave those"
    " rows without a prediction: --missing skip."
)


class RowPredictor(Protocol):
    """Whoever predicts rows of a table."""

    @property
    def schema(self) -> TableSchema: ...

    @property
    def features(self) -> list[str]:
        """Columns that the table must have."""
        ...

    @property
    def device(self) -> str | None:
        """The column that says whose row it is; None where all are one device's."""
        ...

    @property
    def means(self) -> Units | None:
        """The means of columns that gaps may be filled with."""
        ...

    def read(self, path: Path) -> pd.DataFrame:
        """The table."""
        ...

    def answers(self, X: Array, whose: pd.Series) -> Array:
        """(rows,) values, or (rows, classes) chances."""
        ...


class RunPredictor(NamedTuple):
    """Every row by its own device's model of a run folder."""

    fitted: Fitted
    spec: Mapping[str, Any]

    @property
    def schema(self) -> TableSchema:
        return self.fitted.schema

    @property
    def features(self) -> list[str]:
        return list(self.spec["features"])

    @property
    def device(self) -> str | None:
        return str(self.spec["device"])

    @property
    def means(self) -> Units | None:
        both = (self.fitted.units, self.fitted.pooled_units)
        return next((units for units in both if units and units.kind == "shared"), None)

    def read(self, path: Path) -> pd.DataFrame:
        return read_like_fit(path, self.spec)

    def answers(self, X: Array, whose: pd.Series) -> Array:
        with warnings.catch_warnings():
            # said already, in the words of the command
            warnings.simplefilter("ignore", UnseenWarning)
            return self.fitted.respond(X, whose, unseen="pooled")


class NodePredictor(NamedTuple):
    """All rows by the model that a node keeps at home."""

    stored: StoredModel
    schema: TableSchema

    @property
    def features(self) -> list[str]:
        return self.schema.inputs

    @property
    def device(self) -> str | None:
        return None

    @property
    def means(self) -> Units | None:
        return None if self.stored.terms.mean is None else self._units

    @property
    def _units(self) -> Units:
        from persfl.federation.result import units_of

        return units_of(self.stored.terms, 1)

    def read(self, path: Path) -> pd.DataFrame:
        frame = read_frame(path)
        absent = [name for name in self.features if name not in frame.columns]
        if absent:
            what = f"{path.name!r} has no {named(absent, 'column')}"
            raise InputError(f"{what}, which the model of this node was made for.")
        return frame

    def answers(self, X: Array, whose: pd.Series) -> Array:
        terms = self.stored.terms
        here = np.zeros(len(X), dtype=np.int64)
        inside = self._units.features(X, here)
        found = respond(terms.learner(), self.stored.model, inside, terms.classes)
        return found if terms.classes else self._units.outside(found, here)


def predictor_of(chosen: argparse.Namespace) -> RowPredictor:
    """Who predicts: a run folder, or a node's."""
    place = Path(chosen.run)
    if (place / NODE).is_file():
        return _of_node(place, chosen.module)
    folder = Folder.open(place)
    _refuse_own(folder, chosen.out)
    spec = spec_of(folder)
    module = load_module(chosen.module) if chosen.module else None
    fitted = read_fitted(folder, module=module)[0]
    if fitted.schema.names not in (None, tuple(spec["features"])):
        where = str(folder.path / "spec.json")
        raise InputError(
            f"{where!r} names other columns than the run's models were fitted to."
        )
    return RunPredictor(fitted, spec)


def _of_node(place: Path, network: str | None) -> NodePredictor:
    """The model that changed last at a node."""
    from persfl.federation.federation_folder import read_node
    from persfl.federation.model_store import Shelf
    from persfl.federation.node_folder import MODELS
    from persfl.federation.result import schema_of

    levels = read_node(place).categories
    stored = Shelf(place / MODELS).latest(network=network)
    return NodePredictor(stored, schema_of(stored.terms, levels))


def _refuse_own(folder: Folder, out: str | None) -> None:
    """Stop where predictions would be written over the run that makes them."""
    files = [(folder.path / name).resolve() for name in folder.index["files"]]
    if out is not None and Path(out).resolve() in files:
        raise InputError(
            f"--out {out!r} is a file of the run itself. Choose another file."
        )


def filled(X: pd.DataFrame, source: RowPredictor) -> pd.DataFrame:
    """The table with gaps filled as a fit with --impute fills them: by the means of the rows that
    models were made from, and their most frequent categories.
    """
    schema = source.schema
    if schema.impute or not X.isna().to_numpy().any():
        return X
    means = source.means
    if means is None:
        raise InputError(_NO_MEANS)
    known = dict(zip(schema.columns, means.mean.tolist(), strict=True))
    preparation = schema.preparation
    texts = {}
    if preparation is not None:
        texts = dict(zip(preparation.texts, preparation.known, strict=True))
    numbers = [name for name in X.columns if name not in texts]
    refuse_text(X[numbers])
    found = {}
    for name in numbers:
        values = X[name].to_numpy(dtype=np.float64, na_value=np.nan)
        found[name] = np.where(np.isnan(values), known[name], values)
    for name, levels in texts.items():
        shares = [known[f"{name}={level}"] for level in levels]
        usual = levels[int(np.argmax(shares))]
        found[name] = X[name].astype(object).where(X[name].notna(), usual).to_numpy()
    return pd.DataFrame(found, index=X.index)[list(X.columns)]


def chance_columns(found: Array, classes: NDArray[Any] | None) -> dict[str, Any]:
    """Predictions as columns: values, or the likeliest class and a chance for each."""
    if classes is None:
        return {"prediction": found}
    columns: dict[str, Any] = {"prediction": classes[found.argmax(axis=1)]}
    for k, label in enumerate(classes.tolist()):
        columns[f"chance_{label}"] = found[:, k]
    return columns
