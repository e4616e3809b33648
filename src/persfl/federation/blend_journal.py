"""What came back in every exchange of a blend, so that an interrupted run goes on where it was."""

from __future__ import annotations

from typing import Protocol

from persfl.runs.run_folder import Folder


class Replies(Protocol):
    """Remembers what came back in every exchange."""

    def get(self, number: int) -> bytes | None: ...
    def put(self, number: int, body: bytes) -> None: ...


class Journal:
    """What came back in every exchange, by its number; this one forgets nothing until the
    process ends.
    """

    def __init__(self) -> None:
        self._kept: dict[int, bytes] = {}

    def get(self, number: int) -> bytes | None:
        """The replies of an exchange, if it was made before."""
        return self._kept.get(number)

    def put(self, number: int, body: bytes) -> None:
        """Keep the replies of an exchange."""
        self._kept[number] = body


class Exchanges:
    """The journal of a run folder: a file per exchange, until the run is over."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def get(self, number: int) -> bytes | None:
        """The replies of an exchange, if it was made before."""
        name = _file(number)
        return self.folder.read(name) if name in self.folder.index["files"] else None

    def put(self, number: int, body: bytes) -> None:
        """On the disk when this returns."""
        self.folder.write(_file(number), body)
        self.folder.commit()

    def forget(self) -> None:
        """What devices said is not kept longer than it is needed."""
        gone = [
            name for name in self.folder.index["files"] if name.startswith("exchange-")
        ]
        for name in gone:
            del self.folder.index["files"][name]
        self.folder.commit()  # which removes them


def _file(number: int) -> str:
    return f"exchange-{number:05d}.wire"
