"""Handwritten digits in rotation clusters: scikit-learn's 1,797 images of 8 x 8 pixels, dealt out
to devices.

A device of one cluster sees all its images turned by the same angle, so its peers of the same
cluster have the same problem and the others a different one: a 6 on its head is a 9.
"""

from __future__ import annotations

from sklearn.datasets import load_digits

from persfl.sources.dealt import Dealt, clustered_images

TRAINING = 1300  # images that devices learn from; the other 497 are only ever held out


def clustered_digits(
    n: int = 120, *, clusters: int = 4, rows: int = 10, held: int = 40, seed: int = 0
) -> Dealt:
    """`n` devices in `clusters` of equal size, in order, each with `rows` images to learn from and
    `held` others.

    See `clustered_images` for how they are dealt. No two devices share an image to learn from while
    there are enough: `rows=10` lasts for 130 devices. Among 480 devices with 10 rows an image is
    with three or four of them, turned by the angle of each; 40 held-out rows last for 12 devices.

    >>> world = clustered_digits(n=24, clusters=8, rows=5, held=10, seed=0)
    >>> (
    ...     world.training,
    ...     world.held.counts.tolist()[:3],
    ...     world.training.clusters.tolist()[:6],
    ... )
    (Devices(24 devices, 120 rows, 64 features), [10, 10, 10], [0, 0, 0, 1, 1, 1])
    """
    found = load_digits()
    images = found.images[:, None] / 16.0
    return clustered_images(
        images,
        found.target,
        n,
        clusters=clusters,
        rows=rows,
        held=held,
        training=TRAINING,
        seed=seed,
    )
