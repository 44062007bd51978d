"""The known data sets (`data_sets.toml`), where their files are, and whether they are intact.

A file is looked for in the folder that the environment variable `OBAX_DATA` names, then in the
cache, and is downloaded from its publisher last. pooch downloads, checks and moves into place.
"""

import dataclasses
import hashlib
import io
import os
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 30.0
# Several times the largest known file, so that a faulty server cannot fill the disk.
LARGEST = 1 << 30
ELEC2_HEADER = "date,day,period,nswprice,nswdemand,vicprice,vicdemand,transfer,class"
LARGEST_MEMBER = 1 << 24


class DataError(OSError):
    """A data file is missing or damaged, or has unknown content; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Source:
    """The address of a publisher's file, and name and SHA-256 of the file that is kept.

    `convert` names the function of `CONVERTERS` that returns the bytes to keep for the bytes that
    were downloaded, where the two differ; `by_hand` then describes how to do the same by hand.
    """

    url: str
    file: str
    sha256: str
    convert: str = ""
    by_hand: str = ""


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


@dataclasses.dataclass(frozen=True)
class FileStatus:
    """A file of a data set, its path (or `None`), and whether its checksum is right, in words."""

    dataset: str
    file: str
    path: Path | None
    state: str


def river_elec2(archive: bytes) -> bytes:
    """Return `electricity.csv` of River's zip with its numbers written as in our `elec2.csv`.

    The member is read into memory; nothing is unpacked to disk.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as file:
            member = file.getinfo("electricity.csv")
            if member.file_size > LARGEST_MEMBER:
                raise ValueError(f"electricity.csv has {member.file_size} bytes, far too many.")
            lines = file.read(member).decode("ascii").splitlines()
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"it is no zip archive with electricity.csv in it ({error}).") from error
    if not lines or lines[0] != ELEC2_HEADER:
        raise ValueError(f"the first line of electricity.csv must be {ELEC2_HEADER}.")
    rows = [ELEC2_HEADER]
    for number, line in enumerate(lines[1:], 2):
        date, day, *values, label = line.split(",")
        if label not in ("UP", "DOWN"):
            raise ValueError(f"line {number} must end in UP or DOWN, but ends in {label!r}.")
        numbers = [repr(float(value)) for value in values]
        rows.append(",".join([repr(float(date)), day, *numbers, "1" if label == "UP" else "0"]))
    return ("\n".join(rows) + "\n").encode("ascii")


CONVERTERS = {"river_elec2": river_elec2}


def _read_data_sets() -> Iterator[DataSet]:
    """Yield the data sets of `data_sets.toml`."""
    text = Path(__file__).with_name("data_sets.toml").read_text(encoding="utf-8")
    for name, about in tomllib.loads(text).items():
        sources = {file: Source(**source) for file, source in about.pop("sources", {}).items()}
        yield DataSet(name, sources=sources, **about)


DATASETS = tuple(_read_data_sets())


def cache_folder() -> Path:
    """Return the folder that is searched second: `obax` in `$XDG_CACHE_HOME` or `~/.cache`."""
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


def _state(path: Path | None, checksums: set[str]) -> str:
    if path is None:
        return "missing"
    if path.is_dir():
        return "unpacked, not checked"
    actual = checksum(path)
    return "verified" if actual in checksums else f"another version, SHA-256 {actual[:12]}..."


def fetch(name: str, *, verify: bool = True, download: bool = True) -> dict[str, Path]:
    """Return the files of a data set by name, downloaded into the cache if they are not found.

    A file with an unknown checksum is an error and is left as it is; `verify=False` accepts it, for
    a version of your own. An unpacked folder has no checksum.
    """
    dataset = next((d for d in DATASETS if d.name == name), None)
    if dataset is None:
        names = ", ".join(d.name for d in DATASETS)
        raise ValueError(f"name must be one of {names}, but got {name!r}.")
    paths = {}
    for file, path in located(dataset).items():
        checksums, source = dataset.checksums(file), dataset.sources.get(file)
        if path is None:
            if source is None or not download:
                raise DataError(
                    f"{file} of {name} is neither in the folder of OBAX_DATA "
                    f"({os.environ.get('OBAX_DATA') or 'not set'}) nor in {cache_folder()}. "
                    f"Put it into one of them: {dataset.how}, SHA-256 {dataset.files[file]}."
                )
            path = _downloaded(source, cache_folder())
        elif verify and path.is_file() and (actual := checksum(path)) not in checksums:
            raise DataError(
                f"{path} is not the {name} file that is known: expected SHA-256 "
                f"{' or '.join(sorted(checksums))}, but found {actual}. It was left as it is. "
                f"Remove it to download it again, or pass verify=False if it is a version of your "
                f"own."
            )
        paths[file] = path
    return paths


def _downloaded(source: Source, folder: Path) -> Path:
    """Download a file into a folder. Nothing is kept unless it is complete and known."""
    # Slow to import and only needed here.
    import pooch
    from tqdm import tqdm

    def transfer(url: str, file: str, cache: Any) -> None:
        with Bar(desc=source.file, total=1, unit="B", unit_scale=True, file=shown) as bar:
            pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT_SECONDS)(url, file, cache)
        if source.convert:
            Path(file).write_bytes(CONVERTERS[source.convert](Path(file).read_bytes()))

    class Bar(tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            changed = super().update(n)
            if self.n > LARGEST:
                raise DataError(f"it has more than {LARGEST} bytes.")
            return changed

    shown = sys.stderr if sys.stderr.isatty() else io.StringIO()
    pooch.get_logger().setLevel("WARNING")
    checksums, urls = {source.file: f"sha256:{source.sha256}"}, {source.file: source.url}
    try:
        cache = pooch.create(folder, "", registry=checksums, urls=urls)
        return Path(cache.fetch(source.file, downloader=transfer))
    # Those of connections are OSErrors; another checksum and what cannot be read are ValueErrors.
    except (OSError, ValueError) as error:
        raise DataError(
            f"{source.url} could not be downloaded: {error} Nothing was kept; try again later. To "
            f"do it by hand: get {source.url}{source.by_hand and f', {source.by_hand},'} and put "
            f"it into {folder}, or into a folder that OBAX_DATA names, as {source.file}, SHA-256 "
            f"{source.sha256}."
        ) from error


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
