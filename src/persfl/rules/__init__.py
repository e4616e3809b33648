"""Rules: a sampler and an adopter that belong together, because one asks for what the other
remembers.
"""

from persfl.rules.kin_rule import Rule, doubts, finished, kin, members

__all__ = ["Rule", "doubts", "finished", "kin", "members"]
