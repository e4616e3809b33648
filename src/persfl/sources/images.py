"""Images that lie on disk: folders of files, `.npz` archives, and the CIFAR-10 and FEMNIST files of
those who have them.

Nothing is downloaded, and nothing is unpickled. A row is an image's numbers from 0 to 1, channel by
channel; `shape` is what `Network(..., shape=...)` takes.
"""

from __future__ import annotations

import json
import string
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from persfl.checks import some
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.sources.image_files import (
    described,
    image_files,
    read_image,
    refuse_many_pixels,
)
from persfl.sources.table import device_codes
from persfl.sources.unpacking import read_arrays
from persfl.types import Array


class Images(NamedTuple):
    """Devices, the shape of one row (channels, height, width), and the names of the classes
    that labels number.
    """

    devices: Devices
    shape: tuple[int, ...]
    classes: tuple[Hashable, ...]


def read_image_folder(
    folder: str | Path, *, size: tuple[int, int] | None = None, grey: bool = False
) -> Images:
    """Images as FOLDER/DEVICE/CLASS/FILE: each device's folder has a folder for every class it
    knows.

    Images of different sizes need `size` (width, height), to which all are scaled; `grey` makes one
    channel of three.

    >>> import tempfile
    >>> from PIL import Image
    >>> root = Path(tempfile.mkdtemp())
    >>> for device, kind, value in [
    ...     ("ann", "cat", 0),
    ...     ("ann", "dog", 255),
    ...     ("bob", "cat", 51),
    ... ]:
    ...     (root / device / kind).mkdir(parents=True)
    ...     Image.new("L", (3, 2), value).save(root / device / kind / "1.png")
    >>> found = read_image_folder(root)
    >>> found.devices.ids, found.shape, found.classes, found.devices[0].X[:, 0].tolist()
    (['ann', 'bob'], (1, 2, 3), ('cat', 'dog'), [0.0, 1.0])
    """
    if size is not None and (
        np.shape(size) != (2,)
        or not all(isinstance(side, (int, np.integer)) and side > 0 for side in size)
    ):
        raise InputError(
            f"size must be two whole numbers of at least 1, (width, height). Got {size!r}."
        )
    root = Path(folder)
    files, classes = image_files(root)
    owners = sorted({file.owner for file in files})
    images: list[Array] = []
    packed = sum(file.path.stat().st_size for file in files)
    for file in files:
        image = read_image(file.path, size, grey)
        if not images:
            refuse_many_pixels(root, len(files) * image.nbytes, packed)
        if images and image.shape != images[0].shape:
            raise InputError(
                f"{str(file.path)!r} is {described(image)}, where the first image is"
                f" {described(images[0])}. Scale all to one size: size=(width, height); grey=True"
                " makes one channel of three."
            )
        images.append(image)
    devices = Devices.grouped(
        np.stack(images).reshape(len(images), -1),
        np.array([float(classes.index(file.kind)) for file in files]),
        np.array([owners.index(file.owner) for file in files]),
        owners,
    )
    return _images(devices, images[0].shape, classes)


def read_npz(
    path: str | Path,
    *,
    X: str = "X",
    y: str = "y",
    device: str = "device",
    channels_last: bool = False,
) -> Images:
    """Rows of a `.npz` archive: `X` (rows, ...), `y` and `device` (rows,) are the names of its
    arrays.

    Images are (rows, height, width) or (rows, channels, height, width); with `channels_last` (rows,
    height, width, channels). Whole numbers up to 255 become 0 to 1. Labels that are texts or whole
    numbers become classes; others stay numbers.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "faces.npz"
    >>> np.savez(
    ...     path,
    ...     X=np.zeros((4, 8, 8), dtype=np.uint8),
    ...     y=["a", "b", "a", "a"],
    ...     device=[1, 1, 2, 2],
    ... )
    >>> found = read_npz(path)
    >>> found.devices, found.shape, found.classes
    (Devices(2 devices, 4 rows, 64 features), (1, 8, 8), ('a', 'b'))
    """
    held = read_arrays(Path(path), (X, y, device))
    absent = [name for name in (X, y, device) if name not in held]
    if absent:
        raise InputError(
            f"{str(path)!r} has no array {some(absent)}. Its arrays: {some(list(held), 10)}. Name"
            " them: X=, y=, device=."
        )
    pixels, labels, who = (held[name] for name in (X, y, device))
    fits = labels.shape == pixels.shape[:1] and who.shape == labels.shape
    if pixels.ndim < 2 or not fits or not pixels.size:
        raise InputError(
            f"{X} must be (rows, ...) and {y} and {device} one entry a row. Got {pixels.shape},"
            f" {labels.shape} and {who.shape}."
        )
    if pixels.dtype.kind not in "uifb":
        raise InputError(f"{X} must hold numbers. Got {pixels.dtype}.")
    whole = pixels.dtype.kind in "ui"
    pixels = pixels.astype(np.float64)
    if whole and pixels.ndim >= 3 and pixels.min() >= 0 and pixels.max() <= 255:
        pixels /= 255.0
    if pixels.ndim == 4 and channels_last:
        pixels = np.moveaxis(pixels, 3, 1)
    shape = tuple(pixels.shape[1:]) if pixels.ndim != 3 else (1, *pixels.shape[1:])
    classes: Sequence[Hashable] = ()
    if labels.dtype.kind in "USiub":
        names, labels = np.unique(labels, return_inverse=True)
        classes = names.tolist()
    elif labels.dtype.kind != "f":
        raise InputError(f"{y} must hold numbers or texts. Got {labels.dtype}.")
    codes, ids = device_codes(who, len(who), where=f"array {device!r}")
    flat = pixels.reshape(len(pixels), -1)
    devices = Devices.grouped(flat, labels.astype(np.float64), codes, ids)
    return _images(devices, shape, classes)


