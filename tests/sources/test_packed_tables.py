"""Tables that are small on the disk and endless in memory, and ids that are whole numbers."""

import gzip
import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persfl.cli import main
from persfl.errors import InputError
from persfl.sources import read_archive, read_npz
from persfl.sources.table import read_frame

FEW = 2**16


@pytest.fixture(autouse=True)
def little_room(monkeypatch):
    """Bounds that a test reaches in a moment."""
    for name in ("_ROOM_NUMBERS", "_ROOM_LETTERS"):
        monkeypatch.setattr(f"persfl.sources.unpacking.{name}", FEW)


def test_a_small_parquet_does_not_become_a_large_table(tmp_path):
    rows = pd.DataFrame({"who": "a", "x": np.zeros(200_000), "y": 0})
    rows.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="unpacks to more than"):
        read_frame(tmp_path / "rows.parquet")
    draw = np.random.default_rng(0).normal(size=(20_000, 2))
    pd.DataFrame(draw, columns=["x", "y"]).to_parquet(tmp_path / "rows.parquet")
    assert len(read_frame(tmp_path / "rows.parquet")) == 20_000


@pytest.mark.parametrize("packed", [True, False])
def test_a_text_that_repeats_counts_as_often_as_it_stands(tmp_path, packed):
    texts = pa.table({"who": ["a" * 5_000] * 2_000, "x": np.zeros(2_000)})
    how = {} if packed else {"use_dictionary": False}
    how |= {} if packed else {"column_encoding": {"who": "DELTA_BYTE_ARRAY"}}
    pq.write_table(texts, tmp_path / "rows.parquet", compression="zstd", **how)
    assert (tmp_path / "rows.parquet").stat().st_size < 40_000
    with pytest.raises(InputError, match="unpacks to more than"):
        read_frame(tmp_path / "rows.parquet")


def test_a_text_that_repeats_in_a_folder_does_not_fill_the_memory(tmp_path, capsys):
    """Half a megabyte took gigabytes."""
    (tmp_path / "rows").mkdir()
    path = tmp_path / "rows" / "rows.parquet"
    texts = pa.table({"who": ["a" * 5_000] * 2_000, "x": np.zeros(2_000)})
    pq.write_table(texts, path, compression="zstd")
    assert path.stat().st_size < 40_000
    out = ["--device", "who", "--out", str(tmp_path / "out")]
    assert main(["shard", str(tmp_path / "rows"), *out]) == 2
    assert "unpacks to more than" in capsys.readouterr().err
    shard = {"file": "rows.parquet", "devices": 1, "rows": 2_000, "largest": 2_000}
    shard |= {"first": "a" * 5_000, "last": "a" * 5_000}
    index = {"format": 1, "device": "who", "columns": {"who": "string", "x": "double"}}
    index |= {"shards": [shard]}
    (tmp_path / "rows" / "shards.json").write_text(json.dumps(index))
    assert main(["fit", str(tmp_path / "rows"), "--label", "x", *out]) == 2
    assert "unpacks to more than" in capsys.readouterr().err
    wide = pa.table({"who": [f"d{i}" for i in range(2_000)], "x": np.zeros(2_000)})
    pq.write_table(wide, path)
    (tmp_path / "rows" / "shards.json").unlink()
    assert main(["shard", str(tmp_path / "rows"), *out]) == 0


LEVELS = b"\x25\x02\x18", b"\x25\x00\x18"  # a column that may be empty, or not
KINDS = (
    b"\x15\x0c\x25\x02\x18",
    b"\x15\x00\x25\x02\x18",
)  # one of texts, or of truth values


READ = """
import sys
from persfl.errors import InputError
from persfl.scale.source_files import SourceFiles
from persfl.sources.table import read_frame
for read in read_frame, lambda path: SourceFiles.of(path, "who"):
    for path in sys.argv[1:]:
        try:
            read(path)
        except InputError as error:
            print(error)
"""


def test_no_table_of_somebody_elses_ends_the_process(tmp_path):
    """pyarrow aborts where a file counts levels or lengths of texts that a column cannot have."""
    made = io.BytesIO()
    pq.write_table(pa.table({"who": ["a", "b"], "y": [1.0, 2.0]}), made)
    paths = tmp_path / "levels.parquet", tmp_path / "kinds.parquet"
    for path, forged in zip(paths, (LEVELS, KINDS), strict=True):
        assert made.getvalue().count(forged[0]) >= 1
        path.write_bytes(made.getvalue().replace(*forged, 1))
    words = [sys.executable, "-c", READ, *map(str, paths)]
    ended = subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert ended.stdout.count(b"says of its columns makes no sense") == 4, ended.stderr


def test_what_a_file_says_of_its_texts_is_held_against_its_pages(tmp_path):
    texts = pa.table({"who": ["a" * 5_000] * 2_000, "x": np.zeros(2_000)})
    path = tmp_path / "rows.parquet"
    pq.write_table(texts, path, compression="none")
    content = path.read_bytes()
    size = pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    told = b"\x16" + bytes(
        [2 * size & 127 | 128, 2 * size >> 7]
    )  # as the footer has it
    assert content.count(told) == 2  # the first is what it unpacks to
    path.write_bytes(content.replace(told, b"\x16\x80\x00", 1))
    assert pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 0
    with pytest.raises(InputError, match="unpacks to more than"):
        read_frame(path)


def test_many_different_texts_are_a_table(tmp_path):
    ids = [f"device number {i}" for i in range(20_000)]
    pd.DataFrame({"who": ids}).to_parquet(tmp_path / "rows.parquet")
    assert read_frame(tmp_path / "rows.parquet")["who"].tolist() == ids


