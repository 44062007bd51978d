"""miniImageNet: tables and images in a tar archive or in a folder, read when they are needed."""

import collections
import contextlib
import csv
import dataclasses
import functools
import io
import itertools
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._support.checks import Count, checked
from . import registry
from .containers import Array
from .downloads import DataError
from .image_sets import FewShot, Labelled

TABLES = {"train": "train.csv", "valid": "val.csv", "test": "test.csv"}
ROOT = "miniimagenet"
# Far more than an image or a table of 60,000 names: a damaged archive cannot fill the memory.
LARGEST = 1 << 26


@checked
def miniimagenet(
    folder: str | Path | None = None,
    *,
    size: Count = 84,
    cache_bytes: int = 1 << 28,
    verify: bool = True,
) -> FewShot:
    """Load miniImageNet: images, and the tables `train.csv`, `val.csv` and `test.csv`.

    By default the archive `miniimagenet.tar`, or else the unpacked folder `miniimagenet`, is looked
    for like other data sets, and the checksum of the archive is verified. `folder` is another
    folder, or an archive (not compressed) with the members `miniimagenet/train.csv` ... and
    `miniimagenet/images/NAME`, which are read in place.

    The tables have the columns `filename` and `label`; the images lie in `images/` or, in a folder,
    beside the tables, and all have one size. Where that is not `size` x `size` they are resized.
    An image is decoded when it is first used, and the last `cache_bytes` bytes of images are kept,
    which are all of them if there are 100 of each class. Labels are numbers in the sorted order of
    their names. Needs Pillow.
    """
    if folder is None:
        folder = registry.fetch("miniimagenet", verify=verify)["miniimagenet.tar"]
    place = _place(Path(folder))
    tables = {part: _table(place, file) for part, file in TABLES.items()}
    owner: dict[str, str] = {}
    for part, table in tables.items():
        for label in sorted({label for _, label in table}):
            if owner.setdefault(label, part) != part:
                raise DataError(
                    f"class {label} is in the tables of both {owner[label]} and {part} in {folder}."
                )
    numbers = {label: number for number, label in enumerate(sorted(owner))}
    names = place.images([name for table in tables.values() for name, _ in table])
    _one_size(place, names)
    kept, left = cache_bytes / (3 * size * size * len(names)), iter(names)
    train, valid, test = (
        Labelled(
            ImageFiles(place, list(itertools.islice(left, len(table))), size, kept),
            np.array([numbers[label] for _, label in table], dtype=np.int32),
            {numbers[label]: label for _, label in table},
        )
        for table in tables.values()
    )
    return FewShot(train, valid, test, "miniImageNet")


@dataclasses.dataclass(frozen=True)
class _Folder:
    """Files below a folder, by their paths."""

    path: Path

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def images(self, names: list[str]) -> list[str]:
        """Return the paths of the images; all must be there."""
        root = "images/" if (self.path / "images").is_dir() else ""
        return _all_there(self, [f"{root}{name}" for name in names], self.path / root)

    def where(self, name: str) -> str:
        """Return a path for messages."""
        return str(self.path / name)


@dataclasses.dataclass(frozen=True)
class _Archive:
    """Members of a tar archive below `miniimagenet/`, with the position and size of their bytes.
    They are read in place: nothing is unpacked, and no link is followed."""

    path: Path
    places: dict[str, tuple[int, int]]

    def has(self, name: str) -> bool:
        return f"{ROOT}/{name}" in self.places

    def read(self, name: str) -> bytes:
        start, size = self.places[f"{ROOT}/{name}"]
        if size > LARGEST:
            raise DataError(f"{self.where(name)} has {size} bytes, far too many.")
        with self.path.open("rb") as file:
            file.seek(start)
            data = file.read(size)
        if len(data) < size:
            raise DataError(
                f"{self.path} is cut off: {name} ends after {len(data)} of {size} bytes."
            )
        return data

    def images(self, names: list[str]) -> list[str]:
        """Return the paths of the images; all must be there."""
        inside = f"{self.path}:{ROOT}/images"
        return _all_there(self, [f"images/{name}" for name in names], inside)

    def where(self, name: str) -> str:
        """Return a path for messages."""
        return f"{self.path}:{ROOT}/{name}"


