"""The path by which Flower apps name persfl's ServerApp; see `persfl.federation.flower_app`."""

from persfl.federation.flower_app import server as app

__all__ = ["app"]
