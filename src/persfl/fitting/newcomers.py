"""One model for devices that were not there when fitting."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from persfl.evaluation.rivals import pooled_fit

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.fitting.setup import Setup
    from persfl.types import Model
    from persfl.units import Units


class Newcomers(TypedDict):
    """One model for devices that were not there, and its units."""

    pooled: Model
    pooled_units: Units | None


def newcomers(setup: Setup, rows: Devices) -> Newcomers:
    """A model for devices that were not there; it sees all rows."""
    if setup.settings.unseen != "pooled":
        return {"pooled": None, "pooled_units": None}
    units = setup.units(rows, "shared" if setup.kind == "centred" else setup.kind)
    model = pooled_fit(setup.learner, units.inside(rows), setup.seed)
    return {"pooled": model, "pooled_units": units}
