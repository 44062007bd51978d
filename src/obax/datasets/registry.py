"""The known data sets, where their files are, and whether their checksums are right.

A file is looked for in the folder that the environment variable `OBAX_DATA` names, then in the
cache, and is downloaded from its publisher last.
"""

import dataclasses
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import convert, downloads
from .downloads import DataError, OnProgress, Source


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set: its files with the SHA-256 of the copies we test with, and how to get it.

    `sources` are the publishers' files; one may have a name and a checksum of its own and can be
    read too. `folder` is what an archive unpacks to; with that folder the archive is not needed.
    """

    name: str
    what: str
    files: dict[str, str]
    how: str
    sources: dict[str, Source] = dataclasses.field(default_factory=dict)
    folder: str = ""

    def names(self, file: str) -> tuple[str, ...]:
        """Return the names that a file may have: ours, then the publisher's."""
        source = self.sources.get(file)
        return (file,) if source is None else tuple(dict.fromkeys([file, source.file]))

    def checksums(self, file: str) -> set[str]:
        """Return the known checksums of a file."""
        source = self.sources.get(file)
        return {self.files[file]} | (set() if source is None else {source.sha256})


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"

DATASETS = (
    DataSet(
        "mnist",
        "70,000 images of digits",
        {"mnist.npz": "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64"},
        "mnist.npz as Keras distributes it",
        {
            "mnist.npz": Source(
                "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
                "mnist.npz",
                "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
            )
        },
    ),
    DataSet(
        "adult",
        "census rows, income over 50K",
        {
            "adult.data.gz": "52606dfba20eef26a660f1a0b5f33c122806f1d3aeba084dea04573aeaf6d09c",
            "adult.test.gz": "f89a87d32e083c97bff800b6c2f2a4eba99d182019372dccb7eace54765557ba",
        },
        "adult.data and adult.test of the UCI repository, as they are or compressed with gzip",
        # Our copies are these files less the empty last line: the checksums agree once it is added.
        {
            "adult.data.gz": Source(
                f"{_UCI}/adult.data",
                "adult.data",
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            "adult.test.gz": Source(
                f"{_UCI}/adult.test",
                "adult.test",
                "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            ),
        },
    ),
    DataSet(
        "cifar-100",
        "images in 100 classes, for FC100",
        # The copy we test with is a subset; the publisher's archive is complete.
        {
            "cifar-100-binary.tar.gz": (
                "7834bf5b887d98f7c5506f1003c01a7c2fd9d62ea628b980e15fede688e6653a"
            )
        },
        "the binary version from the CIFAR-100 page of the University of Toronto",
        {
            "cifar-100-binary.tar.gz": Source(
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                "cifar-100-binary.tar.gz",
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            )
        },
    ),
    DataSet(
        "miniimagenet",
        "images of 84 x 84 pixels in 100 classes",
        # The copy we test with is a subset, 100 images of each class; nobody publishes an archive.
        {"miniimagenet.tar": "34dab460c666699082ed569e69d313bb7eaf703b6e48d80a3b9159bebe85e51d"},
        "the folder miniimagenet with train.csv, val.csv, test.csv and images/, or a tar archive "
        "of it; experiments take one from elsewhere with --set folder=PATH",
        folder="miniimagenet",
    ),
    DataSet(
        "elec2",
        "electricity prices, 45,312 rows in time order",
        {"elec2.csv.gz": "f315e7141ad4fdaa3e00865b89bd56e992ed927a954412f6967c7402547c5f2e"},
        "Elec2 of the MOA data sets, as elec2.csv or elec2.csv.gz with classes 0 and 1",
        # River's copy writes the same numbers another way: it is converted, and the checksum is
        # that of our text.
        {
            "elec2.csv.gz": Source(
                "https://maxhalford.github.io/files/datasets/electricity.zip",
                "elec2.csv",
                "9a5ddfa02d528a57477875625dc9b50a22e959670fad364af9e4eb7080ce29f5",
                convert=convert.river_elec2,
                by_hand="unpack electricity.csv, write 1 for UP and 0 for DOWN "
                "(then load it with verify=False, unless every number is written as Python does)",
            )
        },
    ),
    DataSet(
        "weather",
        "NOAA daily weather, 18,159 rows in time order",
        {"weather.csv.gz": "a4bf89e86e9167e96874d44467e20f02d50da76b68f5d0d24dcdcc010c8765bd"},
        "the NOAA weather data set of scikit-multiflow, as weather.csv or weather.csv.gz",
        {
            "weather.csv.gz": Source(
                "https://raw.githubusercontent.com/scikit-multiflow/streaming-datasets/master/"
                "weather.csv",
                "weather.csv",
                "3c38f05bdc5c4cb115f122414c66976e3662c875d96d7199d9e47fc46aff150e",
            )
        },
    ),
)


@dataclasses.dataclass(frozen=True)
class FileStatus:
    """A file of a data set, its path (or `None`), and whether its checksum is right, in words."""

    dataset: str
    file: str
    path: Path | None
    state: str


def cache_folder() -> Path:
    """Return the folder that is searched after `OBAX_DATA`: `obax` in `$XDG_CACHE_HOME` or in
    `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "obax"


def find(file: str) -> Path | None:
    """Return the path of a file in `OBAX_DATA` or else in the cache, or `None`.

    A publisher's file with another name (`adult.data` for `adult.data.gz`) is found too.
    """
    names = next((d.names(file) for d in DATASETS if file in d.files), (file,))
    return next((place for place in _places(names) if place.is_file()), None)


def _places(names: Sequence[str]) -> Iterator[Path]:
    folders = [Path(folder) for folder in [os.environ.get("OBAX_DATA")] if folder]
    return (folder / name for folder in [*folders, cache_folder()] for name in names)


def located(dataset: DataSet) -> dict[str, Path | None]:
    """Return the path of each file of a data set; for a missing archive, the unpacked folder."""
    unpacked = (place for place in _places([dataset.folder]) if dataset.folder and place.is_dir())
    folder = next(unpacked, None)
    return {file: find(file) or folder for file in dataset.files}


def status() -> list[FileStatus]:
    """Return every file of every data set, with its path and the result of its checksum."""
    return [
        FileStatus(dataset.name, file, path, _state(path, dataset.checksums(file)))
        for dataset in DATASETS
        for file, path in located(dataset).items()
    ]


def fetch(
    name: str,
    *,
    verify: bool = True,
    download: bool = True,
    on_progress: OnProgress | None = None,
) -> dict[str, Path]:
    """Return the files of a data set by name, downloaded into the cache if they are not found.

    A file with an unknown checksum is an error and is left as it is; `verify=False` accepts it, for
    a version of your own. An unpacked folder has no checksum. `on_progress(done, total)` is called
    with the bytes of a download; without it a progress bar is drawn on a terminal.
    """
    dataset = next((d for d in DATASETS if d.name == name), None)
    if dataset is None:
        names = ", ".join(d.name for d in DATASETS)
        raise ValueError(f"name must be one of {names}, but got {name!r}.")
    paths = {}
    for file, path in located(dataset).items():
        known, source = dataset.checksums(file), dataset.sources.get(file)
        if path is None:
            if source is None or not download:
                raise DataError(
                    f"{file} of {name} is neither in the folder of OBAX_DATA "
                    f"({os.environ.get('OBAX_DATA') or 'not set'}) nor in {cache_folder()}. "
                    f"Put it into one of them: {dataset.how}, SHA-256 {dataset.files[file]}."
                )
            path = downloads.download(source, cache_folder(), on_progress)
        elif verify and path.is_file() and (found := checksum(path)) not in known:
            raise DataError(
                f"{path} is not the {name} file that is known: expected SHA-256 "
                f"{' or '.join(sorted(known))}, but found {found}. It was left as it is. Remove it "
                f"to download it again, or pass verify=False if it is a version of your own."
            )
        paths[file] = path
    return paths


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text(path: Path) -> str:
    """Return the text of a file, which is decompressed if its name ends in .gz."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read ({error}). Remove it to download it again."
        ) from error


def _state(path: Path | None, known: set[str]) -> str:
    if path is None:
        return "missing"
    if path.is_dir():
        return "unpacked, not checked"
    found = checksum(path)
    return "verified" if found in known else f"another version, SHA-256 {found[:12]}..."
