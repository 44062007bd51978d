import dataclasses
import gc
import gzip
import hashlib
import io
import os
import warnings
import zipfile
from decimal import Decimal
from typing import ClassVar

import pytest
import requests

from obax import datasets
from obax.datasets import DataError, DataSet, Source, registry

CONTENT = b"a few bytes that everybody knows\n" * 1000
KNOWN = hashlib.sha256(CONTENT).hexdigest()
real_data = pytest.mark.skipif(
    "OBAX_DATA" not in os.environ, reason="OBAX_DATA is not set: no real data"
)


@pytest.fixture
def site(monkeypatch, tmp_path, web_server):
    """The file of a publisher, with empty folders to keep it in."""
    address, folder = web_server
    published = folder / "small.csv"
    published.write_bytes(CONTENT)
    source = Source(f"{address}/small.csv", "small.csv", KNOWN)
    small = DataSet("small", "what", {"small.csv.gz": "0" * 64}, "how", {"small.csv.gz": source})
    monkeypatch.setattr(registry, "DATASETS", (small,))
    monkeypatch.setenv("OBAX_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "own").mkdir()
    yield published
    with warnings.catch_warnings():
        # pooch leaves the connection of a download that failed to the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def source_of(monkeypatch, **changes):
    """The one data set with another source."""
    (small,) = registry.DATASETS
    source = dataclasses.replace(small.sources["small.csv.gz"], **changes)
    changed = dataclasses.replace(small, sources={"small.csv.gz": source})
    monkeypatch.setattr(registry, "DATASETS", (changed,))


def cached():
    folder = datasets.cache_folder()
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_file_is_downloaded_once(site):
    first = datasets.fetch("small")
    assert first == {"small.csv.gz": datasets.cache_folder() / "small.csv"}
    assert first["small.csv.gz"].read_bytes() == CONTENT
    assert cached() == ["small.csv"]
    site.unlink()
    assert datasets.fetch("small") == first
    assert [status.state for status in datasets.status()] == ["verified"]


def test_own_folder_comes_before_the_cache_and_our_name_before_the_publishers(site, tmp_path):
    datasets.fetch("small")
    own = tmp_path / "own"
    (own / "small.csv").write_bytes(CONTENT)
    assert datasets.find("small.csv.gz") == own / "small.csv"
    (own / "small.csv.gz").write_bytes(b"")
    assert datasets.find("small.csv.gz") == own / "small.csv.gz"


def test_another_version_is_kept_and_rejected(site, tmp_path):
    mine = tmp_path / "own" / "small.csv"
    mine.write_bytes(b"mine")
    with pytest.raises(DataError) as caught:
        datasets.fetch("small")
    message = str(caught.value)
    for part in (KNOWN, hashlib.sha256(b"mine").hexdigest(), str(mine), "Remove", "verify=False"):
        assert part in message
    assert mine.read_bytes() == b"mine"
    assert datasets.fetch("small", verify=False) == {"small.csv.gz": mine}


def test_a_download_with_another_checksum_is_not_kept(site):
    site.write_bytes(b"changed")
    with pytest.raises(DataError) as caught:
        datasets.fetch("small")
    message = str(caught.value)
    url = registry.DATASETS[0].sources["small.csv.gz"].url
    for part in (url, KNOWN, hashlib.sha256(b"changed").hexdigest(), "Nothing was kept"):
        assert part in message
    assert cached() == []


def test_a_failed_download_says_what_to_do_by_hand(site):
    site.unlink()
    with pytest.raises(DataError) as caught:
        datasets.fetch("small")
    message = str(caught.value)
    url = registry.DATASETS[0].sources["small.csv.gz"].url
    for part in ("by hand", url, str(datasets.cache_folder()), "OBAX_DATA", KNOWN):
        assert part in message
    assert cached() == []
    with pytest.raises(DataError, match=r"neither in .* nor in .* how"):
        datasets.fetch("small", download=False)


class Answer(io.BytesIO):
    """What urllib3 gives requests for a download: bytes, then possibly a fault."""

    def __init__(self, data, fault=None):
        super().__init__(data)
        self.fault = fault

    def iter_content(self, chunk_size):
        yield self.read()
        if self.fault is not None:
            raise self.fault

    def raise_for_status(self):
        pass

    headers: ClassVar = {"content-length": str(len(CONTENT))}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (requests.exceptions.ConnectTimeout("timed out"), "timed out"),
        (requests.exceptions.ConnectionError("no such host"), "no such host"),
        (requests.exceptions.ChunkedEncodingError("IncompleteRead"), "IncompleteRead"),
        (None, "does not match the known hash"),
        (KeyboardInterrupt("stopped"), "stopped"),
    ],
)
def test_an_interrupted_download_leaves_nothing(site, monkeypatch, fault, message):
    def get(url, timeout, stream):
        assert 0 < timeout <= 60 and stream
        return Answer(CONTENT[:100], fault)

    monkeypatch.setattr(requests, "get", get)
    kind = KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else DataError
    with pytest.raises(kind, match=message):
        datasets.fetch("small")
    assert cached() == []


