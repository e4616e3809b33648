"""Where a device keeps its own model between questions: a file per run, replaced in one step."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.errors import InputError
from persfl.federation.inquiry import LONGEST_NAME
from persfl.federation.messages import Arrays, parts_of
from persfl.federation.run_codec import RunCodec
from persfl.files import read_whole, write_whole
from persfl.formats import reading
from persfl.types import Model
from persfl.wire.codec import LARGEST, WireError, nested, pack, unpack, within
from persfl.wire.models import finite
from persfl.wire.terms import Terms

# Before the name of a run: its model was refined with own rows of a protected device, and stays.
# No run has so long a name: with protection off, one called "home:r" would be taken for such a one.
HOME = "home:".ljust(LONGEST_NAME + 1)


class StoredModel(NamedTuple):
    """A device's model before round `round`, and the terms it was learned under."""

    round: int
    model: Model
    terms: Terms


class Shelf:
    """Models by run, in a folder or (without one) in memory.

    >>> import numpy as np
    >>> shelf = Shelf()
    >>> terms = Terms(columns=("a",), settings={"intercept": False})
    >>> shelf.put("run", StoredModel(3, np.array([1.5]), terms))
    True
    >>> shelf.put("other", StoredModel(0, np.array([1.5]), terms), most=600)
    False
    >>> shelf.get("run").round, shelf.get("run").model.tolist()
    (3, [1.5])
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._memory: dict[str, bytes] = {}

    def put(self, run: str, stored: StoredModel, most: int = 2**53) -> bool:
        """Replace the model of a run; it is on the disk when this returns.

        False, and nothing happens, where all models together would take more than `most` bytes.
        Those that stay are counted by themselves: how large they are hangs on rows, and must not
        show in whether another one has room.
        """
        head, arrays = stored.terms.to_wire()
        arrays |= nested("model", mixture_to(stored.terms, stored.model))
        body = pack(head | {"run": run, "round": stored.round}, arrays)
        if len(body) + self._others(run) > most:
            return False
        if self.folder is None:
            self._memory[run] = body
        else:
            write_whole(self._path(self.folder, run), body)
        return True

    def _others(self, run: str) -> int:
        """Bytes of the models of other runs."""
        if self.folder is None:
            return sum(
                len(body)
                for name, body in self._memory.items()
                if name != run and _stays(name) == _stays(run)
            )
        if not self.folder.is_dir():
            return 0
        mine = self._path(self.folder, run).name
        with os.scandir(self.folder) as files:
            return sum(
                file.stat().st_size
                for file in files
                if file.name != mine and file.name.endswith(_STAYS) == _stays(run)
            )

    def get(self, run: str) -> StoredModel | None:
        """The model of a run, if there is one."""
        if self.folder is None:
            return _read(self._memory[run]) if run in self._memory else None
        path = self._path(self.folder, run)
        if not path.is_file():
            return None
        body = read_whole(path)
        # whoever names runs can find two whose files have one name
        return _read(body) if unpack(body)[0].get("run") == run else None

    def latest(self, *, network: str | None = None) -> StoredModel:
        """The model that changed last.

        A network is made by a function of an installed module, which is imported: whoever opens a
        folder must name it, since a folder must not choose what is run.
        """
        files = [] if self.folder is None else list(self.folder.glob("*.model"))
        if not files:
            raise InputError("there is no model here yet. Take part in a run first.")
        path = max(files, key=lambda path: path.stat().st_mtime)
        if path.stat().st_size > LARGEST:
            raise InputError(f"{str(path)!r} is larger than a model can be.")
        body = read_whole(path)
        with reading(path):
            terms = Terms.from_wire(*unpack(body))
        made = terms.settings.get("make")
        if made is not None and made != network:
            raise InputError(
                f"this model is a network that {made!r} makes. If you trust that function, name it:"
                f" --module {made}"
            )
        with reading(path):
            return _read(body)

    @staticmethod
    def _path(folder: Path, run: str) -> Path:
        # a run's name comes from elsewhere
        name = hashlib.sha256(run.encode()).hexdigest()[:16]
        return folder / f"{name}{_STAYS if _stays(run) else '.model'}"


_STAYS = ".home.model"


def _stays(run: str) -> bool:
    return run.startswith(HOME)


def _read(body: bytes) -> StoredModel:
    head, arrays = unpack(body)
    terms = Terms.from_wire(head, arrays)
    if not isinstance(head.get("round"), int):
        raise WireError("a kept model must say after which round.")
    model = mixture_from(terms, within("model", arrays))
    return StoredModel(head["round"], model, terms)


def mixture_to(terms: Terms, model: Model) -> dict[str, NDArray[Any]]:
    """A model as arrays; or a mix, which is a list of (share, model)."""
    codec = RunCodec(terms)
    if not isinstance(model, list):
        return codec.model_to(model)
    found = {"shares": np.array([share for share, _ in model])}
    for i, (_, one) in enumerate(model):
        found |= nested(f"part.{i}", codec.model_to(one))
    return found


def mixture_from(terms: Terms, arrays: Arrays) -> Model:
    """The inverse, for arrays that somebody else sent.

    >>> import numpy as np
    >>> terms = Terms(columns=("a",), settings={"intercept": False})
    >>> mix = [(0.25, np.array([1.0])), (0.75, np.array([2.0]))]
    >>> mixture_from(terms, mixture_to(terms, mix)) == mix
    True
    """
    codec = RunCodec(terms)
    if "shares" not in arrays:
        return codec.model_from(arrays)
    shares = arrays["shares"]
    parts = parts_of(within("part", arrays))
    shares = finite(shares, (min(shares.size, _PARTS),))
    if not (shares > 0).all() or not abs(float(shares.sum()) - 1) < 1e-6:
        raise WireError("the shares of a mix must sum to 1.")
    return [
        (share, codec.model_from(parts.get(str(i), {})))
        for i, share in enumerate(shares.tolist())
    ]


_PARTS = 1_000  # models of a mix
