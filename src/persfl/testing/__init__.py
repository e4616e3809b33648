"""Contract checks: what every learner, proposer, sampler, adopter, fleet and method must do. Run
them on your own parts.

>>> from persfl import Best, Linear, Uniform
>>> check_learner(Linear())
>>> check_sampler(Uniform(3))
>>> check_adopter(Best())

A check passes silently or raises an AssertionError that says which promise was broken.
"""

from persfl.methods.contract import check_method
from persfl.testing.fleet_checks import check_fleet
from persfl.testing.learner_checks import check_learner, check_proposer
from persfl.testing.rule_checks import check_adopter, check_sampler

__all__ = [
    "check_adopter",
    "check_fleet",
    "check_learner",
    "check_method",
    "check_proposer",
    "check_sampler",
]
