"""Tables of a foreign run folder: small, of numbers, and never the end of the process."""

import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from persfl.errors import InputError
from persfl.formats import table_from

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROUNDS = pd.DataFrame(
    {
        "round": np.int32(3),
        "loss": [0.5, np.nan, 2.0],
        "asked": [np.array([1, 2], dtype=np.int32)] * 2
        + [np.array([], dtype=np.int32)],
        "kept": [True, False, True],
    }
)


def written(table, **settings):
    made = io.BytesIO()
    pq.write_table(table, made, **{"compression": "zstd"} | settings)
    return made.getvalue()


def of_lists(values):
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def test_a_table_comes_back():
    pd.testing.assert_frame_equal(
        table_from(written(pa.Table.from_pandas(ROUNDS))), ROUNDS
    )


def test_a_table_without_rows_comes_back():
    assert table_from(
        written(pa.Table.from_pandas(ROUNDS[["round", "loss"]][:0]))
    ).shape == (0, 2)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_every_way_of_writing_is_understood(version, compression):
    numbers = np.random.default_rng(0).standard_normal(5000)
    table = pa.table({"a": numbers, "b": np.arange(5000) // 7})
    settings = {
        "data_page_version": version,
        "data_page_size": 1000,
        "row_group_size": 1500,
    }
    found = table_from(written(table, compression=compression, **settings))
    np.testing.assert_array_equal(found["a"], numbers)


LONG = 3_000_000


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.zeros(LONG)),
        pa.array(["x" * 1000] * 3000),
        of_lists(pa.array(np.zeros(LONG, dtype=np.int8))),
        of_lists(pa.nulls(LONG)),
        pa.ListArray.from_arrays(
            pa.array(np.zeros(40_001), pa.int32()), pa.array([], pa.int32())
        ),
    ],
    ids=["numbers", "texts", "list", "list of nothing", "empty lists"],
)
def test_a_few_bytes_that_stand_for_many_are_refused_unread(column, monkeypatch):
    content = written(pa.table({"a": column}))
    assert len(content) < 20_000
    monkeypatch.setattr(pq, "ParquetFile", None)  # the library does not get to see it
    with pytest.raises(InputError, match="too much|as persfl writes one"):
        table_from(content)


def test_texts_nesting_and_strange_types_are_refused():
    deep = pa.array([[[1]]])
    odd = {"text": pa.array(["a"]), "deep": deep, "days": pa.array([1], pa.date32())}
    odd |= {"struct": pa.array([{"a": 1}]), "nothing": pa.nulls(1)}
    for column in odd.values():
        with pytest.raises(InputError):
            table_from(written(pa.table({"a": column})))


FLIPS = """
import sys
from persfl.errors import InputError
from persfl.formats import table_from
content = sys.stdin.buffer.read()
for at in range(len(content)):
    for sign in (1, 4, 128):
        flipped = bytearray(content)
        flipped[at] ^= sign
        try:
            table_from(bytes(flipped))
        except InputError:
            pass
print("whole")
"""


def test_no_flipped_bit_ends_the_process():
    content = written(pa.table({"a": [1.0, 2.0]}))
    words = [sys.executable, "-c", FLIPS]
    ended = subprocess.run(
        words, input=content, capture_output=True, timeout=120, check=False
    )
    assert ended.stdout == b"whole\n", ended.stderr[-500:]


def test_levels_that_a_column_has_not_are_refused_unread(tmp_path):
    """pyarrow ends the process where a column counts levels that it cannot have."""
    parts = pytest.importorskip("persfl.scale.table_parts")
    content = written(pa.table({"who": ["a", "b"], "x": [1.0, 2.0]}))
    optional = b"\x25\x02\x18"  # in the footer, before the name of a column
    assert content.count(optional) == 2
    forged = content.replace(optional, b"\x25\x00\x18", 1)
    for kind, told in (("sound", content), ("forged", forged)):
        (tmp_path / f"{kind}.parquet").write_bytes(told)
    with parts.opened_part(tmp_path / "sound.parquet", ["who"], ["x"]) as file:
        assert file.read().num_rows == 2
    with (
        pytest.raises(InputError, match="not a table as persfl writes one"),
        parts.opened_part(tmp_path / "forged.parquet", ["who"], ["x"]) as file,
    ):
        pass
