"""A run folder: what was asked, what happened, what was learned; whole at every moment.

    run.json           the index: format, finished or not, stages, and every file's SHA-256
    spec.json          what was asked: table, columns, settings
    versions.json      what it ran with
    rounds/*.parquet   every round of every stage: device, own loss, who was asked, who was adopted
    state-*.npz        where a stage stands: models, trust, losses, kept steps
    model.npz, model.json, model.safetensors, worth.parquet     the result
    lock               only while a run is going: who is writing

Files are written under new names, then the index is replaced in one step: a run that is killed
leaves the last index and all it names. A file that does not match its SHA-256 is refused by name.

A digest keeps nobody out who makes a folder on purpose. So a folder holds numbers, texts and
nothing that could run: arrays (not pickled), JSON, tables, networks as named tensors. All of it is
checked when it is read, links are refused, and nothing outside the folder is written or removed.
The code of a module is not kept, see `persfl.learners.storage.network_files`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from persfl import late_names
from persfl.folder_locks import refuse_held

if TYPE_CHECKING:
    from persfl.runs.begun_runs import is_begun, remove_begun
    from persfl.runs.index import FORMAT, INDEX, READABLE, versions
    from persfl.runs.model import keep_model, refuse_unkept, save_model
    from persfl.runs.model_reader import load_model
    from persfl.runs.run_folder import PAGES, Folder
    from persfl.runs.stages import rounds_table

__all__ = [
    "FORMAT",
    "INDEX",
    "PAGES",
    "READABLE",
    "Folder",
    "is_begun",
    "keep_model",
    "load_model",
    "refuse_held",
    "refuse_unkept",
    "remove_begun",
    "rounds_table",
    "save_model",
    "versions",
]

__getattr__ = late_names(
    __name__,
    {
        "is_begun": "begun_runs",
        "remove_begun": "begun_runs",
        "FORMAT": "index",
        "INDEX": "index",
        "READABLE": "index",
        "versions": "index",
        "keep_model": "model",
        "refuse_unkept": "model",
        "save_model": "model",
        "load_model": "model_reader",
        "PAGES": "run_folder",
        "Folder": "run_folder",
        "rounds_table": "stages",
    },
)
