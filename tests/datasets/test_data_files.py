import dataclasses
import gzip
import hashlib
import http.client
import io
import os
import time
import urllib.error
import zipfile
from decimal import Decimal

import pytest

from obax import datasets
from obax.datasets import DataError, DataSet, Source, convert, downloads, registry

CONTENT = b"a few bytes that everybody knows\n" * 1000
KNOWN = hashlib.sha256(CONTENT).hexdigest()
real_data = pytest.mark.skipif(
    "OBAX_DATA" not in os.environ, reason="OBAX_DATA is not set: no real data"
)


@pytest.fixture
def site(monkeypatch, tmp_path):
    """A publisher with one file, and empty folders to keep it in."""
    published = tmp_path / "publisher" / "small.csv"
    published.parent.mkdir()
    published.write_bytes(CONTENT)
    source = Source(published.as_uri(), "small.csv", KNOWN)
    small = DataSet("small", "what", {"small.csv.gz": "0" * 64}, "how", {"small.csv.gz": source})
    monkeypatch.setattr(registry, "DATASETS", (small,))
    monkeypatch.setenv("OBAX_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "own").mkdir()
    return published


def source_of(monkeypatch, **changes):
    """The one data set with another source."""
    (small,) = registry.DATASETS
    source = dataclasses.replace(small.sources["small.csv.gz"], **changes)
    changed = dataclasses.replace(small, sources={"small.csv.gz": source})
    monkeypatch.setattr(registry, "DATASETS", (changed,))


def cached():
    folder = datasets.cache_folder()
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_file_is_downloaded_once_and_counted(site):
    counted = []
    first = datasets.fetch("small", on_progress=lambda done, total: counted.append((done, total)))
    assert first == {"small.csv.gz": datasets.cache_folder() / "small.csv"}
    assert first["small.csv.gz"].read_bytes() == CONTENT
    assert counted[-1] == (len(CONTENT), len(CONTENT))
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
    for part in (site.as_uri(), KNOWN, hashlib.sha256(b"changed").hexdigest(), "Nothing was kept"):
        assert part in message
    assert cached() == []


def test_what_cannot_be_downloaded_says_what_to_do_by_hand(site):
    site.unlink()
    with pytest.raises(DataError) as caught:
        datasets.fetch("small")
    message = str(caught.value)
    for part in ("by hand", site.as_uri(), str(datasets.cache_folder()), "OBAX_DATA", KNOWN):
        assert part in message
    assert cached() == []
    with pytest.raises(DataError, match=r"neither in .* nor in .* how"):
        datasets.fetch("small", download=False)


class Response(io.BytesIO):
    def __init__(self, data, length=None):
        super().__init__(data)
        self.headers = {} if length is None else {"Content-Length": str(length)}


def test_a_broken_connection_is_told_from_a_changed_file(site, monkeypatch):
    def cut(url, timeout):
        assert 0 < timeout <= 60
        return Response(CONTENT[:100], len(CONTENT))

    monkeypatch.setattr(downloads.urllib.request, "urlopen", cut)
    with pytest.raises(DataError, match=f"broke off after 100 of {len(CONTENT)} bytes"):
        datasets.fetch("small")
    assert cached() == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (TimeoutError("timed out"), "timed out"),
        (urllib.error.URLError("no such host"), "no such host"),
        (http.client.IncompleteRead(b""), "IncompleteRead"),
        (KeyboardInterrupt("stopped"), "stopped"),
    ],
)
def test_a_fault_on_the_way_leaves_nothing(site, monkeypatch, fault, message):
    class Faulty(Response):
        def read(self, size=-1):
            if self.tell():
                raise fault
            return super().read(10)

    monkeypatch.setattr(downloads.urllib.request, "urlopen", lambda url, timeout: Faulty(CONTENT))
    kind = KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else DataError
    with pytest.raises(kind, match=message):
        datasets.fetch("small")
    assert cached() == []


def test_a_server_gone_wrong_does_not_fill_the_disk(site, monkeypatch):
    monkeypatch.setattr(downloads, "LARGEST", 1000)
    with pytest.raises(DataError, match="more than 1000 bytes"):
        datasets.fetch("small")
    assert cached() == []


def test_leftovers_of_long_ago_are_swept_up(site):
    folder = datasets.cache_folder()
    folder.mkdir(parents=True)
    old, young = folder / ".a.csv.1.part", folder / ".a.csv.2.part"
    old.write_bytes(b"")
    young.write_bytes(b"")
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    datasets.fetch("small")
    assert cached() == [young.name, "small.csv"]


def test_an_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match=r"name must be one of mnist, .* but got 'minst'"):
        datasets.fetch("minst")


RIVER = (
    f"{convert.ELEC2_HEADER}\n0,2,0,0.056443,0.43,0.003467,0.4,0.4,UP\n1,7,1,0.00005,0,1,0,0,DOWN"
)


def zipped(text, name="electricity.csv"):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(name, text)
    return data.getvalue()


def test_the_form_of_river_becomes_ours(site, monkeypatch):
    ours = (
        f"{convert.ELEC2_HEADER}\n0.0,2,0.0,0.056443,0.43,0.003467,0.4,0.4,1\n"
        "1.0,7,1.0,5e-05,0.0,1.0,0.0,0.0,0\n"
    ).encode()
    assert convert.river_elec2(zipped(RIVER)) == ours
    site.write_bytes(zipped(RIVER))
    source_of(monkeypatch, sha256=hashlib.sha256(ours).hexdigest(), convert=convert.river_elec2)
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
def test_what_cannot_be_converted_is_not_kept(site, monkeypatch, data, message):
    site.write_bytes(data)
    source_of(monkeypatch, convert=convert.river_elec2, by_hand="turn it round")
    with pytest.raises(DataError, match=f"{message}.*, turn it round, and put it into"):
        datasets.fetch("small")
    assert cached() == []
    assert [path.name for path in site.parent.parent.iterdir()].count("electricity.csv") == 0


def test_a_member_far_too_large_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(convert, "LARGEST_MEMBER", 100)
    with pytest.raises(ValueError, match="far too many"):
        convert.river_elec2(zipped(RIVER))


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
def test_elec2_as_river_has_it_becomes_our_copy():
    lines = gzip.decompress(datasets.find("elec2.csv.gz").read_bytes()).decode().splitlines()
    rivers = lines[:1]
    for line in lines[1:]:
        *values, label = line.split(",")
        plain = [format(Decimal(value), "f").removesuffix(".0") for value in values]
        rivers.append(",".join([*plain, "UP" if label == "1" else "DOWN"]))
    text = "\n".join(rivers)
    assert len(text) == 3_091_689  # The size that River states of its electricity.csv.
    (source,) = next(d for d in datasets.DATASETS if d.name == "elec2").sources.values()
    assert hashlib.sha256(convert.river_elec2(zipped(text))).hexdigest() == source.sha256
