"""miniImageNet: tables and images in a tar archive or in a folder, read when they are needed."""

import collections
import contextlib
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
from .image_sets import FewShot, Labelled
from .registry import DataError

TABLES = {"train": "train.csv", "valid": "val.csv", "test": "test.csv"}
ROOT = "miniimagenet/"
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
    files = _indexed(Path(folder))
    tables = {part: _table(files, name) for part, name in TABLES.items()}
    owner: dict[str, str] = {}
    for part, table in tables.items():
        for label in sorted({label for _, label in table}):
            if owner.setdefault(label, part) != part:
                raise DataError(
                    f"class {label} is in the tables of both {owner[label]} and {part} in {folder}."
                )
    numbers = {label: number for number, label in enumerate(sorted(owner))}
    names = _images(files, [name for table in tables.values() for name, _ in table])
    share, remaining = cache_bytes / (3 * size * size * len(names)), iter(names)
    train, valid, test = (
        Labelled(
            ImageFiles(files, list(itertools.islice(remaining, len(table))), size, share),
            np.array([numbers[label] for _, label in table], dtype=np.int32),
            {numbers[label]: label for _, label in table},
        )
        for table in tables.values()
    )
    return FewShot(train, valid, test, "miniImageNet")


@dataclasses.dataclass(frozen=True)
class _Files:
    """Files in a folder, or members of a tar archive below `miniimagenet/`, by their names.

    `places` are the file that holds the bytes, their position and their number. Members are read in
    place: nothing is unpacked, and no link is followed. `root` is the beginning of paths in
    messages.
    """

    root: str
    places: dict[str, tuple[Path, int, int]]

    def read(self, name: str) -> bytes:
        path, start, size = self.places[name]
        if size > LARGEST:
            raise DataError(f"{self.root}{name} has {size} bytes, far too many.")
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(size)
        if len(data) < size:
            raise DataError(f"{path} is cut off: {name} ends after {len(data)} of {size} bytes.")
        return data


def _indexed(path: Path) -> _Files:
    if path.is_dir():
        files = (file for folder in (path, path / "images") for file in folder.glob("*"))
        return _Files(
            f"{path}/",
            {
                file.relative_to(path).as_posix(): (file, 0, file.stat().st_size)
                for file in files
                if file.is_file()
            },
        )
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
            places = {
                info.name.removeprefix(ROOT): (path, info.offset_data, info.size)
                for info in plain
                if info.name.startswith(ROOT)
            }
    except (tarfile.TarError, EOFError) as error:
        raise DataError(
            f"{path} cannot be read as a tar archive without compression ({error}). If it is "
            f"compressed, unpack it and give the folder."
        ) from error
    return _Files(f"{path}:{ROOT}", places)


def _table(files: _Files, file: str) -> list[tuple[str, str]]:
    import pandas as pd

    where = f"{files.root}{file}"
    if file not in files.places:
        raise DataError(f"{where} is not there: it must list the images, with filename,label.")
    try:
        data = io.BytesIO(files.read(file))
        table = pd.read_csv(data, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except ValueError as error:
        raise DataError(f"{where} cannot be read as a table ({error}).") from error
    if not {"filename", "label"} <= {*table.columns}:
        raise DataError(
            f"{where} must have the columns filename and label, but has "
            f"{', '.join(table.columns) or 'none'}."
        )
    rows = list(zip(table.filename, table.label, strict=True))
    if not rows:
        raise DataError(f"{where} must list images, but is empty.")
    for name, label in rows:
        # A table from elsewhere must not reach files outside the folder.
        if name in ("", ".", "..") or not label or "/" in name or "\\" in name:
            raise DataError(
                f"{where} must give plain file names and labels, but has {name!r}, {label!r}."
            )
    return rows


def _images(files: _Files, listed: list[str]) -> list[str]:
    """Return the paths of the images, which must all be there and have one size."""
    folder = "images/" if any(name.startswith("images/") for name in files.places) else ""
    names = [f"{folder}{name}" for name in listed]
    if absent := [name.removeprefix(folder) for name in names if name not in files.places]:
        raise DataError(
            f"{len(absent)} of the {len(names)} images that the tables name are not in "
            f"{files.root}{folder.rstrip('/')}: {_some(absent)}."
        )
    sizes = []
    for name in names:
        with _opened(files, name) as image:
            sizes.append("{} x {}".format(*image.size))
    (usual, _), *others = collections.Counter(sizes).most_common()
    if others:
        odd = [f"{n} ({size})" for n, size in zip(listed, sizes, strict=True) if size != usual]
        raise DataError(
            f"all images must have one size, but {len(odd)} are not {usual}: {_some(odd)}. "
            f"Resize them first."
        )
    return names


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:3]) + (" ..." if len(words) > 3 else "")


@contextlib.contextmanager
def _opened(files: _Files, name: str) -> Iterator[Any]:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("miniimagenet reads images with Pillow: pip install pillow.") from error
    try:
        with Image.open(io.BytesIO(files.read(name))) as image:
            yield image
    except DataError:
        raise
    # What Pillow raises on damaged files depends on the format.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{files.root}{name} cannot be read as an image ({error}).") from error


class ImageFiles:
    """Images that are decoded when they are indexed with an array of indices.

    The last ones used are kept, at most the share `kept` of all.
    """

    def __init__(self, files: _Files, names: list[str], size: int, kept: float):
        self.shape = (len(names), size, size, 3)
        self.dtype = np.dtype(np.uint8)
        self._files, self._names, self._size = files, names, size
        most = max(1, int(min(kept, 1.0) * len(names)))
        self.image = functools.lru_cache(most)(self._read)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, indices: ArrayLike) -> Array:
        wanted = np.asarray(indices)
        images = [self.image(int(index)) for index in wanted.reshape(-1)]
        return np.array(images, np.uint8).reshape(*wanted.shape, *self.shape[1:])

    def _read(self, index: int) -> Array:
        with _opened(self._files, self._names[index]) as image:
            picture = image.convert("RGB")
            if picture.size != (self._size, self._size):
                picture = picture.resize((self._size, self._size))
        return np.asarray(picture)
