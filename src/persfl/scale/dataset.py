"""A folder of Parquet or CSV files to fit, larger than memory maybe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from persfl.errors import InputError
from persfl.files import refuse_links
from persfl.scale.shard_index import NAME, ShardIndex, is_unfinished
from persfl.scale.shard_reader import TableColumns
from persfl.scale.sharded_run import other_rows, refuse_foreign
from persfl.scale.sharding import Say, shard_folder
from persfl.scale.source_files import SourceFiles, told_of
from persfl.sources.unpacking import refuse_packed_parquet


@dataclass(frozen=True)
class ParquetDataset:
    """Rows in a folder: `device` and `label` name their columns, `features` those to predict from
    (all others without it), `weight` how much each row counts.

    Folders of shards (`persfl shard`) are taken as they are; rows of others are sorted first.

    >>> ParquetDataset("meters", device="meter", label="kwh").folder
    'meters'
    """

    folder: str | Path
    device: str
    label: str
    features: tuple[str, ...] | None = None
    weight: str | None = None

    def shards(self, place: Path, say: Say | None = None) -> ShardIndex:
        """Its shards, sorted into `place`, in the folder of a run, where it has none."""
        table = Path(self.folder)
        if (table / NAME).is_file():
            index = ShardIndex.read(table)
            if index.device != self.device:
                raise InputError(
                    f"these shards are by {index.device!r}, not by {self.device!r}. Name that"
                    " column as the device, or shard the rows again."
                )
            for shard in index.shards:
                path = table / shard.file
                if path.is_file():  # a worker that misses it says so
                    with told_of(path):
                        refuse_packed_parquet(path, texts=True)
            return index
        for folder in (place.parent, place):
            if folder.is_dir():
                refuse_links(folder)
        if (place / NAME).is_file() and not is_unfinished(place):
            index = ShardIndex.read(place)
            if index.source == SourceFiles.of(table, self.device).stamp:
                return index
            raise other_rows(place.parent)
        refuse_foreign(place.parent)
        return shard_folder(table, place, device=self.device, say=say)

    def columns(self, index: ShardIndex) -> TableColumns:
        """Which columns are what."""
        special = (self.device, self.label, self.weight)
        others = tuple(name for name in index.columns if name not in special)
        features = others if self.features is None else tuple(self.features)
        return TableColumns(self.label, features, self.weight)