def read_cifar10(folder: str | Path) -> tuple[Array, Array]:
    """The images (60,000 x 3 x 32 x 32, from 0 to 1) and labels of CIFAR-10's *binary* version,
    `data_batch_1.bin` and so on.

    They have no owners: `clustered_images(*read_cifar10(folder), n=..., ...)` deals them out. The
    version for Python is pickled, and is refused.
    """
    root = Path(folder)
    files = sorted(root.glob("data_batch_*.bin")) + sorted(root.glob("test_batch.bin"))
    if not files:
        pickled = any(root.glob("data_batch_[0-9]")) if root.is_dir() else False
        why = (
            "It holds the pickled version, which could run anything: use the binary one."
            if pickled
            else "Download it yourself."
        )
        raise InputError(
            f"{str(folder)!r} has no data_batch_*.bin, the binary version of CIFAR-10. {why}"
        )
    images = []
    labels = []
    for file in files:
        content = np.frombuffer(file.read_bytes(), dtype=np.uint8)
        if not len(content) or len(content) % 3073 or content[::3073].max() > 9:
            raise InputError(
                f"{str(file)!r} is not a file of CIFAR-10's binary version: records of a label and"
                " 3,072 pixels."
            )
        records = content.reshape(-1, 3073)
        labels.append(records[:, 0].astype(np.float64))
        images.append(
            (records[:, 1:] / np.float32(255)).astype(np.float32).reshape(-1, 3, 32, 32)
        )
    return np.concatenate(images), np.concatenate(labels)


def read_femnist(folder: str | Path, *, most: int | None = None) -> Images:
    """FEMNIST as LEAF writes it: `.json` files with users and their 28 x 28 images of 62
    characters; a writer is a device.

    `most` takes only so many writers, in the order of their names.
    """
    root = Path(folder)
    files = sorted(root.glob("*.json"))
    if not files:
        raise InputError(
            f"{str(folder)!r} has no .json files as LEAF writes them for FEMNIST."
        )
    found: dict[str, tuple[Array, Array]] = {}
    for file in files:
        try:
            users = json.loads(file.read_bytes())["user_data"]
            for name, held in users.items():
                X = np.asarray(held["x"], dtype=np.float64)
                y = np.asarray(held["y"], dtype=np.float64)
                if not y.size:
                    continue
                if X.ndim != 2 or X.shape[1] != 784 or y.shape != X.shape[:1]:
                    raise ValueError("rows must be 784 numbers with a label each")
                if not np.isin(y, np.arange(62)).all():
                    raise ValueError("labels must be whole numbers from 0 to 61")
                found[str(name)] = (X, y)
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            raise InputError(
                f"{str(file)!r} is not FEMNIST as LEAF writes it: {type(error).__name__}: {error}."
            ) from error
    names = sorted(found)[:most]
    if not names:
        raise InputError(f"{str(folder)!r} holds no writer with images.")
    devices = Devices.of([found[name] for name in names], ids=names, quiet=True)
    characters = string.digits + string.ascii_uppercase + string.ascii_lowercase
    return _images(devices, (1, 28, 28), characters)


def _images(
    devices: Devices, shape: Sequence[int], classes: Sequence[Hashable]
) -> Images:
    devices.check(quiet=True)
    return Images(devices, tuple(int(side) for side in shape), tuple(classes))
