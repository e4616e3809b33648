"""What crosses a border: arrays and numbers in a checked, versioned format, never code."""

from persfl.wire.codec import (
    FORMAT,
    LARGEST,
    WireError,
    nested,
    pack,
    unpack,
    within,
)
from persfl.wire.models import model_from, model_to, probe_from, probe_to, sends_model
from persfl.wire.terms import Terms

__all__ = [
    "FORMAT",
    "LARGEST",
    "Terms",
    "WireError",
    "model_from",
    "model_to",
    "nested",
    "pack",
    "probe_from",
    "probe_to",
    "sends_model",
    "unpack",
    "within",
]
