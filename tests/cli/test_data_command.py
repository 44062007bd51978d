import hashlib
import json

import pytest

from obax import cli, datasets
from obax.datasets import DataSet, Source, registry

CONTENT = b"everybody knows this"


@pytest.fixture
def obax(monkeypatch, capsys):
    def call(*words):
        monkeypatch.setattr("sys.argv", ["obax", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return call


@pytest.fixture(autouse=True)
def published(monkeypatch, tmp_path, web_server):
    """The folder of a publisher with two data sets, none of which is on this machine."""
    known = hashlib.sha256(CONTENT).hexdigest()
    entries, (address, folder) = [], web_server
    for name in ("one", "two"):
        path = folder / f"{name}.csv"
        path.write_bytes(CONTENT)
        source = Source(f"{address}/{path.name}", path.name, known)
        entries.append(DataSet(name, "what", {path.name: known}, "how", {path.name: source}))
    # The command lists the package's names, the loaders those of the registry.
    monkeypatch.setattr(registry, "DATASETS", tuple(entries))
    monkeypatch.setattr(datasets, "DATASETS", tuple(entries))
    monkeypatch.setenv("OBAX_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def states(obax, *words):
    rows = json.loads(obax("data", *words, "--json")[1])
    return {row["data set"]: row["state"] for row in rows}


def test_one_data_set_is_fetched(obax):
    assert states(obax) == {"one": "missing", "two": "missing"}
    assert states(obax, "one") == {"one": "verified"}
    assert states(obax) == {"one": "verified", "two": "missing"}
    assert (datasets.cache_folder() / "one.csv").read_bytes() == CONTENT
    code, out, _ = obax("data", "one")
    assert code == 0
    assert "verified" in out
    assert "To get" not in out


def test_check_downloads_nothing(obax):
    assert obax("data", "one", "--check")[0] == 1
    assert not datasets.cache_folder().exists()
    obax("data", "one")
    assert obax("data", "one", "--check")[0] == 0
    assert obax("data", "--check")[0] == 1
    (datasets.cache_folder() / "one.csv").write_bytes(b"changed")
    assert obax("data", "one", "--check")[0] == 1


def test_a_version_of_your_own_is_shown_and_not_rejected(obax, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "one.csv").write_bytes(b"mine")
    assert states(obax, "one")["one"].startswith("another version")


def test_an_error_is_one_line_and_code_2(obax, published):
    code, out, err = obax("data", "oen")
    assert (code, out) == (2, "")
    assert "unknown data set 'oen'. Did you mean 'one'? Known: one, two." in err
    (published / "two.csv").write_bytes(b"changed")
    code, out, err = obax("data", "two")
    assert (code, out) == (2, "")
    assert "Nothing was kept" in err
    assert err.count("\n") == 1
