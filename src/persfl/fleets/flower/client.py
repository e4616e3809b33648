"""The path by which Flower apps name persfl's ClientApp; see `persfl.federation.flower_app`."""

from persfl.federation.flower_app import client as app
from persfl.federation.flower_app import client_app

__all__ = ["app", "client_app"]
