"""A device as a peer: from each target's probe, a proposal."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.federation.device_home import DeviceHome
from persfl.federation.inquiry import Inquiry
from persfl.federation.ledger import Entry
from persfl.federation.messages import (
    Content,
    Refused,
    askers_of,
    digest_of,
    numbers_of,
    parts_of,
    size_of,
)
from persfl.federation.policy import work_of
from persfl.seeds import stream
from persfl.wire.codec import LARGEST, WireError, nested

Log = Callable[[str], None]


def code_of(error: Exception, what: str, r: int, log: Log) -> str:
    """The code for what went wrong, while it is handled; its text stays in the log here."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, WireError):
        return "format"
    log(f"{what} in round {r} failed\n{traceback.format_exc()}")
    return "failed"


def proposals(home: DeviceHome, question: Inquiry, log: Log) -> Content:
    """A proposal for each target that asks, or why there is none."""
    terms = question.terms
    me = question.me
    names = askers_of(question.head.get("names"))
    targets = question.arrays.get("targets")
    if targets is None or targets.dtype != np.int64 or targets.shape != (len(names),):
        raise WireError("a question must say on whose behalf it is asked.")
    rows = home.count(question.round)
    deal = home.dealt_for(question)
    mine = home.family.terms(terms)
    learn = home.inside(mine, deal.learn)
    batches = home.batches(terms, deal)
    said = question.digest(question.round, me, deal.mark)
    parts = parts_of(question.arrays)
    allowance = home.allowance(question)
    work = work_of(mine, learn.rows)
    size = 0

    def proposal(i: int, target: int) -> dict[str, NDArray[Any]]:
        probe = question.codec.probe_from(parts.get(f"q{i}", {}))
        lot = home.lot
        place = stream(lot.seed, "answer", question.round, target, lot.number)
        found = home.proposal(question.codec, probe, learn, batches, place)
        return question.codec.model_to(found)

    codes: list[str] = []
    entries: list[Entry] = []
    out: dict[str, NDArray[Any]] = {}
    for i, (name, target) in enumerate(zip(names, targets.tolist(), strict=True)):
        digest = digest_of((said, name, target), parts.get(f"q{i}", {}))
        given: dict[str, NDArray[Any]] = {}
        code = allowance.question(name, digest)
        if code == "ok":
            code = allowance.work(work)
        if code == "ok":
            try:
                given = proposal(i, target)
                size += size_of(given)
                if size > LARGEST:  # what cannot travel is not collected either
                    raise Refused("work")
                out |= nested(f"p{i}", given)
            except Exception as error:
                code = code_of(error, "answer", question.round, log)
                given = {}
        codes.append(code)
        left = {"bytes": size_of(given), "code": code, "numbers": numbers_of(given)}
        entries.append(question.entry("answer", name, digest, rows=rows, **left))
    home.ledger.write(entries, home.policy)
    return {"codes": codes, **home.news(question, rows)}, out
