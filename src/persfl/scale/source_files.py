"""A folder of Parquet or CSV files as one table that is read piece by piece.

All files must have the same columns of the same types: that is looked at once, before any row
is read. Whole numbers of a CSV are read as numbers, since a later line may have a fraction, and
its ids as texts.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persfl.checks import named, repeated, some
from persfl.errors import InputError, need
from persfl.sources.unpacking import refuse_packed_parquet

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".tsv", ".gz")
PIECE = 2**20  # rows that are looked at together


@dataclass(frozen=True)
class SourceFiles:
    """The files of a folder in the order of their names, and the columns that all of them have."""

    files: tuple[Path, ...]
    schema: pa.Schema
    device: str

    @staticmethod
    def of(folder: str | Path, device: str) -> SourceFiles:
        """The files below a folder, or one file alone.

        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "may.csv").write_text("meter,kwh\\na,1\\nb,2\\n")
        >>> SourceFiles.of(folder, "meter").schema.names
        ['meter', 'kwh']
        """
        need("pyarrow", extra="parquet", why="reading a folder of Parquet files")
        files = _files_below(Path(folder))
        first = _columns_of(files[0], device)
        if device not in first.names:
            raise InputError(
                f"{files[0].name!r} has no column {device!r}. Its columns:"
                f" {some(first.names, 10)}."
            )
        _refuse_kind(first.field(device).type, device)
        for path in files[1:]:
            _refuse_other(path, _columns_of(path, device), files[0], first)
        return SourceFiles(files, first, device)

    @property
    def stamp(self) -> str:
        """A short text that other files, or the same changed since, do not have."""
        about = [(path.name, path.stat()) for path in self.files]
        lines = [f"{name} {now.st_size} {now.st_mtime_ns}" for name, now in about]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def pieces(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All rows in order, about so many together that they fill little memory."""
        wanted = list(columns or self.schema.names)
        for path in self.files:
            yield from self._of_file(path, wanted)

    def _of_file(self, path: Path, wanted: list[str]) -> Iterator[pa.Table]:
        import pyarrow as pa

        schema = pa.schema([self.schema.field(name) for name in wanted])
        waiting: list[Any] = []
        rows = 0
        with told_of(path):
            for batch in _batches(path, self.schema, wanted, self.device):
                waiting.append(batch)
                rows += len(batch)
                if rows >= PIECE:
                    yield pa.Table.from_batches(waiting).select(wanted).cast(schema)
                    waiting = []
                    rows = 0
            if waiting:
                yield pa.Table.from_batches(waiting).select(wanted).cast(schema)


@contextlib.contextmanager
def told_of(path: Path) -> Iterator[None]:
    """What pyarrow says of a file that it cannot read, as a sentence that names the file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        first = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(
            f"{str(path)!r} could not be read: {first}. Repair it, or take it out of the folder."
        ) from error


def _files_below(folder: Path) -> tuple[Path, ...]:
    if folder.is_file():
        return (folder,)
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r}.")
    # what other programs keep beside the data begins with a dot or an underscore
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in (*PARQUET, *CSV)
        and not any(part[0] in "._" for part in path.relative_to(folder).parts)
        and path.is_file()
    )
    if not found:
        raise InputError(
            f"there are no .parquet or .csv files in {str(folder)!r}. Name the folder that"
            " holds them."
        )
    return tuple(found)


def _columns_of(path: Path, device: str) -> pa.Schema:
    """What a file holds, by its head alone; of a CSV by its first lines."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with told_of(path):
        if path.suffix.lower() in PARQUET:
            refuse_packed_parquet(path, texts=True)
            schema = pq.read_schema(path).remove_metadata()
        else:
            with _open_csv(path, None) as reader:
                schema = pa.schema([_wide(field, device) for field in reader.schema])
    blank = [name for name in schema.names if name != name.strip()]
    if blank and path.suffix.lower() not in PARQUET:
        raise InputError(
            f"{str(path)!r} has blanks around the name of column {blank[0]!r}. Remove them."
        )
    twice = repeated(schema.names)
    if twice:
        raise InputError(f"{str(path)!r} has two columns {twice[0]!r}. Rename one.")
    return schema


def _wide(field: pa.Field, device: str) -> pa.Field:
    """Numbers of a CSV may have a fraction further down, and ids zeros in front."""
    import pyarrow as pa

    if field.name == device:
        return pa.field(device, pa.string())
    whole = pa.types.is_integer(field.type)
    return pa.field(field.name, pa.float64()) if whole else field


def _open_csv(path: Path, schema: pa.Schema | None) -> Any:
    from pyarrow import csv

    types = None
    if schema is not None:
        types = {field.name: field.type for field in schema}
    mark = "\t" if ".tsv" in path.name.lower() else ","
    return csv.open_csv(
        path,
        parse_options=csv.ParseOptions(delimiter=mark),
        convert_options=csv.ConvertOptions(column_types=types),
    )


def _batches(
    path: Path, schema: pa.Schema, wanted: list[str], device: str
) -> Iterator[Any]:
    import pyarrow.parquet as pq

    if path.suffix.lower() in PARQUET:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=PIECE, columns=wanted)
    else:
        with _open_csv(path, schema) as reader:
            for batch in reader:
                yield _without_blanks(batch, device)


def _without_blanks(batch: Any, device: str) -> Any:
    """A piece of a CSV whose ids have no blanks around them, as in one process."""
    import pyarrow.compute as pc

    at = batch.schema.get_field_index(device)
    return batch.set_column(
        at, batch.schema.field(at), pc.utf8_trim_whitespace(batch[device])
    )


def _refuse_kind(kind: pa.DataType, device: str) -> None:
    import pyarrow as pa

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    text = pa.types.is_string(plain) or pa.types.is_large_string(plain)
    if not text and not pa.types.is_integer(plain):
        raise InputError(
            f"column {device!r} must hold texts or whole numbers, to say whose row it is."
            f" Got {kind}."
        )


def _refuse_other(path: Path, here: pa.Schema, model: Path, first: pa.Schema) -> None:
    names, known = dict.fromkeys(here.names), dict.fromkeys(first.names)
    absent = [name for name in known if name not in names]
    if absent:
        raise InputError(
            f"{str(path)!r} has no {named(absent, 'column')}, which {model.name!r} has. All"
            " files of a folder must have the same columns."
        )
    more = [name for name in names if name not in known]
    if more:
        raise InputError(
            f"{str(path)!r} has {named(more, 'column')}, which {model.name!r} has not. All"
            " files of a folder must have the same columns."
        )
    for name in known:
        if here.field(name).type != first.field(name).type:
            raise InputError(
                f"column {name!r} is {here.field(name).type} in {str(path)!r} and"
                f" {first.field(name).type} in {model.name!r}. Write it as one type."
            )
