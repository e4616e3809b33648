"""The pages of a run folder: the report of its models, and a federation's own page."""

from __future__ import annotations

import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from persfl.errors import InputError
from persfl.formats import reading
from persfl.report.depends_info import missed_info
from persfl.report.federation_page import is_ours, write_federation
from persfl.report.html import REPORT, write_report
from persfl.report.info import info
from persfl.report.next_command import next_command
from persfl.runs.leak_words import read_leaks
from persfl.runs.model_checks import spec_of
from persfl.runs.model_reader import load_model
from persfl.runs.removal_words import read_contributions
from persfl.runs.run_folder import Folder

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted, HasFitted

FEDERATION = "federation.html"


def write_pages(
    run: Path, out: Path | None = None, *, module: object = None
) -> list[Path]:
    """Write the pages of a run folder and return where they are.

    `module` is the torch module of a run that was fitted with one of the user's own.
    """
    folder = Folder.open(run)
    where = out or run / REPORT
    pages: list[Path] = []
    if "federation.json" in folder.index["files"]:
        facts = folder.read_json("federation.json")
        beside = where.with_name(FEDERATION)
        if beside.exists() and not is_ours(beside):
            what = f"{str(beside)!r} is there and was not made by persfl"
            raise InputError(f"{what}. Choose another folder for --out.")
        with reading(run / "federation.json"):
            pages.append(write_federation(facts, beside))
    if not pages or "model.json" in folder.index["files"]:
        pages.insert(0, write_page(folder, load_model(run, module=module), where))
    return pages


def write_page(folder: Folder, model: Fitted | HasFitted, path: Path) -> Path:
    """Write the report of a run's model."""
    spec = spec_of(folder)
    groups = dict(spec["groups"]) if spec.get("groups") else None
    names = {"device": str(spec["device"]), "label": str(spec["label"])}
    names["table"] = Path(str(spec.get("table", ""))).name
    made = (folder.path / "spec.json").stat().st_mtime
    names["date"] = datetime.fromtimestamp(made).date().isoformat()
    with reading(folder.path):  # its numbers may make no sense together
        found = info(model, groups=groups, **names)
    worth = found["worth"]
    if worth is not None and worth["headline"]["use"]:
        use = worth["headline"]["use"]
        worth["headline"]["how"] = next_command(spec, use, str(folder.path))
    missed = read_contributions(folder)
    if missed is not None:
        found["missed"] = missed_info(missed)
    found["leaks"] = read_leaks(folder)
    if found["leaks"] is None and "table" in spec:
        words = ["persfl", "leaks", str(folder.path), "--table", str(spec["table"])]
        found["leaks_by"] = shlex.join(words)
    return write_report(found | {"federation": bool(spec.get("federated"))}, path)
