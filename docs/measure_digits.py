"""Measures what the digits page says: settings from the specs' grids, then every method on 24, 120
and 480 devices.

python docs/measure_digits.py --compute cuda --jobs 14 --out results    everything, on a GPU
python docs/measure_digits.py --quick --out results                     a first look on a CPU: shows
that it runs, proves nothing
python docs/measure_digits.py --only blend --jobs 14 --out results      one method more, in the runs
that the page has of the others

Settings are chosen at 120 devices, 2 runs with seed 106; the methods are compared in 10 runs with
seed 6, so that nothing is chosen on what it is judged by. In the folder it leaves the specs with
the chosen settings and a run.json for every network and number of devices: `python
docs/draw_digits.py results` puts both in their places. Only numbers: no figure is drawn, nothing is
downloaded.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from persfl.cli import main as main_of_persfl
from persfl.lab.spec_files import SPECS


def persfl(words: list[str]) -> None:
    """A command of persfl, which must succeed."""
    if main_of_persfl(words):
        raise SystemExit(f"persfl {' '.join(words)} did not succeed.")


def only(network: str, method: str, work: Path) -> Path:
    """A network's spec with the series of one method."""
    spec = SPECS / "networks" / f"digits-{network}.toml"
    head, *series = spec.read_text(encoding="utf-8").split("[[series]]")
    mine = [part for part in series if f'\nname = "{method}, ' in part]
    path = work / f"digits-{network}.toml"
    path.write_text("[[series]]".join([head, *mine]), encoding="utf-8")
    return path


def measure(network: str, asked: argparse.Namespace, work: Path) -> None:
    """Tune one network's spec, then run it for every number of devices."""
    common = [
        "--set",
        f"compute={asked.compute}",
        "--jobs",
        str(asked.jobs),
        "--numbers",
        *(["--quick"] if asked.quick else []),
    ]
    spec = f"networks/digits-{network}"
    if asked.only:
        spec = str(only(network, asked.only, work))
    elif not asked.tuned:
        persfl(
            [
                "tune",
                spec,
                "--runs",
                str(2 if not asked.quick else 1),
                *common,
                "--out",
                str(work / "tuned"),
            ]
        )
        spec = str(shutil.copy(work / "tuned" / f"digits-{network}.toml", asked.out))
    for n in asked.sizes:
        out = work / str(n)
        persfl(
            [
                "run",
                spec,
                "--set",
                f"n={n}",
                "--runs",
                str(10 if not asked.quick else 2),
                *common,
                "--out",
                str(out),
            ]
        )
        shutil.copy(
            out / f"digits-{network}" / "run.json", asked.out / f"{network}-{n}.json"
        )
        print(
            f"{network}, {n} devices: {time.perf_counter() - asked.begin:.0f} s since the start",
            flush=True,
        )


def main() -> None:
    """Everything that was asked for, one after the other."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument(
        "--compute", default="cpu", help="where networks are computed (default cpu)"
    )
    asked.add_argument(
        "--jobs", type=int, default=1, help="parallel processes (default 1)"
    )
    asked.add_argument(
        "--out", type=Path, required=True, help="the folder for the results"
    )
    asked.add_argument(
        "--networks",
        nargs="+",
        default=["mlp", "cnn"],
        help="which networks (default both)",
    )
    asked.add_argument(
        "--sizes",
        nargs="+",
        type=int,
        default=[120, 24, 480],
        help="which numbers of devices (default all three)",
    )
    asked.add_argument(
        "--tuned",
        action="store_true",
        help="the specs hold chosen settings already: do not tune",
    )
    asked.add_argument("--only", help="the method to measure (default all)")
    asked.add_argument(
        "--quick", action="store_true", help="few runs, rounds and devices"
    )
    found = asked.parse_args(namespace=argparse.Namespace(begin=time.perf_counter()))
    found.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for network in found.networks:
            measure(network, found, Path(work))


if __name__ == "__main__":
    main()
