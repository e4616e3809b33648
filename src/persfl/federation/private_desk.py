"""A device whose owner has set a budget: what it answers, and nothing else.

It looks at its rows only to make sums of them (`persfl.privacy.mechanisms`), whose noise was paid
for before. No answer, no refusal and no number in a message depends on the rows in any other way:
not how many there are, nor whether a label fits, nor how long an answer took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl import __version__
from persfl.federation.budget_book import ProtectedAnswer
from persfl.federation.device_home import DeviceHome, must
from persfl.federation.inquiry import Inquiry
from persfl.federation.ledger import NOISED, Entry
from persfl.federation.messages import (
    PROTOCOL,
    Arrays,
    Content,
    Refused,
    digest_of,
    numbers_of,
    size_of,
)
from persfl.federation.policy import work_of
from persfl.federation.privacy_settings import PrivacySettings
from persfl.federation.private_rows import (
    fitting_labels,
    kind_of_loss,
    row_losses,
    rows_with_columns,
    stepping_learner,
    units_arrays,
)
from persfl.federation.private_sums import PrivateSums
from persfl.federation.told_units import column_sums
from persfl.privacy.choice import prefers_sums
from persfl.privacy.mechanisms import (
    count_deviation,
    gradient_clip,
    noised_gradient,
    noised_losses,
)
from persfl.privacy.secure_noise import NoiseSource, SystemNoise
from persfl.types import Array, Data
from persfl.wire import pack, unpack

USUAL_ROWS = 1_000  # that work is counted by, where no number of rows is public
LARGEST_LOSS = 4.0  # of a row: as of an error of two in standard units


class RowsSeen(NamedTuple):
    """A number of rows with noise, and what a sum that was told beside it is divided by."""

    rows: float
    divisor: float


class PrivateDesk:
    """Everything that a protected device tells goes through here, and is paid for here."""

    def __init__(
        self,
        home: DeviceHome,
        settings: PrivacySettings,
        source: NoiseSource | None = None,
    ) -> None:
        self.home = home
        self.settings = settings
        self.source = source or SystemNoise()

    # What is paid for

    def paid(
        self,
        question: Inquiry,
        told: ProtectedAnswer,
        digest: str,
        make: Callable[[], Arrays],
    ) -> dict[str, NDArray[Any]]:
        """The answer to a question: as before, or made now and paid for.

        It is made before it is paid for, and thrown away where the budget does not reach; whether
        that is so never hangs on the rows.
        """
        book = self.home.ledger.protected
        known = book.reply(digest)
        if known is None:
            budget = self.settings.budget
            known = book.pay(digest, told, budget, pack({}, make()))
        return unpack(known, most=len(known))[1]

    def sums(self, question: Inquiry) -> PrivateSums:
        """Sums over all rows, with the noise that they were given when they were first asked
        for.
        """
        now = self.home.source(question.round)
        columns = sorted(str(name) for name in now.columns)
        settings = self.settings
        noise = settings.noise_of_sums
        if not self.home.policy.sums:
            raise Refused("sums")
        if not self.tells_sums(columns):
            raise Refused("privacy")
        middle, scale = settings.units(columns)
        digest = digest_of(("sums", columns), {"middle": middle, "scale": scale})

        def make() -> Arrays:
            data = rows_with_columns(now.columns, columns, now.data)
            made = PrivateSums.of(columns, data, settings, self.source)
            return {"matrix": made.matrix}

        told = ProtectedAnswer(question.run, "sums", "", noise)
        matrix = self.paid(question, told, digest, make)["matrix"]
        return PrivateSums(tuple(columns), middle, scale, matrix)

    def tells_sums(self, columns: Sequence[str]) -> bool:
        """Whether sums over these columns are told, by what is public."""
        settings = self.settings
        noise = settings.noise_of_sums
        good = prefers_sums(len(columns), settings.rows, noise)
        return self.home.policy.sums and good and not settings.lacking(columns)

    def gradient(
        self, question: Inquiry, model: Array, name: str
    ) -> tuple[Array, RowsSeen]:
        """The sum of rows' gradients at a model, and how many rows there seem to be."""
        terms = question.terms
        learner = stepping_learner(question.codec)
        clip = self.settings.length(gradient_clip(terms.features))

        def make() -> Arrays:
            data = self.rows(question)
            noise = self.settings.noise
            return {
                "told": noised_gradient(learner, model, data, clip, noise, self.source)
            }

        digest = digest_of(
            ("gradient", *kind_of_loss(terms)), units_arrays(terms), {"m": model}
        )
        told = ProtectedAnswer(question.run, "gradient", name, self.settings.noise)
        found = self.paid(question, told, digest, make)["told"]
        count = float(found[-1])
        return found[:-1], RowsSeen(count, self._rows_seen(count, 1))

    def losses(self, question: Inquiry, models: Array) -> Array:
        """(models,) mean losses on its rows."""
        terms = question.terms
        learner = stepping_learner(question.codec)

        def make() -> Arrays:
            data = self.rows(question)
            each = np.stack([row_losses(learner, model, data) for model in models], 1)
            return {
                "told": noised_losses(
                    each, LARGEST_LOSS, self.settings.noise, self.source
                )
            }

        digest = digest_of(
            ("losses", *kind_of_loss(terms)), units_arrays(terms), {"m": models}
        )
        told = ProtectedAnswer(question.run, "losses", "", self.settings.noise)
        found = self.paid(question, told, digest, make)["told"]
        mean = found[:-1] / self._rows_seen(float(found[-1]), len(models))
        return np.asarray(np.clip(mean, 0.0, LARGEST_LOSS))

    def _rows_seen(self, told: float, beside: int) -> float:
        """How many rows to divide by, of a noised number that was told beside so many others: at
        least as many as its noise would hide, or what is divided would be noise made large.
        """
        deviation = self.settings.noise * count_deviation(beside)
        return float(self.settings.rows or max(told, deviation, 1.0))

    # Rows

    def rows(self, question: Inquiry) -> Data:
        """All rows, in the units of the run; labels made to fit, so that none is refused."""
        terms = question.terms
        now = self.home.source(question.round)
        data = terms.inside(rows_with_columns(now.columns, terms.columns, now.data))
        return Data(
            data.X, fitting_labels(question.codec, data.y), np.minimum(data.weight, 1.0)
        )

    def check(self, question: Inquiry, models: int = 1) -> None:
        """Refuse columns that are not there, models that its owner does not allow, and too much
        work; by a public number of rows, so that refusals tell nothing of the true one.
        """
        terms = question.terms
        there = {str(name) for name in self.home.source(question.round).columns}
        if not there.issuperset(terms.columns):
            raise Refused("columns")
        no = self.home.policy.refuses(terms, 2**53)
        if no is not None:
            raise Refused(no)
        if terms.steps != 1 or terms.batch is not None or terms.public is not None:
            raise Refused("privacy")
        work = models * work_of(terms, self.settings.rows or USUAL_ROWS)
        must(self.home.allowance(question).work(work))

    # Messages

    def about(self, question: Inquiry) -> dict[str, Any]:
        """Who it is, and what it promises its rows."""
        settings = self.settings
        book = self.home.ledger.protected
        account = book.account(settings.budget)
        left = settings.answers_left(account, units=book.told("units"))
        columns = self.home.source(question.round).columns
        names = [str(name) for name in columns]
        return {
            "rows": settings.rows,
            "columns": names,
            "target": self.home.policy.target,
            "protocol": PROTOCOL,
            "version": __version__,
            "privacy": {
                "epsilon": settings.epsilon,
                "delta": settings.delta,
                "spent": account.epsilon,
                "answers": left,
                "sums": self.tells_sums(names),
                "ranges": settings.declared(names),
            },
        }

    def describe(self, question: Inquiry) -> Content:
        """As an unprotected device does, but for the number of rows; sums for shared units."""
        found = self.about(question)
        out: dict[str, NDArray[Any]] = {}
        if question.head.get("sums"):
            out = column_sums(self, question)
        self.write(question, "describe", "", out)
        return found, out

    def write(
        self, question: Inquiry, kind: str, name: str, out: Arrays, code: str = "ok"
    ) -> None:
        """A line in the ledger, before it leaves."""
        said = (kind, name, question.run, question.round, question.ask)
        digest = f"{NOISED}{digest_of(said, question.arrays)}" if out else ""
        left = {"bytes": size_of(out), "numbers": numbers_of(out), "code": code}
        entry: Entry = question.entry(kind, name, digest, **left)
        self.home.ledger.write([entry], self.home.policy)