def test_a_small_gz_does_not_become_a_large_table(tmp_path):
    with gzip.open(tmp_path / "rows.csv.gz", "wb") as file:
        file.write(b"who,x,y\n" + b"a,0,0\n" * 200_000)
    with pytest.raises(InputError, match="unpacks to more than"):
        read_frame(tmp_path / "rows.csv.gz")


def test_a_gz_reads_as_what_is_in_it(tmp_path):
    draw = np.random.default_rng(0).normal(size=(3_000, 2))
    rows = pd.DataFrame(draw, columns=["x", "y"]).assign(who="Zoë")
    for name in ("rows.csv", "rows.csv.gz"):
        rows.to_csv(tmp_path / name, index=False, encoding="utf-8-sig")
    plain, packed = (
        read_frame(tmp_path / n, text="who") for n in ("rows.csv", "rows.csv.gz")
    )
    pd.testing.assert_frame_equal(plain, packed)
    (tmp_path / "rows.csv.gz").write_bytes(
        (tmp_path / "rows.csv.gz").read_bytes()[:-20]
    )
    with pytest.raises(InputError, match="could not be read"):
        read_frame(tmp_path / "rows.csv.gz")


@pytest.mark.parametrize("read", [read_npz, read_archive])
def test_a_small_archive_does_not_become_large_arrays(tmp_path, read):
    path = tmp_path / "rows.npz"
    whose = {"device": np.zeros(10**5, dtype=int), "group": np.zeros(10**5, dtype=int)}
    np.savez_compressed(path, X=np.zeros((10**5, 9)), y=np.zeros(10**5), **whose)
    with pytest.raises(InputError, match="unpacks to more than"):
        read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", b"nonsense")
    with pytest.raises(InputError):
        read(path)


@pytest.mark.parametrize("read", [read_archive, read_npz])
def test_texts_without_letters_are_not_endless(tmp_path, read):
    """They take no bytes: half a kilobyte stood for as many as one likes."""
    head = io.BytesIO()
    told = {"descr": "<U0", "fortran_order": False, "shape": (10**9,)}
    np.lib.format.write_array_header_1_0(head, told)
    with zipfile.ZipFile(tmp_path / "rows.npz", "w") as archive:
        for name in ("X", "y", "group", "device"):
            archive.writestr(f"{name}.npy", head.getvalue())
    with pytest.raises(InputError, match="unpacks to more than"):
        read(tmp_path / "rows.npz")


def test_a_first_line_of_separators_is_a_sentence(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("who,x" + "," * 20_000 + "\na,1\n")
    with pytest.raises(InputError, match="20,000 columns without a name"):
        read_frame(path)
    path.write_text("who,x" + "," * 200 + "\na,1\n")
    assert list(read_frame(path).columns) == ["who", "x"]


def test_whole_numbers_as_ids_stay_what_they_are(tmp_path, capsys):
    """Above 2**53 neighbours are the same float, and a gap makes pandas read floats."""
    first, draw = 2**53, np.random.default_rng(0).normal(size=(60, 2))
    rows = pd.DataFrame(draw, columns=["x", "y"]).assign(who=first + np.arange(60) % 3)
    rows.to_parquet(tmp_path / "rows.parquet")
    run, words = (
        str(tmp_path / "run"),
        ["--device", "who", "--label", "y", "--method", "paper", "--rounds", "2"],
    )
    assert (
        main(
            ["fit", str(tmp_path / "rows.parquet"), *words, "--out", run, "--no-report"]
        )
        == 0
    )
    new = pa.table(
        {"who": pa.array([first, first + 1, None], pa.int64()), "x": [1.0, 1.0, 1.0]}
    )
    pq.write_table(new, tmp_path / "new.parquet")
    capsys.readouterr()
    words = ["--missing", "skip", "--out", str(tmp_path / "told.csv")]
    assert main(["predict", run, str(tmp_path / "new.parquet"), *words]) == 0
    told = pd.read_csv(tmp_path / "told.csv", dtype={"who": str})
    assert told["who"].tolist()[:2] == [str(first), str(first + 1)]
    assert told["prediction"][0] != told["prediction"][1]
    assert "not there when fitting" not in capsys.readouterr().err


def test_texts_that_hardly_differ_are_still_a_table(tmp_path):
    ids = [f"{'device ' * 20}{i}" for i in range(3_000)]
    rows = pa.table({"who": ids, "x": np.random.default_rng(0).normal(size=3_000)})
    how = {"use_dictionary": False, "column_encoding": {"who": "DELTA_BYTE_ARRAY"}}
    pq.write_table(rows, tmp_path / "rows.parquet", **how)
    assert read_frame(tmp_path / "rows.parquet")["who"].tolist() == ids


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_cells_beyond_the_columns_are_not_left_out_in_silence(tmp_path, name):
    """As a decimal comma between commas makes them."""
    opener = gzip.open if name.endswith(".gz") else open

    def read(text):
        with opener(tmp_path / name, "wb") as file:
            file.write(text)
        return read_frame(tmp_path / name, text="who").to_dict("list")

    with pytest.raises(
        InputError, match="row 2 of .* has 5 cells, where the first line names 3"
    ):
        read(b"who,x,y\na,1,5,2,7\nb,1,6,3,8\n")
    wanted = {"who": ["a", "b"], "x": [1, 2], "y": [5, 6]}
    assert read(b"who,x,y\na,1,5,\nb,2,6,\n") == wanted
    assert read(b"who,x,y,\na,1,5,\nb,2,6,\n") == wanted
    assert read(b'\xef\xbb\xbfwho,x,y\r\n"a",1,5\r\nb,2,6\r\n') == wanted
