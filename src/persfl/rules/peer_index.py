"""Which peers each target has met: (T, P) in the order in which it met them, -1 behind the last.

The panel of a target is its row; a peer's place in it is where everything noted about it lies.
"""

from __future__ import annotations

import numpy as np

from persfl.types import IntArray, Mask


def peer_places(panel: IntArray, peers: IntArray) -> tuple[IntArray, Mask]:
    """Where each target's panel has these peers (T, S), and whether it has them at all.

    >>> at, known = peer_places(np.array([[7, 3, -1]]), np.array([[3, 9, -1]]))
    >>> at.tolist(), known.tolist()
    ([[1, 0, 0]], [[True, False, False]])
    """
    if not panel.shape[1]:  # nobody has been met
        nowhere = np.zeros(peers.shape, dtype=np.int64)
        return nowhere, nowhere > 0
    # One sorted list of target and peer together serves all targets at once.
    met = int(panel.max(initial=0))
    asked = int(peers.max(initial=0))
    wide = max(met, asked) + 2
    target = np.arange(len(peers))[:, None]
    base = target * wide + 1
    keys = (base + panel).ravel()
    wanted = base + peers
    order = np.argsort(keys, kind="stable")
    rank = np.searchsorted(keys, wanted, sorter=order)
    at = order[np.minimum(rank, len(keys) - 1)]
    known = (keys[at] == wanted) & (peers >= 0)
    return np.where(known, at % panel.shape[1], 0), known


def with_peers(panel: IntArray, peers: IntArray) -> tuple[IntArray, IntArray, Mask]:
    """The panel with these peers in it, where they are, and which of them are new; a target's peers
    must differ.

    >>> panel, at, new = with_peers(np.array([[7]]), np.array([[3, 7]]))
    >>> panel.tolist(), at.tolist(), new.tolist()
    ([[7, 3]], [[1, 0]], [[True, False]])
    """
    at, known = peer_places(panel, peers)
    new = (peers >= 0) & ~known
    if not new.any():
        return panel, at, new
    held = (panel >= 0).sum(axis=1)
    most = int((held + new.sum(axis=1)).max())
    room = max(0, most - panel.shape[1])
    longer = np.pad(panel, ((0, 0), (0, room)), constant_values=-1)
    behind = held[:, None] + np.cumsum(new, axis=1) - 1
    at = np.where(new, behind, at)
    t, s = np.nonzero(new)
    longer[t, at[t, s]] = peers[t, s]
    return longer, at, new
