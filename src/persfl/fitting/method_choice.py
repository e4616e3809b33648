"""Which method a fit goes by: "auto" is blend, unless something was set that belongs to the loop as
printed.

auto = paper    if peers, rounds, step_size, adopter or compute is set (online_rounds for
partial_fit), or units that blend
                does not use
     = blend    otherwise
"""

from __future__ import annotations

from typing import Any, NamedTuple

from persfl.checks import one_of
from persfl.errors import InputError

METHODS = ("auto", "blend", "paper", "kin")
UNITS = ("auto", "shared")  # those that blend's models live in
_LOOP = {
    "peers": "auto",
    "rounds": "auto",
    "step_size": "auto",
    "adopter": None,
    "compute": None,
}
_BLEND = {"budget": 640, "ordered": False}
_ROUNDS = 10  # of a call of partial_fit, unless said otherwise


class Method(NamedTuple):
    """A method's name, and why "auto" is this one ("" where the method was named, or nothing
    stood against blend).
    """

    name: str
    why: str = ""


def method_of(settings: Any, *, online: bool = False) -> Method:
    """The method of an estimator with these settings; `online` for rows that keep arriving.

    >>> from persfl import PersonalizedRegressor
    >>> (
    ...     method_of(PersonalizedRegressor()).name,
    ...     method_of(PersonalizedRegressor(method="kin")).name,
    ... )
    ('blend', 'kin')
    >>> method_of(PersonalizedRegressor(rounds=50, peers=5))
    Method(name='paper', why='peers and rounds belong to it')
    """
    asked = one_of("method", settings.method, METHODS)
    if asked != "auto":
        return Method(asked)
    loop = loop_settings(settings)
    if online and settings.online_rounds != _ROUNDS:
        loop.append("online_rounds")
    if loop:
        blend = [
            name for name, usual in _BLEND.items() if getattr(settings, name) != usual
        ]
        if blend:
            raise InputError(
                f"{loop[0]} belongs to method='paper', {blend[0]} to 'blend'. Leave one of them"
                " out, or name the method."
            )
        return Method(
            "paper",
            f"{' and '.join([', '.join(loop[:-1]), loop[-1]] if loop[1:] else loop)} "
            f"{'belong' if loop[1:] else 'belongs'} to it",
        )
    return Method("blend")


def loop_settings(settings: Any) -> list[str]:
    """What was set that only the loop of the paper (and of kin) goes by."""
    found = [
        name
        for name, usual in _LOOP.items()
        if not _same(getattr(settings, name), usual)
    ]
    return found if settings.units in UNITS else [*found, "units"]


def _same(value: Any, usual: Any) -> bool:
    return value is usual or (isinstance(value, str) and value == usual)


def said(method: Method) -> str:
    """The sentence for people.

    >>> said(Method("paper", "rounds belongs to it"))
    "Models were made by asking peers as the paper has it (method 'paper', since rounds belongs to
    it)."
    """
    does = {
        "blend": "Models are mixed from what own rows, the fleet and neighbours offer",
        "paper": "Models were made by asking peers as the paper has it",
        "kin": (
            "Models were made by finding devices that answer from the same truth and learning from"
            " all of them"
        ),
        "own": "There is one device, so there was nobody to ask",
    }[method.name]
    if method.name == "own":
        return f"{does}."
    return f"{does} (method {method.name!r}{f', since {method.why}' if method.why else ''})."
