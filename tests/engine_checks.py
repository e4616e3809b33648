"""What every engine must do: jobs for its workers, and engines to try them on."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from persfl.scale.executor import Answers


@dataclass(frozen=True)
class Echo:
    """Answers with the question and how many it was asked before: state stays at a worker."""

    def begin(self) -> Answers:
        asked: list[object] = []

        def answer(question: object) -> tuple[object, int]:
            asked.append(question)
            return question, len(asked)

        return answer


@dataclass(frozen=True)
class DiesOnce:
    """Kills its own process at one question, the first time that it is asked."""

    mark: Path
    at: int

    def begin(self) -> Answers:
        def answer(question: int) -> int:
            if question == self.at and not self.mark.exists():
                self.mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return 10 * question

        return answer


@dataclass(frozen=True)
class AlwaysDies:
    def begin(self) -> Answers:
        def answer(question: object) -> object:
            os.kill(os.getpid(), signal.SIGKILL)
            return question

        return answer


@dataclass(frozen=True)
class Refuses:
    def begin(self) -> Answers:
        def answer(question: object) -> object:
            raise ValueError(f"not {question}")

        return answer
