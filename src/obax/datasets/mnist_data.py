"""MNIST, and the imbalanced version of it that the paper tunes losses on."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from .._support.checks import Count, Fraction, NonNegativeInt, checked
from . import registry
from .containers import Array, Images, Split
from .registry import DataError

MEAN, DEVIATION = 0.1307, 0.3081
SHAPES: dict[str, tuple[int, ...]] = {"x_train": (60_000, 28, 28), "y_train": (60_000,)}
SHAPES |= {"x_test": (10_000, 28, 28), "y_test": (10_000,)}
_AGAIN = "Remove the file to download it again."


def mnist(*, verify: bool = True) -> Images:
    """Load MNIST: 60,000 training and 10,000 test images of 28 x 28 bytes, labels 0 to 9.

    With `verify=False` the checksum of `mnist.npz` need not be known, so that it may be a version
    of your own; shapes, types and labels are still checked.
    """
    path = registry.fetch("mnist", verify=verify)["mnist.npz"]
    arrays = _arrays(path)
    for key, array in arrays.items():
        # A version of one's own may have another number of images, but not another shape of them.
        shape = SHAPES[key] if verify else array.shape[:1] + SHAPES[key][1:]
        if array.shape != shape or array.dtype != np.uint8:
            raise DataError(
                f"{key} of {path} must be uint8{list(shape)}, but is "
                f"{array.dtype}{list(array.shape)}. {_AGAIN}"
            )
    for part in ("train", "test"):
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if len(labels) != len(images):
            raise DataError(f"x_{part} and y_{part} of {path} differ in length. {_AGAIN}")
        if len(labels) and labels.max() > 9:
            raise DataError(
                f"y_{part} of {path} must hold labels 0 to 9, but holds {labels.max()}. {_AGAIN}"
            )
    train, test = (
        (arrays[f"x_{part}"], arrays[f"y_{part}"].astype(np.int32)) for part in ("train", "test")
    )
    return Images(*train, *test, classes=10, name="MNIST")


def _arrays(path: Path) -> dict[str, Array]:
    try:
        # Opened here, because np.load leaves a damaged file open.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if missing := [key for key in SHAPES if key not in file]:
                raise DataError(
                    f"{path} must have the arrays {', '.join(SHAPES)}, but lacks "
                    f"{', '.join(missing)}. {_AGAIN}"
                )
            return {key: file[key] for key in SHAPES}
    # An .npy under this name gives an array, which is no context manager: TypeError.
    except (ValueError, TypeError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{path} cannot be read as NumPy arrays ({error}). {_AGAIN}") from error


@checked
def mnist_imbalanced(
    images: Images | None = None,
    *,
    profile: Fraction = 0.6,
    train: Count = 4000,
    valid: Count = 1000,
    seed: NonNegativeInt = 0,
) -> Split:
    """Draw an imbalanced training and validation set from MNIST; the test has all test images.

    Class i has `train * profile**i` images for training and `valid * profile**i` others for
    validation, rounded. Pixels become `float32`, standardised with mean 0.1307 and deviation
    0.3081, and images `[n, 28, 28, 1]`. `profile=1.0` gives balanced sets, from which the streams
    of `obax.datasets.streams` draw.
    """
    images = mnist() if images is None else images
    rng = np.random.default_rng([seed, 0])
    decay = profile ** np.arange(images.classes)
    sizes = np.round(np.outer([train, valid], decay)).astype(np.int64)
    chosen = []
    for label, (for_training, for_validation) in enumerate(sizes.T):
        rows = rng.permutation(np.flatnonzero(images.train_labels == label))
        if len(rows) < for_training + for_validation:
            raise ValueError(
                f"train and valid ask for {for_training} + {for_validation} images of class "
                f"{label}, but there are {len(rows)}. Ask for fewer."
            )
        chosen.append(np.split(rows[: for_training + for_validation], [for_training]))
    drawn = [rng.permutation(np.concatenate(rows)) for rows in zip(*chosen, strict=True)]
    learn, check = (
        (_normalised(images.train_inputs[rows]), images.train_labels[rows]) for rows in drawn
    )
    test = _normalised(images.test_inputs), images.test_labels
    return Split(*learn, *check, *test, classes=images.classes, name=images.name)


def _normalised(images: Array) -> Array:
    scaled = images.astype(np.float32) / np.float32(255)
    return ((scaled - np.float32(MEAN)) / np.float32(DEVIATION))[..., None]
