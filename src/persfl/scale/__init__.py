"""Fleets that do not fit one process: rows in shards, read by workers of an engine."""

from persfl.scale.dataset import ParquetDataset

__all__ = ["ParquetDataset"]
