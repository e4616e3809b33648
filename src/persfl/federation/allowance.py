"""What is left of an owner's limits while a message is answered."""

from __future__ import annotations

from collections import Counter

from persfl.federation.ledger import Ledger
from persfl.federation.policy import Policy


class Allowance:
    """The limits of a policy in one message: what the ledger has counted, and what this one adds.

    >>> allowance = Allowance(Policy(questions_per_target=1), Ledger(), "run")
    >>> [allowance.question("ann", digest) for digest in ("d1", "d1", "d2")]
    ['ok', 'ok', 'questions_per_target']
    """

    def __init__(self, policy: Policy, ledger: Ledger, run: str) -> None:
        self._policy = policy
        self._ledger = ledger
        self._run = run
        self._targets: Counter[str] = Counter()
        self._new: set[str] = set()
        self._questions = 0
        self._numbers = 0
        self._work = 0

    def question(self, name: str, digest: str) -> str:
        """Whether one more question for this target is within the limits: "ok", or which."""
        if digest in self._new or self._ledger.known(digest):
            return "ok"
        found = self._ledger.counts(self._run, name)
        policy = self._policy
        if found.target + self._targets[name] >= policy.questions_per_target:
            return "questions_per_target"
        if found.run + self._questions >= policy.questions:
            return "questions"
        if found.ever + self._questions >= policy.questions_ever:
            return "questions_ever"
        self._new.add(digest)
        self._targets[name] += 1
        self._questions += 1
        return "ok"

    def numbers(self, digest: str, many: int) -> str:
        """Whether so many numbers about the device may answer this question, if it is a new one."""
        if digest not in self._new:
            return "ok"
        found = self._ledger.counts(self._run, "")
        policy = self._policy
        if found.numbers + self._numbers + many > policy.numbers:
            return "numbers"
        if found.numbers_ever + self._numbers + many > policy.numbers_ever:
            return "numbers_ever"
        self._numbers += many
        return "ok"

    def work(self, much: int) -> str:
        """Whether so much more work is within the limit of a message."""
        if self._work + much > self._policy.work:
            return "work"
        self._work += much
        return "ok"
