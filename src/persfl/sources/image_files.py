"""Image files in folders: FOLDER/DEVICE/CLASS/FILE."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from persfl.errors import InputError, need
from persfl.types import Array

MOST_PIXELS = 2**24  # of an image as it is learned from
MOST_UNPACKED = 1_000  # times the bytes of all files, and a little room
_ROOM = 2**30
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
# whatever a file is called: for PostScript, say, Pillow would run Ghostscript on it
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")


class ImageFile(NamedTuple):
    """A file, the device whose it is, and the class that it shows."""

    owner: str
    kind: str
    path: Path


def image_files(root: Path) -> tuple[list[ImageFile], list[str]]:
    """Every image, device by device and class by class, and the classes that have a folder."""
    if not root.is_dir():
        raise InputError(
            f"{str(root)!r} is not a folder. Images lie in FOLDER/DEVICE/CLASS/FILE."
        )
    owners = _folders(root)
    classes = sorted({kind.name for owner in owners for kind in _folders(owner)})
    if not classes:
        raise InputError(
            f"{str(root)!r} has no folders of classes. Images lie in FOLDER/DEVICE/CLASS/FILE."
        )
    found: list[ImageFile] = []
    for owner in owners:
        before = len(found)
        for kind in _folders(owner):
            for file in sorted(kind.iterdir()):
                if file.suffix.lower() in ENDINGS and file.is_file():
                    found.append(ImageFile(owner.name, kind.name, file))
        if len(found) == before:
            raise InputError(
                f"device {owner.name!r} has no images in {str(owner)!r}. Its folder must hold"
                " CLASS/FILE."
            )
    return found, classes


def _folders(path: Path) -> list[Path]:
    return sorted(
        entry
        for entry in path.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    )


def described(image: Array) -> str:
    """The size of an image in words."""
    channels, height, width = image.shape
    return f"{width} x {height} pixels with {channels} channel{'s' * (channels > 1)}"


def _refuse_large(file: Path, size: tuple[int, int]) -> None:
    """A file of one colour may be small, however many pixels it has."""
    width, height = size
    if width * height > MOST_PIXELS:
        raise InputError(
            f"{str(file)!r} would be {width} x {height} pixels (at most {MOST_PIXELS:,}). Scale all"
            " to one smaller size: size=(width, height)."
        )


def refuse_many_pixels(folder: Path, total: int, packed: int) -> None:
    """Stop where images take far more memory than pictures of something do in their files."""
    if total > MOST_UNPACKED * packed + _ROOM:
        raise InputError(
            f"the images in {str(folder)!r} have {packed:,} bytes and would take {total:,}. Scale"
            " all to one smaller size: size=(width, height)."
        )


def read_image(file: Path, size: tuple[int, int] | None, grey: bool) -> Array:
    """(channels, height, width) from 0 to 1."""
    pillow: Any = need("PIL.Image", extra="images", why="reading images")
    try:
        with pillow.open(file, formats=FORMATS) as opened:
            _refuse_large(file, size or opened.size)
            # which Pillow would cut off at 255 instead of scaling
            deep = opened.mode.startswith("I;16")
            if opened.mode in ("I", "F"):
                raise InputError(
                    f"{str(file)!r} has pixels of 32 bits, whose range is not known. Save it with 8"
                    " or 16 bits."
                )
            image = opened
            if not deep:
                single = grey or opened.mode in ("1", "L", "LA")
                image = opened.convert("L" if single else "RGB")
            if size is not None:
                image = image.resize(size)
            pixels = np.asarray(image, dtype=np.float64) / (65535.0 if deep else 255.0)
    except InputError:
        raise
    # Pillow raises many kinds for a broken or an oversized file
    except Exception as error:
        raise InputError(
            f"{str(file)!r} cannot be read as an image ({type(error).__name__}). Mend or remove it."
        ) from error
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)
