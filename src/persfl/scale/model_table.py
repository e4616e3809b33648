"""The tables of a finished run: one device's row at a time, or all models at once for predictions.

A run folder may come from elsewhere: files are found by their own names, columns and numbers are
looked at before they are used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.checks import some
from persfl.errors import InputError, need
from persfl.files import refuse_links
from persfl.formats import reading
from persfl.learners.shared_trees import WeighedTrees
from persfl.learners.storage.named_arrays import LARGE
from persfl.methods import Blend
from persfl.scale.fleet_arrays import (
    damaged,
    fleet_arrays,
    shared_units_from,
    trees_from,
)
from persfl.scale.run_layout import COEF, FLEET, HELPERS, MODELS
from persfl.scale.shard_reader import column_numbers
from persfl.scale.sharded_run import ShardedRun
from persfl.scale.table_parts import opened_part
from persfl.types import Array, IntArray
from persfl.units import Units

if TYPE_CHECKING:
    import pyarrow as pa


PARTS = (
    "own",
    "fleet",
    "neighbours",
)  # of a model; none where the method does not tell
ERRORS = (
    "error",
    "error_pooled",
)  # none where no rows were held back, or models not tried
MOST = 1_000  # rows of a device in either table
PEER = "peer"
HELPING = ("share", "alike", "error")  # of a peer


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
        found = [row for rows in self._rows(MODELS, device) for row in rows.to_pylist()]
        if not found:
            known = some(self._ids_of(self._parts(MODELS)[0])[:3].to_pylist())
            raise InputError(f"there is no device {device!r}. Known: {known}, ...")
        return dict(found[0])

    def helpers(self, device: str) -> list[dict[str, Any]]:
        """Who helps one device, the most helpful first."""
        self.model(device)  # or there is no such device
        found = [
            row for rows in self._rows(HELPERS, device) for row in rows.to_pylist()
        ]
        return sorted(found, key=lambda row: -row["share"])

    def column(self, name: str) -> Array:
        """(devices,) one column of numbers of the table of models, NaN where nothing is known."""
        found = [self._read(path, [name]) for path in self._parts(MODELS)]
        return np.concatenate([column_numbers(rows, [name])[:, 0] for rows in found])

    def mean_share(self, part: str) -> float | None:
        """How much of a model this part decides, in the mean; None where the method is silent."""
        each = self.column(part)
        if not self._tells_parts:
            return None
        if not (np.abs(each) <= LARGE).all():
            raise damaged(self.run.folder / MODELS)
        return float(each.mean())

    def ids(self) -> pa.Array:
        """(devices,) in order, each once."""
        import pyarrow as pa

        found = [self._ids_of(path) for path in self._parts(MODELS)]
        if len({part.type for part in found}) > 1:
            raise damaged(self.run.folder / MODELS)
        every = pa.concat_arrays(found)
        if every.null_count or len(every.unique()) < len(every):
            raise damaged(self.run.folder / MODELS)
        return every

    def _ids_of(self, path: Path) -> pa.Array:
        """Those of one file; texts are unpacked where each of them is there once."""
        import pyarrow as pa

        with opened_part(path, [self.device], []) as file:
            packed = file.read(columns=[self.device])[self.device]
            if not pa.types.is_dictionary(packed.type):
                return packed.combine_chunks()
            alone = packed.unify_dictionaries().combine_chunks()
            if len(alone.indices.unique()) < len(alone):
                raise InputError("every device must be there once")
            return alone.dictionary_decode()

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
        newcomer = arrays.get("newcomer", np.zeros(0))
        sound = newcomer.dtype == np.float64 and newcomer.shape == (len(names) + 1,)
        if not sound or len(units.mean) != len(names):
            raise damaged(path)
        W = np.concatenate([*found, newcomer[None]])
        ids = self.ids()
        if not np.isfinite(W).all() or len(ids) != len(W) - 1:
            raise damaged(self.run.folder / MODELS)
        with reading(path):
            trees = trees_from(arrays, len(names))
        if any(len(each.place) not in (0, len(ids)) for _, each in trees):
            raise damaged(path)
        return FleetWeights(ids, W, units, trees)

    @property
    def _tells_parts(self) -> bool:
        """Whether it is known what models are made of, and how well those of peers do."""
        return bool(self.run.spec["method"] == Blend.name)

    @property
    def _open(self) -> dict[str, Sequence[str]]:
        """The columns of either table that may have gaps."""
        if self._tells_parts:
            return {MODELS: ERRORS, HELPERS: ()}
        return {MODELS: (*PARTS, *ERRORS), HELPERS: ("error",)}

    @property
    def _numbers(self) -> list[str]:
        """The columns of the table of models, beside the ids."""
        slopes = [COEF + name for name in self.features]
        return ["rows", *slopes, "intercept", *PARTS, "held", *ERRORS]

    def _parts(self, table: str) -> Sequence[Path]:
        found = sorted((self.run.folder / table).glob("part-*.parquet"))
        if not found:
            raise damaged(self.run.folder / table)
        return found

    def _read(self, path: Path, columns: list[str]) -> pa.Table:
        with opened_part(path, [], columns) as file:
            found = file.read(columns=columns)
            if len(found) != file.metadata.num_rows:
                raise InputError("its columns must be as long as it says")
            return found

    def _rows(self, table: str, device: str) -> list[pa.Table]:
        """The rows of one device, from the row groups that may have it."""
        ids = [self.device] if table == MODELS else [self.device, PEER]
        numbers = self._numbers if table == MODELS else HELPING
        found = []
        for path in self._parts(table):
            with opened_part(path, ids, numbers) as file:
                wanted = _as_id(device, file.schema_arrow.field(self.device).type)
                if wanted is None:
                    continue
                for k in _groups_with(file.metadata, self.device, wanted):
                    rows = file.read_row_group(k, columns=[*ids, *numbers])
                    here = rows.filter(_is_of(rows[self.device], wanted))
                    _refuse_gaps(here, numbers, self._open[table])
                    found.append(here.cast(_plain_ids(here.schema)))
        return found


def _is_of(ids: pa.ChunkedArray, wanted: str | int) -> pa.ChunkedArray:
    """(rows,) whether they are of this device; texts are compared where each is there once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(ids.type):
        return pc.equal(ids, wanted)
    value = pa.scalar(wanted, ids.type.value_type)
    found = [pc.equal(one.indices, one.dictionary.index(value)) for one in ids.chunks]
    return pa.chunked_array(found, type=pa.bool_())


def _refuse_gaps(rows: pa.Table, numbers: Sequence[str], but: Sequence[str]) -> None:
    """Stop where a number is missing, but in these columns, or a device has too many rows."""
    if len(rows) > MOST:
        raise InputError(f"a device must have at most {MOST} rows")
    for name in numbers:
        if name not in but and not np.isfinite(column_numbers(rows, [name])).all():
            raise InputError(f"column {name!r} must have no gaps")


def _plain_ids(schema: pa.Schema) -> pa.Schema:
    """The same, ids not packed."""
    import pyarrow as pa

    fields = [
        field.with_type(field.type.value_type)
        if pa.types.is_dictionary(field.type)
        else field
        for field in schema
    ]
    return pa.schema(fields)


def _as_id(text: str, kind: pa.DataType) -> str | int | None:
    """An id as the table has it; None where it can have no such id."""
    import pyarrow as pa

    if not pa.types.is_integer(kind):
        return text
    whole = re.fullmatch("-?[0-9]{1,18}", text)
    return int(text) if whole else None


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
