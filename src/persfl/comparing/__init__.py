"""Methods on equal terms: the same rows to learn from, the same rows to judge by, on one table or on many data sets and seeds."""

from persfl.comparing.trial import compare, summary

__all__ = ["compare", "summary"]
