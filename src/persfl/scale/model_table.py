"""The tables of a finished run: one device's row at a time, or all models at once for predictions.

A run folder may come from elsewhere: files are found by their own names, columns and numbers are
looked at before they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.checks import some
from persfl.errors import InputError, need
from persfl.files import refuse_links
from persfl.learners.shared_trees import WeighedTrees
from persfl.scale.fleet_arrays import (
    damaged,
    fleet_arrays,
    shared_units_from,
    trees_from,
)
from persfl.scale.run_layout import COEF, FLEET, HELPERS, MODELS
from persfl.scale.shard_reader import column_numbers
from persfl.scale.sharded_run import ShardedRun
from persfl.scale.source_files import told_of
from persfl.types import Array, IntArray
from persfl.units import Units

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class FleetWeights:
    """All models in memory: what predictions go by. `W` (devices + 1, features + 1) has the
    intercept last, and in its last row the model for newcomers.
    """

    ids: pa.Array
    W: Array
    units: Units
    trees: WeighedTrees

    def places(self, ids: pa.ChunkedArray) -> IntArray:
        """(rows,) whose model each row goes by, -1 for a newcomer's."""
        import pyarrow.compute as pc

        found = pc.index_in(ids, value_set=self.ids)
        return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)

    def predict(self, X: Array, place: IntArray) -> Array:
        """(rows,) in the label's units."""
        mine = self.W[place]
        said = np.einsum("rj,rj->r", mine[:, :-1], X) + mine[:, -1]
        if self.trees:
            inside = self.units.features(X, place)
            for share, trees in self.trees:
                owner = place if len(trees.place) else np.full(len(X), -1)
                added = trees.predict(inside, owner)
                said += share * self.units.label_scale * added
        return np.asarray(said)


@dataclass(frozen=True, eq=False)
class ModelTable:
    """The tables of a run over shards that is over."""

    run: ShardedRun

    @staticmethod
    def open(folder: str | Path) -> ModelTable:
        """Those of a run folder."""
        need("pyarrow", extra="parquet", why="reading a table of models")
        run = ShardedRun.open(folder)
        if not run.finished:
            raise InputError(
                f"the run in {str(folder)!r} is not over. Go on with the same command and"
                " --resume."
            )
        refuse_links(run.folder, run.folder / MODELS, run.folder / HELPERS)
        return ModelTable(run)

    @property
    def device(self) -> str:
        """The column of ids."""
        return str(self.run.spec["device"])

    @property
    def features(self) -> list[str]:
        """The columns that models predict from."""
        return list(self.run.spec["features"])

    def model(self, device: str) -> dict[str, Any]:
        """The row of one device; a few thousand rows are read for it."""
        return self._rows(MODELS, device).to_pylist()[0]  # type: ignore[no-any-return]

    def helpers(self, device: str) -> list[dict[str, Any]]:
        """Who helps one device, the most helpful first."""
        self.model(device)  # or there is no such device
        found = self._rows(HELPERS, device).to_pylist()
        return sorted(found, key=lambda row: -row["share"])

    def column(self, name: str) -> Array:
        """(devices,) one column of numbers of the table of models, NaN where nothing is known."""
        import pyarrow as pa

        found = [self._read(path, [name])[name] for path in self._parts(MODELS)]
        numbers = [column.cast(pa.float64()).to_numpy() for column in found]
        return np.concatenate(numbers)

    def ids(self) -> pa.Array:
        """(devices,) in order."""
        import pyarrow as pa

        name = self.device
        found = [self._read(path, [name])[name] for path in self._parts(MODELS)]
        return pa.chunked_array([chunk for one in found for chunk in one.chunks])

    @cached_property
    def weights(self) -> FleetWeights:
        """All models, to predict by."""
        path = self.run.folder / FLEET
        arrays = fleet_arrays(path)
        units = shared_units_from(arrays, path)
        names = self.features
        wanted = [*(COEF + name for name in names), "intercept"]
        found = [
            column_numbers(self._read(part, wanted), wanted)
            for part in self._parts(MODELS)
        ]
        newcomer = arrays.get("newcomer")
        sound = newcomer is not None and newcomer.shape == (len(names) + 1,)
        if not sound or len(units.mean) != len(names):
            raise damaged(path)
        W = np.concatenate([*found, newcomer[None]])  # type: ignore[index]
        ids = self.ids().combine_chunks()
        if not np.isfinite(W).all() or len(ids) != len(W) - 1:
            raise damaged(self.run.folder / MODELS)
        return FleetWeights(ids, W, units, trees_from(arrays, len(names)))

    def _parts(self, table: str) -> Sequence[Path]:
        return sorted((self.run.folder / table).glob("part-*.parquet"))

    def _read(self, path: Path, columns: list[str]) -> pa.Table:
        import pyarrow.parquet as pq

        with told_of(path), pq.ParquetFile(path) as file:
            _refuse_absent(file.schema_arrow.names, columns, path)
            return file.read(columns=columns)

    def _rows(self, table: str, device: str) -> pa.Table:
        """The rows of one device, from the row groups that may have it."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        found = []
        for path in self._parts(table):
            with told_of(path), pq.ParquetFile(path) as file:
                _refuse_absent(file.schema_arrow.names, [self.device], path)
                wanted = _as_id(device, file.schema_arrow.field(self.device).type)
                for k in _groups_with(file.metadata, self.device, wanted):
                    rows = file.read_row_group(k)
                    here = rows.filter(pc.equal(rows[self.device], wanted))
                    found.append(here)
        rows = pa.concat_tables(found) if found else None
        if table == MODELS and (rows is None or not len(rows)):
            known = some([one.as_py() for one in self._first_ids()])
            raise InputError(f"there is no device {device!r}. Known: {known}, ...")
        return rows

    def _first_ids(self) -> list[Any]:
        path = self._parts(MODELS)[0]
        return list(self._read(path, [self.device])[self.device][:3])


def _as_id(text: str, kind: pa.DataType) -> str | int:
    """An id as the table has it."""
    import pyarrow as pa

    if not pa.types.is_integer(kind):
        return text
    try:
        return int(text)
    except ValueError:
        raise InputError(f"ids are whole numbers here. Got {text!r}.") from None


def _groups_with(about: Any, column: str, wanted: str | int) -> list[int]:
    """The row groups whose range of ids has this one in it."""
    found = []
    for k in range(about.num_row_groups):
        group = about.row_group(k)
        names = [group.column(j).path_in_schema for j in range(group.num_columns)]
        facts = group.column(names.index(column)).statistics
        known = facts is not None and facts.has_min_max
        if not known or facts.min <= wanted <= facts.max:
            found.append(k)
    return found


def _refuse_absent(names: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    if any(name not in names for name in wanted):
        raise damaged(path)
