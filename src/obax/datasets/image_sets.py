"""Images for few-shot learning: from the CIFAR-100 archive, from a folder, or generated."""

import collections
import contextlib
import csv
import dataclasses
import functools
import gzip
import itertools
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import argument_checks, registry
from .containers import Array
from .downloads import DataError

RECORD = 2 + 3 * 32 * 32
# Far more than the 50,000 records of train.bin: a damaged archive does not fill the memory.
LARGEST_MEMBER = 1 << 28
SUPERCLASSES = {
    "train": (1, 2, 3, 4, 5, 6, 9, 10, 15, 17, 18, 19),
    "valid": (8, 11, 13, 16),
    "test": (0, 7, 12, 14),
}


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Images `uint8 [n, height, width, 3]` (an array, or read when indexed) and labels `int32`;
    where the classes have names, those of the labels."""

    images: Any
    labels: Array
    names: dict[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class FewShot:
    """Images for meta-training, meta-validation and meta-testing; no class is in two of them."""

    train: Labelled
    valid: Labelled
    test: Labelled
    name: str
    synthetic: bool = False


def fc100(path: str | Path | None = None, *, verify: bool = True) -> FewShot:
    """FC100: CIFAR-100 split by superclass into 60, 20 and 20 classes, images of 32 x 32.

    Reads the binary archive of CIFAR-100, all images of `train.bin` and `test.bin`; labels are the
    fine labels, 0 to 99. With `path` that archive is read, whatever its checksum.
    """
    if path is None:
        path = registry.fetch("cifar-100", verify=verify)["cifar-100-binary.tar.gz"]
    archive = Path(path)
    records = np.concatenate(
        [_records(archive, f"cifar-100-binary/{part}.bin") for part in ("train", "test")]
    )
    coarse, fine = records[:, 0], records[:, 1]
    if coarse.max() > 19 or fine.max() > 99:
        raise DataError(
            f"{archive} must have coarse labels 0 to 19 and fine labels 0 to 99, but has up to "
            f"{coarse.max()} and {fine.max()}."
        )
    if len(torn := [j for j in np.unique(fine) if len(np.unique(coarse[fine == j])) > 1]):
        raise DataError(f"{archive} puts fine class {torn[0]} into several superclasses.")

    def part(superclasses: tuple[int, ...]) -> Labelled:
        chosen = records[np.isin(coarse, superclasses)]
        # Stored by channel; images here have their channels last.
        images = chosen[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return Labelled(np.ascontiguousarray(images), chosen[:, 1].astype(np.int32))

    train, valid, test = (part(which) for which in SUPERCLASSES.values())
    return FewShot(train, valid, test, "FC100")


def _records(archive: Path, member: str) -> Array:
    """The records of a member, read in memory by its exact name: nothing is unpacked to disk."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            info = tar.getmember(member)
            if not info.isreg() or info.size == 0 or info.size % RECORD:
                raise DataError(
                    f"{member} in {archive} must be a file of records of {RECORD} bytes, but has "
                    f"{info.size} bytes. Remove the archive to download it again."
                )
            if info.size > LARGEST_MEMBER:
                raise DataError(f"{member} in {archive} has {info.size} bytes, far too many.")
            file = tar.extractfile(info)
            assert file is not None
            data = file.read()
    except (tarfile.TarError, gzip.BadGzipFile, KeyError, EOFError, zlib.error) as error:
        raise DataError(
            f"{archive} is not the binary archive of CIFAR-100 with {member} in it ({error}). "
            f"Remove it to download it again."
        ) from error
    return np.frombuffer(data, np.uint8).reshape(-1, RECORD)


