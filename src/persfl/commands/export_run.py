"""`persfl export`: a run in the forms that other tools read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from persfl.commands.run_output import model_of
from persfl.commands.run_tables import check_out
from persfl.errors import InputError
from persfl.exports.onnx_file import onnx_fleet
from persfl.exports.plain_device import plain_estimator
from persfl.files import write_whole
from persfl.fitting.fitted import Fitted
from persfl.report.model_card import model_card
from persfl.runs.model_checks import spec_of
from persfl.runs.run_folder import Folder


def export_run(chosen: argparse.Namespace) -> int:
    """Write what was asked for, and say where it is."""
    wanted = {"--onnx": chosen.onnx, "--sklearn": chosen.sklearn, "--card": chosen.card}
    if not any(wanted.values()):
        raise InputError(
            "say what to make: --onnx FILE, --sklearn FILE or --card FILE."
        )
    if chosen.sklearn and chosen.device is None:
        raise InputError("--sklearn is of one device. Say which: --device ID.")
    endings = {"--onnx": ".onnx", "--sklearn": ".joblib", "--card": ".md"}
    for option, out in wanted.items():
        check_out(out, endings[option], table=chosen.run, option=option)
    fitted = model_of(chosen).fitted_
    makers: dict[str, Callable[[Path], None]] = {
        "--onnx": lambda path: _write_onnx(fitted, chosen.device, path),
        "--sklearn": lambda path: _write_sklearn(fitted, chosen.device, path),
        "--card": lambda path: _write_card(fitted, chosen.run, path),
    }
    for option, out in wanted.items():
        if out:
            makers[option](Path(out))
            print(out)
    return 0


def _write_onnx(fitted: Fitted, device: str | None, path: Path) -> None:
    write_whole(path, onnx_fleet(fitted, device).SerializeToString())


def _write_sklearn(fitted: Fitted, device: str, path: Path) -> None:
    import joblib

    made = plain_estimator(fitted, device)
    write_whole(path, lambda file: joblib.dump(made, file))


def _write_card(fitted: Fitted, run: str, path: Path) -> None:
    spec = spec_of(Folder.open(Path(run)))
    write_whole(path, model_card(fitted, spec).encode())
