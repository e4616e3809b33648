"""Fleets that do not fit one process: rows in shards, read by workers of an engine."""