def miniimagenet(folder: str | Path, *, size: int = 84, cache_bytes: int = 1 << 28) -> FewShot:
    """miniImageNet from a folder: images, and `train.csv`, `val.csv`, `test.csv` beside them.

    The tables have the columns `filename` and `label`; the images lie in the folder or in
    `images/` below it, and all have one size. Where that is not `size` x `size` they are resized.
    They are read when they are needed; the last `cache_bytes` bytes of them are kept. Labels are
    numbers in the sorted order of their names. Needs Pillow.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"folder must be a folder with images and tables, but {folder} is none.")
    argument_checks.at_least(size, 1, "size")
    tables = {
        part: _table(folder / file)
        for part, file in {"train": "train.csv", "valid": "val.csv", "test": "test.csv"}.items()
    }
    owner: dict[str, str] = {}
    for part, table in tables.items():
        for label in sorted({label for _, label in table}):
            if owner.setdefault(label, part) != part:
                raise DataError(
                    f"class {label} is in the tables of both {owner[label]} and {part} in {folder}."
                )
    numbers = {label: number for number, label in enumerate(sorted(owner))}
    paths = _existing(folder, [name for table in tables.values() for name, _ in table])
    _one_size(paths)
    left = iter(paths)
    train, valid, test = (
        Labelled(
            ImageFiles(list(itertools.islice(left, len(table))), size, cache_bytes // 3),
            np.array([numbers[label] for _, label in table], dtype=np.int32),
            {numbers[label]: label for _, label in table},
        )
        for table in tables.values()
    )
    return FewShot(train, valid, test, "miniImageNet")


def _table(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        raise DataError(f"{path} is not there: it must list the images, with filename,label.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        if not {"filename", "label"} <= set(reader.fieldnames or ()):
            raise DataError(
                f"{path} must have the columns filename and label, but has "
                f"{', '.join(reader.fieldnames or ()) or 'none'}."
            )
        rows = [(row["filename"] or "", row["label"] or "") for row in reader]
    if not rows:
        raise DataError(f"{path} must list images, but is empty.")
    for name, label in rows:
        # A table from elsewhere must not reach files outside the folder.
        if name in ("", ".", "..") or not label or "/" in name or "\\" in name:
            raise DataError(
                f"{path} must give plain file names and labels, but has {name!r}, {label!r}."
            )
    return rows


def _existing(folder: Path, names: list[str]) -> list[Path]:
    root = folder / "images" if (folder / "images").is_dir() else folder
    paths = [root / name for name in names]
    if absent := [path.name for path in paths if not path.is_file()]:
        raise DataError(
            f"{len(absent)} of the {len(paths)} images that the tables name are not in {root}: "
            f"{_some(absent)}."
        )
    return paths


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:3]) + (" ..." if len(words) > 3 else "")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("miniimagenet reads images with Pillow: pip install pillow.") from error
    try:
        with Image.open(path) as image:
            yield image
    except OSError as error:
        raise DataError(f"{path} cannot be read as an image ({error}).") from error


def _one_size(paths: list[Path]) -> None:
    sizes = []
    for path in paths:
        with _opened(path) as image:
            sizes.append("{} x {}".format(*image.size))
    (usual, _), *others = collections.Counter(sizes).most_common()
    if others:
        odd = [f"{p.name} ({s})" for p, s in zip(paths, sizes, strict=True) if s != usual]
        raise DataError(
            f"all images must have one size, but {len(odd)} are not {usual}: {_some(odd)}. "
            f"Resize them first."
        )


class ImageFiles:
    """Images of a folder, read when indexed with an array of indices; the last ones are kept."""

    def __init__(self, paths: list[Path], size: int, cache_bytes: int):
        self.shape = (len(paths), size, size, 3)
        self.dtype = np.dtype(np.uint8)
        self._paths, self._size = paths, size
        self._image = functools.lru_cache(max(1, cache_bytes // (3 * size * size)))(self._read)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, indices: ArrayLike) -> Array:
        wanted = np.asarray(indices)
        images = [self._image(int(index)) for index in wanted.reshape(-1)]
        return np.array(images, np.uint8).reshape(*wanted.shape, *self.shape[1:])

    def _read(self, index: int) -> Array:
        with _opened(self._paths[index]) as image:
            picture = image.convert("RGB")
            if picture.size != (self._size, self._size):
                picture = picture.resize((self._size, self._size))
        return np.asarray(picture)


def tiny_fewshot(seed: int = 0) -> FewShot:
    """A generated set for tests: 8, 5 and 5 classes of 12 images, 8 x 8, one pattern a class."""
    argument_checks.at_least(seed, 0, "seed")
    rng = np.random.default_rng([seed, 3])

    def part(first: int, classes: int) -> Labelled:
        patterns = rng.uniform(40, 215, (classes, 1, 8, 8, 3))
        noisy = patterns + 30 * rng.standard_normal((classes, 12, 8, 8, 3))
        images = np.clip(noisy, 0, 255).astype(np.uint8).reshape(-1, 8, 8, 3)
        return Labelled(images, np.repeat(np.arange(first, first + classes), 12).astype(np.int32))

    return FewShot(part(0, 8), part(8, 5), part(13, 5), "tiny (synthetic)", synthetic=True)
