"""Sources: where rows come from. Static ones are `Devices`; streams are functions of the round to a sequence of Data."""

from persfl.devices import Devices
from persfl.sources.digits import Digits, clustered_digits
from persfl.sources.inbox import Inbox
from persfl.sources.stream import Fresh, Replay, Switch
from persfl.sources.synthetic import clustered_regression, clustered_stream
from persfl.sources.table import from_table, read_table

__all__ = [
    "Devices",
    "Digits",
    "Fresh",
    "Inbox",
    "Replay",
    "Switch",
    "clustered_digits",
    "clustered_regression",
    "clustered_stream",
    "from_table",
    "read_table",
]
