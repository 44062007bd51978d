"""MNIST, and the imbalanced version of it that the paper tunes losses on."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from . import argument_checks, registry
from .containers import Array, Images, Split
from .downloads import DataError

MEAN, DEVIATION = 0.1307, 0.3081
SHAPES: dict[str, tuple[int, ...]] = {"x_train": (60_000, 28, 28), "y_train": (60_000,)}
SHAPES |= {"x_test": (10_000, 28, 28), "y_test": (10_000,)}
_AGAIN = "Remove the file to download it again."


def mnist(*, verify: bool = True) -> Images:
    """MNIST: 60,000 training and 10,000 test images of 28 x 28 bytes, labels 0 to 9.

    `verify=False` takes a `mnist.npz` whose checksum is not known, such as one of your own; shapes,
    types and labels are checked all the same.
    """
    path = registry.fetch("mnist", verify=verify)["mnist.npz"]
    arrays = _arrays(path)
    for key, array in arrays.items():
        # One's own version may have other numbers of images, but never other images.
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


def mnist_imbalanced(
    images: Images | None = None,
    *,
    profile: float = 0.6,
    train: int = 4000,
    valid: int = 1000,
    seed: int = 0,
) -> Split:
    """Of class i, `train * profile**i` images for training and `valid * profile**i` for validation.

    Numbers are rounded; no image is in both; the test has all the test images. Pixels become
    `float32` with mean 0.1307 and deviation 0.3081 taken away, images `[n, 28, 28, 1]`.
    `profile=1.0` gives balanced pools, from which the streams of `obax.datasets.streams` draw.
    """
    images = mnist() if images is None else images
    argument_checks.at_least(train, 1, "train")
    argument_checks.at_least(valid, 1, "valid")
    argument_checks.at_least(seed, 0, "seed")
    if not 0 < profile <= 1:
        raise ValueError(f"profile must be in (0, 1], but got {profile!r}.")
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
