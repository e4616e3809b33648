"""Sources: where rows come from. Static ones are `Devices`; streams are functions of the round
to a sequence of Data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from persfl import late_names
from persfl.devices import Devices

if TYPE_CHECKING:
    from persfl.sources.archive import read_archive
    from persfl.sources.dealt import Dealt, clustered_images
    from persfl.sources.digits import clustered_digits
    from persfl.sources.dirichlet import dirichlet_images
    from persfl.sources.images import (
        Images,
        read_cifar10,
        read_femnist,
        read_image_folder,
        read_npz,
    )
    from persfl.sources.inbox import Inbox
    from persfl.sources.shifted import shifted_digits
    from persfl.sources.stream import Fresh, Replay, Switch
    from persfl.sources.synthetic import clustered_regression, clustered_stream
    from persfl.sources.table import from_table, read_table
    from persfl.sources.varied import varied_regression

__all__ = [
    "Dealt",
    "Devices",
    "Fresh",
    "Images",
    "Inbox",
    "Replay",
    "Switch",
    "clustered_digits",
    "clustered_images",
    "clustered_regression",
    "clustered_stream",
    "dirichlet_images",
    "from_table",
    "read_archive",
    "read_cifar10",
    "read_femnist",
    "read_image_folder",
    "read_npz",
    "read_table",
    "shifted_digits",
    "varied_regression",
]

__getattr__ = late_names(
    __name__,
    {
        "read_archive": "archive",
        "Dealt": "dealt",
        "clustered_images": "dealt",
        "clustered_digits": "digits",
        "dirichlet_images": "dirichlet",
        "Images": "images",
        "read_cifar10": "images",
        "read_femnist": "images",
        "read_image_folder": "images",
        "read_npz": "images",
        "Inbox": "inbox",
        "shifted_digits": "shifted",
        "Fresh": "stream",
        "Replay": "stream",
        "Switch": "stream",
        "clustered_regression": "synthetic",
        "clustered_stream": "synthetic",
        "from_table": "table",
        "read_table": "table",
        "varied_regression": "varied",
    },
)
