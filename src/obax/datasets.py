"""Which data sets there are, where their files are, and whether they are whole.

A file is looked for in the folder that the environment variable `OBAX_DATA` names, then in the
cache.
"""

import dataclasses
import hashlib
import os
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set: its files with the SHA-256 of the copies we test with, and how to get it."""

    name: str
    what: str
    files: dict[str, str]
    how: str


DATASETS = (
    DataSet(
        "mnist",
        "70,000 images of digits",
        {
            "mnist.npz": "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64",
        },
        "mnist.npz as Keras distributes it",
    ),
    DataSet(
        "adult",
        "census rows, income over 50K",
        {
            "adult.data.gz": "52606dfba20eef26a660f1a0b5f33c122806f1d3aeba084dea04573aeaf6d09c",
            "adult.test.gz": "f89a87d32e083c97bff800b6c2f2a4eba99d182019372dccb7eace54765557ba",
        },
        "adult.data and adult.test of the UCI repository, each compressed with gzip",
    ),
    DataSet(
        "cifar-100",
        "images in 100 classes, for FC100",
        {
            "cifar-100-binary.tar.gz": "7834bf5b887d98f7c5506f1003c01a7c2fd9d62ea628b980e15fede688e6653a",  # noqa: E501
        },
        "the binary version from the CIFAR-100 page of the University of Toronto",
    ),
    DataSet(
        "elec2",
        "electricity prices, 45,312 rows in time order",
        {
            "elec2.csv.gz": "f315e7141ad4fdaa3e00865b89bd56e992ed927a954412f6967c7402547c5f2e",
        },
        "Elec2 of the MOA data sets, as elec2.csv.gz",
    ),
    DataSet(
        "weather",
        "NOAA daily weather, 18,159 rows in time order",
        {
            "weather.csv.gz": "a4bf89e86e9167e96874d44467e20f02d50da76b68f5d0d24dcdcc010c8765bd",
        },
        "the NOAA weather data set, as weather.csv.gz",
    ),
)


@dataclasses.dataclass(frozen=True)
class FileStatus:
    """A file of a data set: where it is (or `None`) and what its checksum says."""

    dataset: str
    file: str
    path: Path | None
    state: str


def cache_folder() -> Path:
    """Where files are looked for after `OBAX_DATA`: `$XDG_CACHE_HOME/obax`, or `~/.cache/obax`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "obax"


def find(file: str) -> Path | None:
    """The file in `OBAX_DATA` or else in the cache, or `None`."""
    folders = [Path(folder) for folder in [os.environ.get("OBAX_DATA")] if folder]
    return next((f / file for f in [*folders, cache_folder()] if (f / file).is_file()), None)


def status() -> list[FileStatus]:
    """Every file of every data set: where it is, and whether its checksum is the known one."""
    return [
        FileStatus(dataset.name, file, path := find(file), _state(path, known))
        for dataset in DATASETS
        for file, known in dataset.files.items()
    ]


def _state(path: Path | None, known: str) -> str:
    if path is None:
        return "missing"
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return "verified" if found == known else f"another version, SHA-256 {found[:12]}..."