_Place = _Folder | _Archive


def _place(path: Path) -> _Place:
    if path.is_dir():
        return _Folder(path)
    if not path.is_file():
        raise DataError(
            f"folder must be a folder with images and tables, or a tar archive of it, but {path} "
            f"is none."
        )
    try:
        # Not compressed, so that an image can be read without all those before it.
        with tarfile.open(path, "r:") as tar:
            # Neither links nor members with holes: only bytes that lie there as they are.
            plain = (info for info in tar if info.isreg() and not info.issparse())
            return _Archive(path, {info.name: (info.offset_data, info.size) for info in plain})
    except (tarfile.TarError, EOFError) as error:
        raise DataError(
            f"{path} cannot be read as a tar archive without compression ({error}). If it is "
            f"compressed, unpack it and give the folder."
        ) from error


def _table(place: _Place, file: str) -> list[tuple[str, str]]:
    where = place.where(file)
    if not place.has(file):
        raise DataError(f"{where} is not there: it must list the images, with filename,label.")
    try:
        text = place.read(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} cannot be read as text ({error}).") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if not {"filename", "label"} <= set(reader.fieldnames or ()):
        raise DataError(
            f"{where} must have the columns filename and label, but has "
            f"{', '.join(reader.fieldnames or ()) or 'none'}."
        )
    rows = [(row["filename"] or "", row["label"] or "") for row in reader]
    if not rows:
        raise DataError(f"{where} must list images, but is empty.")
    for name, label in rows:
        # A table from elsewhere must not reach files outside the folder.
        if name in ("", ".", "..") or not label or "/" in name or "\\" in name:
            raise DataError(
                f"{where} must give plain file names and labels, but has {name!r}, {label!r}."
            )
    return rows


def _all_there(place: _Place, names: list[str], root: object) -> list[str]:
    if absent := [name.removeprefix("images/") for name in names if not place.has(name)]:
        raise DataError(
            f"{len(absent)} of the {len(names)} images that the tables name are not in {root}: "
            f"{_some(absent)}."
        )
    return names


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:3]) + (" ..." if len(words) > 3 else "")


@contextlib.contextmanager
def _opened(place: _Place, name: str) -> Iterator[Any]:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("miniimagenet reads images with Pillow: pip install pillow.") from error
    try:
        with Image.open(io.BytesIO(place.read(name))) as image:
            yield image
    except DataError:
        raise
    # What Pillow raises on damaged files depends on the format.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{place.where(name)} cannot be read as an image ({error}).") from error


def _one_size(place: _Place, names: list[str]) -> None:
    sizes = []
    for name in names:
        with _opened(place, name) as image:
            sizes.append("{} x {}".format(*image.size))
    (usual, _), *others = collections.Counter(sizes).most_common()
    if others:
        odd = [
            f"{name.removeprefix('images/')} ({size})"
            for name, size in zip(names, sizes, strict=True)
            if size != usual
        ]
        raise DataError(
            f"all images must have one size, but {len(odd)} are not {usual}: {_some(odd)}. "
            f"Resize them first."
        )


class ImageFiles:
    """Images that are decoded when they are indexed with an array of indices. The last ones used
    are kept, at most the share `kept` of all."""

    def __init__(self, place: _Place, names: list[str], size: int, kept: float):
        self.shape = (len(names), size, size, 3)
        self.dtype = np.dtype(np.uint8)
        self._place, self._names, self._size = place, names, size
        most = max(1, int(min(kept, 1.0) * len(names)))
        self._image = functools.lru_cache(most)(self._read)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, indices: ArrayLike) -> Array:
        wanted = np.asarray(indices)
        images = [self._image(int(index)) for index in wanted.reshape(-1)]
        return np.array(images, np.uint8).reshape(*wanted.shape, *self.shape[1:])

    def _read(self, index: int) -> Array:
        with _opened(self._place, self._names[index]) as image:
            picture = image.convert("RGB")
            if picture.size != (self._size, self._size):
                picture = picture.resize((self._size, self._size))
        return np.asarray(picture)
