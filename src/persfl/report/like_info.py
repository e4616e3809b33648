"""Who is like a device, for the page of one device: how many, and the likest by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from persfl.evaluation.alike import HELPS

if TYPE_CHECKING:
    import pandas as pd

    from persfl.evaluation.alike import Alike
    from persfl.types import IntArray

NAMED = 5  # devices at most
IN_ALL = 16_000  # names on a page: it must stay small


def like_info(
    known: pd.DataFrame, found: Alike, codes: IntArray, devices: int
) -> list[list[int]]:
    """Per device how many peers are said to be like it, then the positions of the likest.

    >>> import pandas as pd
    >>> from persfl.evaluation.alike import Alike
    >>> known = pd.DataFrame({"target": [0, 0, 1], "peer": [1, 2, 0]})
    >>> found = Alike(np.array([0.85, 0.95, 0.1]), True, False, False)
    >>> like_info(known, found, np.array([0, 0, 1]), 3)
    [[2, 2, 1], [0], [0]]
    """
    says = np.flatnonzero(codes == HELPS)
    target = known["target"].to_numpy()[says]
    peer = known["peer"].to_numpy()[says]
    like: list[list[int]] = [
        [count] for count in np.bincount(target, minlength=devices).tolist()
    ]
    most = min(NAMED, max(1, IN_ALL // devices))
    for k in np.lexsort((peer, -found.chance[says], target)).tolist():
        mine = like[target[k]]
        if len(mine) <= most:
            mine.append(int(peer[k]))
    return like
