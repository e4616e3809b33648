"""Images that lie on disk: folders of files, `.npz` archives, and the CIFAR-10 and FEMNIST files of
those who have them.

Nothing is downloaded, and nothing is unpickled. A row is an image's numbers from 0 to 1, channel by
channel; `shape` is what
`Network(..., shape=...)` takes.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from persfl.checks import some
from persfl.devices import Devices, offsets
from persfl.errors import InputError, need
from persfl.sources.table import device_codes
from persfl.sources.unpacking import refuse_packed_arrays
from persfl.types import Array

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
CIFAR_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


class Images(NamedTuple):
    """Devices, the shape of one row (channels, height, width), and the names of the classes
    that labels number.
    """

    devices: Devices
    shape: tuple[int, ...]
    classes: tuple[Any, ...]


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
    root = Path(folder)
    if size is not None and (
        np.shape(size) != (2,)
        or not all(isinstance(side, (int, np.integer)) and side > 0 for side in size)
    ):
        raise InputError(
            f"size must be two whole numbers of at least 1, (width, height). Got {size!r}."
        )
    if not root.is_dir():
        raise InputError(
            f"{str(folder)!r} is not a folder. Images lie in FOLDER/DEVICE/CLASS/FILE."
        )
    owners = _folders(root)
    classes = sorted({kind.name for owner in owners for kind in _folders(owner)})
    if not classes:
        raise InputError(
            f"{str(folder)!r} has no folders of classes. Images lie in FOLDER/DEVICE/CLASS/FILE."
        )
    number = {name: float(k) for k, name in enumerate(classes)}
    images: list[Array] = []
    labels: list[float] = []
    counts: list[int] = []
    shape: tuple[int, ...] | None = None
    for owner in owners:
        files = [
            (kind.name, file)
            for kind in _folders(owner)
            for file in sorted(kind.iterdir())
            if file.suffix.lower() in ENDINGS
        ]
        if not files:
            raise InputError(
                f"device {owner.name!r} has no images in {str(owner)!r}. Its folder must hold"
                " CLASS/FILE."
            )
        for kind_name, file in files:
            image = _image(file, size, grey)
            shape = image.shape if shape is None else shape
            if image.shape != shape:
                raise InputError(
                    f"{str(file)!r} is {_said(image.shape)}, where the first image is"
                    f" {_said(shape)}. Scale all to one size: size=(width, height); grey=True makes"
                    " one channel of three."
                )
            images.append(image.reshape(-1))
            labels.append(number[kind_name])
        counts.append(len(files))
    assert shape is not None
    return _images(
        np.stack(images),
        np.array(labels),
        offsets(counts),
        [owner.name for owner in owners],
        shape,
        classes,
    )


def _folders(path: Path) -> list[Path]:
    return sorted(
        entry
        for entry in path.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    )


def _said(shape: tuple[int, ...]) -> str:
    return (
        f"{shape[2]} x {shape[1]} pixels with {shape[0]} channel{'s' * (shape[0] > 1)}"
    )


def _image(file: Path, size: tuple[int, int] | None, grey: bool) -> Array:
    """(channels, height, width) from 0 to 1."""
    pillow: Any = need("PIL.Image", extra="images", why="reading images")
    try:
        with pillow.open(file) as opened:
            # which Pillow would cut off at 255 instead of scaling
            deep = opened.mode.startswith("I;16")
            if opened.mode in ("I", "F"):
                raise InputError(
                    f"{str(file)!r} has pixels of 32 bits, whose range is not known. Save it with 8"
                    " or 16 bits."
                )
            image = (
                opened
                if deep
                else opened.convert(
                    "L" if grey or opened.mode in ("1", "L", "LA") else "RGB"
                )
            )
            image = image if size is None else image.resize(size)
            pixels = np.asarray(image, dtype=np.float64) / (65535.0 if deep else 255.0)
    except InputError:
        raise
    # Pillow raises many kinds for a broken or an oversized file
    except Exception as error:
        raise InputError(
            f"{str(file)!r} cannot be read as an image ({type(error).__name__}). Mend or remove it."
        ) from error
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)


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
    where = Path(path)
    if not where.is_file():
        raise InputError(f"there is no file {str(path)!r}.")
    try:
        refuse_packed_arrays(where)
        with np.load(where, allow_pickle=False) as archive:
            held = {
                name: archive[name] for name in (X, y, device) if name in archive.files
            }
            known = archive.files
    except InputError:
        raise
    # not an archive, or one that holds objects, which are never unpickled
    except Exception as error:
        raise InputError(
            f"{str(path)!r} cannot be read as a .npz archive of plain arrays: {error}"
        ) from error
    absent = [name for name in (X, y, device) if name not in held]
    if absent:
        raise InputError(
            f"{str(path)!r} has no array {some(absent)}. Its arrays: {some(known, 10)}. Name them:"
            " X=, y=, device=."
        )
    pixels, labels, who = held[X], held[y], held[device]
    if (
        pixels.ndim < 2
        or labels.shape != pixels.shape[:1]
        or who.shape != labels.shape
        or not pixels.size
    ):
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
    codes, ids = device_codes(who, len(who), where=f"array {device!r}")
    order = np.argsort(codes, kind="stable")
    classes: Sequence[Any] = ()
    if labels.dtype.kind in "USiub":
        names, place = np.unique(labels, return_inverse=True)
        classes, labels = names.tolist(), place.astype(np.float64)
    elif labels.dtype.kind != "f":
        raise InputError(f"{y} must hold numbers or texts. Got {labels.dtype}.")
    start = offsets(np.bincount(codes, minlength=len(ids)))
    return _images(
        pixels.reshape(len(pixels), -1)[order],
        labels[order].astype(np.float64),
        start,
        list(ids),
        shape,
        classes,
    )


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
    images, labels = [], []
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
                X, y = (
                    np.asarray(held["x"], dtype=np.float64),
                    np.asarray(held["y"], dtype=np.float64),
                )
                if not y.size:
                    continue
                if X.ndim != 2 or X.shape[1] != 784 or y.shape != X.shape[:1]:
                    raise ValueError("rows must be 784 numbers with a label each")
                if not np.isin(y, np.arange(62)).all():
                    raise ValueError("labels must be whole numbers from 0 to 61")
                found[str(name)] = (X, y)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{str(file)!r} is not FEMNIST as LEAF writes it: {type(error).__name__}: {error}."
            ) from error
    names = sorted(found)[:most]
    if not names:
        raise InputError(f"{str(folder)!r} holds no writer with images.")
    X, y = (np.concatenate([found[name][k] for name in names]) for k in (0, 1))
    start = offsets([len(found[name][1]) for name in names])
    characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return _images(X, y, start, names, (1, 28, 28), tuple(characters))


def _images(
    X: Array,
    y: Array,
    start: Any,
    ids: Sequence[Hashable],
    shape: tuple[int, ...],
    classes: Sequence[Any],
) -> Images:
    devices = Devices(np.ascontiguousarray(X), y, np.ones(len(y)), start, ids)
    devices.check(quiet=True)
    return Images(devices, tuple(int(side) for side in shape), tuple(classes))
