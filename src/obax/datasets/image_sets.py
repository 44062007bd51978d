"""Images for few-shot learning: from the CIFAR-100 archive, or generated."""

import dataclasses
import gzip
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .._support.checks import NonNegativeInt, checked
from . import registry
from .containers import Array
from .registry import DataError

RECORD = 2 + 3 * 32 * 32
# Far more than the 50,000 records of train.bin, so that a damaged archive cannot fill the memory.
LARGEST_MEMBER = 1 << 28
SUPERCLASSES = {
    "train": (1, 2, 3, 4, 5, 6, 9, 10, 15, 17, 18, 19),
    "valid": (8, 11, 13, 16),
    "test": (0, 7, 12, 14),
}


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Images with labels `int32`, and the names of the classes by label, if they have names.

    The images are `uint8 [n, height, width, 3]`: an array, or files that are read when indexed.
    """

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
    """Load FC100: CIFAR-100 split by superclass into 60, 20 and 20 classes, images of 32 x 32.

    The images are all those of `train.bin` and `test.bin` in the binary archive of CIFAR-100;
    labels are the fine labels, 0 to 99. An archive that is given as `path` may have any checksum.
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
    """Return the records of a member, read into memory; nothing is unpacked to disk."""
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


@checked
def tiny_fewshot(seed: NonNegativeInt = 0) -> FewShot:
    """Generate a set for tests: 8, 5 and 5 classes of 12 images of 8 x 8, one pattern per class."""
    rng = np.random.default_rng([seed, 3])

    def part(first: int, classes: int) -> Labelled:
        patterns = rng.uniform(40, 215, (classes, 1, 8, 8, 3))
        noisy = patterns + 30 * rng.standard_normal((classes, 12, 8, 8, 3))
        images = np.clip(noisy, 0, 255).astype(np.uint8).reshape(-1, 8, 8, 3)
        return Labelled(images, np.repeat(np.arange(first, first + classes), 12).astype(np.int32))

    return FewShot(part(0, 8), part(8, 5), part(13, 5), "tiny (synthetic)", synthetic=True)
