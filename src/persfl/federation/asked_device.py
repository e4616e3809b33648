"""What a device does with blend's questions whatever the models are: it reads them, and knows those
again that were put before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from persfl.federation.messages import MOST, Arrays, Refused, digest_of
from persfl.federation.moment_rows import Likenesses, by_moments
from persfl.federation.policy import Policy
from persfl.federation.row_stock import Deal, Stock
from persfl.methods.blend.forms import ModelFamily, Wire
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.questions import KINDS, checked
from persfl.types import Data, IntArray, Model
from persfl.wire.codec import WireError
from persfl.wire.terms import Terms

AS_TARGET = tuple(kind for kind, one in KINDS.items() if one.target)


class DeviceReply(NamedTuple):
    """What leaves as an answer; and the device's new model, which is kept, where it has one."""

    arrays: dict[str, Any]
    model: Model | None = None


class RowsAsked(NamedTuple):
    """One device's rows under the terms of a run, and what its owner allows."""

    terms: Terms
    deal: Deal
    stock: Stock
    policy: Policy
    likenesses: Likenesses

    def seen(self, parts: Sequence[IntArray]) -> Data:
        """Rows in the units of the run; where moments are all that is told, with the moments of
        each of these parts and nothing else.
        """
        rows = self.deal.learn
        if self.policy.rows > 1 and by_moments(self.terms):
            rows = self.likenesses.within(rows, parts)
        return self.terms.inside(rows)


class AskedDevice:
    """A device as blend asks it; what it answers is the business of each kind of models."""

    def __init__(self, home: RowsAsked, family: ModelFamily) -> None:
        self.home = home
        self.terms = home.terms
        self.policy = home.policy
        self.rows = home.deal.learn.rows
        self._family = family

    def sizes(self, told: dict[str, Any]) -> dict[str, int]:
        """What words in shapes stand for, in this question."""
        raise NotImplementedError

    def allowed(self, question: Question) -> None:
        """Refuse what the owner does not allow."""

    def work(self, question: Question, names: int) -> int:
        """About how many nanoseconds it takes; never from what the rows say."""
        raise NotImplementedError

    def reply(self, question: Question, names: int) -> DeviceReply:
        """The answer to a question on behalf of so many."""
        raise NotImplementedError

    def question(self, asked: Any, arrays: Arrays, names: Sequence[str]) -> Question:
        """The question that came, if this device answers such ones."""
        told = asked if isinstance(asked, dict) else {}
        if told.get("what") in AS_TARGET and not self.policy.target:
            raise Refused("target")
        sizes = self.sizes(told) | {"names": len(names)}
        found: Question = checked(told, arrays, self._family, **sizes)
        self.allowed(found)
        return found

    def digests(self, said: Any, question: Question, names: Sequence[str]) -> list[str]:
        """One for each name: the same for the same question to the same rows, whenever and in
        whatever company it comes. What all of them share is read once, however many there are.
        """
        forms = question.forms()
        family = self._family
        shared = Wire(family, {"what": question.kind})
        apart = dict[str, Any]()
        for name, form in forms.items():
            value = getattr(question, name)
            if form.along("names"):
                apart[name] = value
            elif value is not None:
                form.write(name, value, shared)
        same = digest_of(("blend", said, sorted(shared.head.items())), shared.arrays)
        found = []
        for i, asker in enumerate(names):
            own = Wire(family)
            for name, value in apart.items():
                one = forms[name].part(value, "names", slice(i, i + 1))
                forms[name].write(name, one, own)
            found.append(digest_of((same, asker), own.arrays))
        return found


def names_of(asked: Any) -> list[str]:
    """On whose behalf each model of a question is sent; "" is the run itself."""
    names = asked.get("names", [""]) if isinstance(asked, dict) else None
    if (
        not isinstance(names, list)
        or not 0 < len(names) <= MOST
        or not all(isinstance(n, str) and len(n) <= 200 for n in names)
    ):
        raise WireError("a question must say on whose behalf it is asked.")
    return names
