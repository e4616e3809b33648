"""Fleets that do not fit one process: rows in shards, read by workers of an engine."""

from persfl.scale.dataset import ParquetDataset
from persfl.scale.model_table import ModelTable

__all__ = ["ModelTable", "ParquetDataset"]
