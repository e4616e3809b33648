from __future__ import annotations

import errno
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from persfl.cli import main
from persfl.errors import InputError
from persfl.folder_locks import holding
from persfl.scale import sharding
from persfl.scale.shard_index import NAME, ShardIndex
from persfl.scale.sharding import group_cuts, shard_folder
from persfl.scale.source_files import SourceFiles

pq = pytest.importorskip("pyarrow.parquet")


def meters(rows: int = 400, devices: int = 23, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    names = [f"m{k}" for k in draw.integers(0, devices, rows)]
    X = draw.normal(size=(rows, 2))
    return pd.DataFrame(
        {"meter": names, "a": X[:, 0], "b": X[:, 1], "kwh": X.sum(axis=1)}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "meters"
    place.mkdir()
    table = meters()
    table[:150].to_parquet(place / "1.parquet")
    table[150:].to_parquet(place / "2.parquet")
    return place


def rows_of(index: ShardIndex) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(index.folder / s.file) for s in index.shards])


@pytest.mark.parametrize("shards", [1, 2, 7, None])
def test_shards_hold_the_rows_by_device_in_their_order(folder, tmp_path, shards):
    index = shard_folder(folder, tmp_path / "out", device="meter", shards=shards)
    wanted = meters().sort_values("meter", kind="stable").reset_index(drop=True)
    pd.testing.assert_frame_equal(rows_of(index).reset_index(drop=True), wanted)
    assert index.devices == wanted["meter"].nunique()
    assert len(index.shards) == (shards or sharding.LEAST)
    assert ShardIndex.read(tmp_path / "out") == index
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        [NAME, *(shard.file for shard in index.shards)]
    )


def test_pieces_need_not_be_whole_files(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("persfl.scale.source_files.PIECE", 7)
    index = shard_folder(folder, tmp_path / "out", device="meter", shards=3, group=10)
    assert index.shards[0].largest < 80
    wanted = meters().sort_values("meter", kind="stable").reset_index(drop=True)
    pd.testing.assert_frame_equal(rows_of(index).reset_index(drop=True), wanted)


def test_a_device_is_whole_in_a_row_group(folder, tmp_path):
    index = shard_folder(folder, tmp_path / "out", device="meter", shards=2)
    file = pq.ParquetFile(tmp_path / "out" / index.shards[0].file)
    seen: list[str] = []
    for k in range(file.num_row_groups):
        here = set(file.read_row_group(k)["meter"].to_pylist())
        assert not here & set(seen)
        seen += here
    assert group_cuts(np.array([0, 20, 21, 22]), 5) == [0, 20, 22]


def test_ids_that_are_numbers_stay_numbers_and_those_of_a_csv_texts(tmp_path):
    table = meters(30, 12)
    table["meter"] = table["meter"].str[1:].astype(int)
    (tmp_path / "p").mkdir()
    table.to_parquet(tmp_path / "p" / "x.parquet")
    index = shard_folder(tmp_path / "p", tmp_path / "a", device="meter", shards=2)
    assert isinstance(index.shards[0].first, int)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "x.csv").write_text("meter,kwh\n007,1\n7,2.5\n")
    index = shard_folder(tmp_path / "c", tmp_path / "b", device="meter", shards=2)
    assert [shard.first for shard in index.shards] == ["007", "7"]
    assert index.columns["kwh"] == "double"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda t: t.drop(columns="a"),
            "2.parquet' has no column 'a', which '1.parquet'",
        ),
        (lambda t: t.assign(c=1.0), "has column 'c', which '1.parquet' has not"),
        (
            lambda t: t.assign(a=t["a"].astype("float32")),
            "column 'a' is float in .*and double",
        ),
        (lambda t: t.assign(meter=t["meter"].where(t.index > 0)), "1 row leaves it"),
    ],
)
def test_files_must_agree(folder, tmp_path, change, says):
    table = change(meters())
    table.to_parquet(folder / "2.parquet")
    with pytest.raises(InputError, match=says):
        shard_folder(folder, tmp_path / "out", device="meter")
    assert not (tmp_path / "out").exists()


def test_names_of_many_columns_are_not_compared_one_by_one(tmp_path):
    """A file of a few hundred kilobytes held up whoever looked at it for minutes."""
    names = ["who", *(f"c{number:x}" for number in range(20_000))]
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text(f"{','.join(names)}\na{',1' * 20_000}\n")
    began = time.process_time()
    assert SourceFiles.of(tmp_path, "who").schema.names == names
    assert time.process_time() - began < 5


def test_an_unreadable_file_is_named(folder, tmp_path):
    path = folder / "2.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="2.parquet' could not be read: .*Repair it"):
        shard_folder(folder, tmp_path / "out", device="meter")


def test_pages_that_are_damaged_are_named_too(folder, tmp_path):
    path = folder / "2.parquet"
    whole = bytearray(path.read_bytes())
    whole[4:600] = bytes(596)
    path.write_bytes(whole)
    with pytest.raises(InputError, match="2.parquet' could not be read"):
        shard_folder(folder, tmp_path / "out", device="meter")
    assert not list((tmp_path / "out").glob("*")) or not (tmp_path / "out").exists()


