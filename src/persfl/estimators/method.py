"""Which method a fit goes by: "auto" is blend, unless something was set that belongs to the loop as printed.

auto = paper    if peers, rounds, step_size, adopter or compute is set, or units that blend does not use
     = paper    for models that blend does not mix, and for rows that keep arriving
     = blend    otherwise
"""

from __future__ import annotations

from typing import Any, NamedTuple

from persfl.checks import one_of
from persfl.errors import InputError
from persfl.learners import Linear

METHODS = ("auto", "blend", "paper", "kin")
UNITS = ("auto", "shared")  # those that blend's models live in
_LOOP = {"peers": "auto", "rounds": "auto", "step_size": "auto", "adopter": None, "compute": None}
_BLEND = {"budget": 640, "ordered": False}


class Method(NamedTuple):
    """A method's name, and why "auto" is this one ("" where the method was named, or nothing stood against blend)."""

    name: str
    why: str = ""


def method_of(settings: Any, learner: Any, *, online: bool = False) -> Method:
    """The method of an estimator with these settings and this learner.

    >>> from persfl import PersonalizedRegressor
    >>> method_of(PersonalizedRegressor(), Linear()).name, method_of(PersonalizedRegressor(method="kin"), Linear()).name
    ('blend', 'kin')
    >>> method_of(PersonalizedRegressor(rounds=50, peers=5), Linear())
    Method(name='paper', why='peers and rounds belong to it')
    """
    asked = one_of("method", settings.method, METHODS)
    if asked != "auto":
        return Method(asked)
    loop = loop_settings(settings)
    if loop:
        blend = [name for name, usual in _BLEND.items() if getattr(settings, name) != usual]
        if blend:
            raise InputError(
                f"{loop[0]} belongs to method='paper', {blend[0]} to 'blend'. Leave one of them out, or name the method."
            )
        return Method("paper", f"{' and '.join([', '.join(loop[:-1]), loop[-1]] if loop[1:] else loop)} "
                      f"{'belong' if loop[1:] else 'belongs'} to it")  # fmt: skip
    if not blends(learner):
        return Method("paper", "blend does not mix networks")
    return Method("paper", "rows keep arriving") if online else Method("blend")


def loop_settings(settings: Any) -> list[str]:
    """What was set that only the loop of the paper (and of kin) goes by."""
    found = [name for name, usual in _LOOP.items() if not _same(getattr(settings, name), usual)]
    return found if settings.units in UNITS else [*found, "units"]


def _same(value: Any, usual: Any) -> bool:
    return value is usual or (isinstance(value, str) and value == usual)


def blends(learner: Any) -> bool:
    """Whether blend mixes such models: linear ones by their weights, refitted ones by what they predict."""
    return isinstance(learner, Linear) or not hasattr(learner, "grad")


def said(method: Method) -> str:
    """The sentence for people.

    >>> said(Method("paper", "rounds belongs to it"))
    "Models were made by asking peers as the paper has it (method 'paper', since rounds belongs to it)."
    """
    does = {
        "blend": "Models are mixed from what own rows, the fleet and neighbours offer",
        "paper": "Models were made by asking peers as the paper has it",
        "kin": "Models were made by finding devices that answer from the same truth and learning from all of them",
        "own": "There is one device, so there was nobody to ask",
    }[method.name]
    if method.name == "own":
        return f"{does}."
    return f"{does} (method {method.name!r}{f', since {method.why}' if method.why else ''})."