def test_a_download_that_is_far_too_large_is_ended(site, monkeypatch):
    monkeypatch.setattr(registry, "LARGEST", 1000)
    with pytest.raises(DataError, match="more than 1000 bytes"):
        datasets.fetch("small")
    assert cached() == []


def test_an_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match=r"name must be one of mnist, .* but got 'minst'"):
        datasets.fetch("minst")


RIVER = (
    f"{registry.ELEC2_HEADER}\n0,2,0,0.056443,0.43,0.003467,0.4,0.4,UP\n1,7,1,0.00005,0,1,0,0,DOWN"
)


def zipped(text, name="electricity.csv"):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(name, text)
    return data.getvalue()


def test_the_elec2_of_river_is_converted(site, monkeypatch):
    ours = (
        f"{registry.ELEC2_HEADER}\n0.0,2,0.0,0.056443,0.43,0.003467,0.4,0.4,1\n"
        "1.0,7,1.0,5e-05,0.0,1.0,0.0,0.0,0\n"
    ).encode()
    assert registry.river_elec2(zipped(RIVER)) == ours
    site.write_bytes(zipped(RIVER))
    source_of(monkeypatch, sha256=hashlib.sha256(ours).hexdigest(), convert="river_elec2")
    assert datasets.fetch("small")["small.csv.gz"].read_bytes() == ours
    assert cached() == ["small.csv"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no archive", "no zip archive"),
        (zipped(RIVER, "../electricity.csv"), "no zip archive with electricity.csv"),
        (zipped("a,b\n"), "first line"),
        (zipped(RIVER + "\n0,2,0,0,0,0,0,0,SIDEWAYS"), "line 4 must end in UP or DOWN"),
        (zipped(RIVER + "\n0,2,0,0,zero,0,0,0,UP"), "could not convert"),
    ],
)
def test_a_file_that_cannot_be_converted_is_not_kept(site, monkeypatch, data, message):
    site.write_bytes(data)
    source_of(monkeypatch, convert="river_elec2", by_hand="turn it round")
    with pytest.raises(DataError, match=f"{message}.*, turn it round, and put it into"):
        datasets.fetch("small")
    assert cached() == []
    assert [path.name for path in site.parent.parent.iterdir()].count("electricity.csv") == 0


def test_a_member_that_is_far_too_large_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(registry, "LARGEST_MEMBER", 100)
    with pytest.raises(ValueError, match="far too many"):
        registry.river_elec2(zipped(RIVER))


@real_data
def test_checksums_of_the_publishers_follow_from_our_copies():
    sources = {file: s for d in datasets.DATASETS for file, s in d.sources.items()}
    for file in ("adult.data.gz", "adult.test.gz"):
        text = gzip.decompress(datasets.find(file).read_bytes())
        # The publisher's file has one empty line more.
        assert hashlib.sha256(text + b"\n").hexdigest() == sources[file].sha256
    weather = gzip.decompress(datasets.find("weather.csv.gz").read_bytes())
    assert hashlib.sha256(weather).hexdigest() == sources["weather.csv.gz"].sha256


@real_data
def test_the_whole_elec2_of_river_becomes_our_copy():
    lines = gzip.decompress(datasets.find("elec2.csv.gz").read_bytes()).decode().splitlines()
    rivers = lines[:1]
    for line in lines[1:]:
        *values, label = line.split(",")
        plain = [format(Decimal(value), "f").removesuffix(".0") for value in values]
        rivers.append(",".join([*plain, "UP" if label == "1" else "DOWN"]))
    text = "\n".join(rivers)
    assert len(text) == 3_091_689  # The size that River states of its electricity.csv.
    (source,) = next(d for d in datasets.DATASETS if d.name == "elec2").sources.values()
    assert hashlib.sha256(registry.river_elec2(zipped(text))).hexdigest() == source.sha256
