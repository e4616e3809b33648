"""The folder of a run over shards: what it was asked, and how far it is (`run_layout`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.files import (
    append,
    read_whole,
    refuse_links,
    remove_regular,
    write_whole,
)
from persfl.folder_locks import LOCK
from persfl.formats import json_from, reading
from persfl.run_kinds import SHARDED, is_sharded
from persfl.scale.run_facts import asked_from, facts_from
from persfl.scale.run_layout import (
    FACTS,
    FINAL,
    FLEET,
    HELPERS,
    MADE,
    MODELS,
    SHARDS,
    STAGES,
    TRIAL,
    part_name,
    rounds_name,
)

FORMAT = 1
LONGEST = 2**24  # bytes of its own files


@dataclass(frozen=True)
class ShardedRun:
    """One such folder; `facts` are there once it is over."""

    folder: Path
    spec: Mapping[str, Any]
    facts: Mapping[str, Any]

    @staticmethod
    def begin(folder: Path, spec: Mapping[str, Any], *, resume: bool) -> ShardedRun:
        """A new folder, or the one that is there and was asked the same."""
        for place in (folder, folder / MODELS, folder / HELPERS):
            if place.is_dir():
                refuse_links(place)
        if is_sharded(folder):
            there = ShardedRun.open(folder)
            if not resume:
                raise InputError(
                    f"{str(folder)!r} holds a run already. Go on with it by --resume, or name"
                    " another folder with --out."
                )
            there._refuse_other(spec)
            return there
        refuse_foreign(folder)
        folder.mkdir(parents=True, exist_ok=True)
        made = ShardedRun(folder, spec, {})
        made._write()
        return made

    @staticmethod
    def open(folder: str | Path) -> ShardedRun:
        """A folder that somebody else may have made."""
        path = Path(folder) / SHARDED
        with reading(path):
            told = json_from(_short(path))
            if told["format"] != FORMAT:
                raise InputError(f"its format must be {FORMAT}")
            spec = asked_from(dict(told["spec"]))
            facts = facts_from(dict(told["facts"]))
        return ShardedRun(Path(folder), spec, facts)

    @property
    def finished(self) -> bool:
        """Whether all models are there."""
        return bool(self.facts)

    @property
    def learned(self) -> bool:
        """Whether the fleet knows what devices have in common: rows need no second look."""
        return (self.folder / FLEET).is_file() and (self.folder / FINAL).is_file()

    def made(self) -> set[int]:
        """The shards that have their models."""
        path = self.folder / MADE
        if not path.is_file():
            return set()
        found = set()
        for line in read_whole(path).splitlines():
            try:
                shard = int(json.loads(line)["shard"])
            except (ValueError, TypeError, KeyError):
                continue  # the line that was being written when the run was killed
            if (self.folder / MODELS / part_name(shard)).is_file():
                found.add(shard)
        return found

    def note(self, shard: int) -> None:
        """This shard has its models."""
        append(self.folder / MADE, json.dumps({"shard": shard}) + "\n")

    def keep_facts(self, facts: Mapping[str, Any]) -> None:
        """What came out, until the models are there too."""
        write_whole(self.folder / FACTS, json.dumps(_plain(facts)).encode())

    def finish(self) -> ShardedRun:
        """It is over; what only the making needed goes."""
        path = self.folder / FACTS
        with reading(path):
            facts = facts_from(dict(json_from(_short(path))))
        done = ShardedRun(self.folder, self.spec, facts)
        done._write()
        done.clear()
        return done

    def clear(self) -> None:
        """Remove what only the making needed."""
        for name in (FINAL, TRIAL, MADE, FACTS, *map(rounds_name, STAGES)):
            remove_regular(self.folder / name)

    def _write(self) -> None:
        told = {"format": FORMAT, "spec": dict(self.spec), "facts": dict(self.facts)}
        write_whole(self.folder / SHARDED, json.dumps(told, indent=1).encode())

    def _refuse_other(self, spec: Mapping[str, Any]) -> None:
        if self.spec.get("shards") != spec["shards"]:
            raise other_rows(self.folder)
        for key, value in spec.items():
            before = self.spec.get(key)
            if before != json.loads(json.dumps(value)):
                raise InputError(
                    f"{str(self.folder)!r} holds another run: {key} was {before!r} and is"
                    f" {value!r} now. Use the same command to resume, or another --out."
                )


def other_rows(folder: Path) -> InputError:
    """What to say where a run is of other rows than those it shall go on with."""
    return InputError(
        f"{str(folder)!r} holds shards of other rows, or its rows have changed since. Name another"
        " folder with --out."
    )


def _plain(value: Any) -> Any:
    """The same with null for what JSON has no number for."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def refuse_foreign(folder: Path) -> None:
    """Stop where a folder holds anything but a run over shards, or a lock and shards."""
    if not folder.exists() or is_sharded(folder):
        return
    known = (LOCK, SHARDS)
    if not folder.is_dir() or any(path.name not in known for path in folder.iterdir()):
        raise InputError(
            f"{str(folder)!r} is not empty. Name a new folder for the run with --out."
        )


def _short(path: Path) -> bytes:
    """All of a file that is not absurdly long."""
    if path.lstat().st_size > LONGEST:
        raise InputError("it is too long")
    return read_whole(path)