def test_a_full_disk_is_a_sentence_and_nothing_is_left(folder, tmp_path, monkeypatch):
    kept = sharding._written

    def full(place, name, *rest):
        if name == "shard-00001.parquet":
            raise OSError(errno.ENOSPC, "No space left on device")
        return kept(place, name, *rest)

    monkeypatch.setattr(sharding, "_written", full)
    with pytest.raises(InputError, match="no space left in .*as they were"):
        shard_folder(folder, tmp_path / "out", device="meter", shards=3)
    assert not (tmp_path / "out").exists()
    assert len(list(folder.iterdir())) == 2


def test_who_was_killed_while_sorting_begins_anew_and_removes_its_own_files(
    folder, tmp_path, monkeypatch
):
    out = tmp_path / "out"

    def killed(place, name, *rest):
        (place / name).write_bytes(b"half of it")
        shutil.copytree(place, tmp_path / "killed")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sharding, "_written", killed)
        with pytest.raises(KeyboardInterrupt):
            shard_folder(folder, out, device="meter", shards=2)
    assert not out.exists()
    (tmp_path / "killed").rename(out)
    assert {path.name for path in out.iterdir()} >= {"unsorted", "shards.json"}
    with pytest.raises(InputError, match="not all there"):
        ShardIndex.read(out)
    mine = out / "shard-mine.parquet"
    mine.write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        shard_folder(folder, out, device="meter", shards=2)
    assert mine.read_text() == "mine"
    mine.unlink()
    assert shard_folder(folder, out, device="meter", shards=2).devices == 23
    assert sorted(path.name for path in out.iterdir()) == [
        "shard-00000.parquet",
        "shard-00001.parquet",
        NAME,
    ]


def test_ids_of_a_csv_are_read_as_in_one_process(tmp_path):
    """Blanks made another device, and an empty id was one."""
    (tmp_path / "rows").mkdir()
    path = tmp_path / "rows" / "x.csv"
    path.write_text("meter,a\nm1,1\n m1 ,2\n007,3\nNA,4\n")
    index = shard_folder(tmp_path / "rows", tmp_path / "a", device="meter", shards=1)
    assert rows_of(index)["meter"].tolist() == ["007", "NA", "m1", "m1"]
    path.write_text("meter,a\nm1,1\n,2\n")
    with pytest.raises(InputError, match="1 row leaves it empty"):
        shard_folder(tmp_path / "rows", tmp_path / "b", device="meter")
    path.write_text("meter,a ,a\nm1,1,2\n")
    with pytest.raises(InputError, match="blanks around the name of column 'a '"):
        shard_folder(tmp_path / "rows", tmp_path / "b", device="meter")


def test_two_do_not_sort_into_one_folder(folder, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with holding(out), pytest.raises(InputError, match="another run is writing"):
        shard_folder(folder, out, device="meter", shards=2)


def test_a_device_in_two_shards_is_refused(folder, tmp_path):
    index = shard_folder(folder, tmp_path / "out", device="meter", shards=2)
    path = tmp_path / "out" / NAME
    told = json.loads(path.read_text())
    told["shards"][1]["first"] = index.shards[0].last
    path.write_text(json.dumps(told))
    with pytest.raises(InputError, match="must be in one shard"):
        ShardIndex.read(tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t["shards"][0].update(file="../x.parquet"),
        lambda t: t["shards"][0].update(rows=-1),
        lambda t: t["shards"][0].update(first=3),
        lambda t: t.update(format=9),
        lambda t: t.update(device="other"),
        lambda t: t.pop("columns"),
        lambda t: t["shards"][0].pop("rows"),
    ],
)
def test_an_index_of_somebody_elses_is_looked_at(folder, tmp_path, change):
    shard_folder(folder, tmp_path / "out", device="meter", shards=2)
    path = tmp_path / "out" / NAME
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))
    with pytest.raises(InputError, match="damaged"):
        ShardIndex.read(tmp_path / "out")


def test_other_bad_input(folder, tmp_path):
    with pytest.raises(InputError, match="has no column 'who'"):
        SourceFiles.of(folder, "who")
    with pytest.raises(InputError, match="must hold texts or whole numbers"):
        SourceFiles.of(folder, "kwh")
    with pytest.raises(InputError, match="no .parquet or .csv"):
        SourceFiles.of(_empty(tmp_path), "x")
    with pytest.raises(InputError, match="there is no folder"):
        SourceFiles.of(tmp_path / "nowhere", "x")
    with pytest.raises(InputError, match="outside"):
        shard_folder(folder, folder / "out", device="meter")
    with pytest.raises(InputError, match="not empty"):
        shard_folder(folder, tmp_path, device="meter")
    with pytest.raises(InputError, match="not a folder of shards"):
        ShardIndex.read(folder)


def _empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_command(folder, tmp_path, capsys):
    out = tmp_path / "out"
    told = [
        "shard",
        str(folder),
        "--device",
        "meter",
        "--out",
        str(out),
        "--shards",
        "3",
    ]
    assert main([*told, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shards"] == 3
    assert main(told) == 2
    assert "is not empty" in capsys.readouterr().err
