"""Who helps whom: `persfl.evaluation.who_helps`, by the names it has always had."""

from persfl.evaluation.who_helps import chance, graph
from persfl.evaluation.who_helps import helper_table as helpers

__all__ = ["chance", "graph", "helpers"]
