"""The command `obax certify`, as a person calls it."""

import sys

import pytest

from obax import cli


@pytest.fixture
def certify_command(monkeypatch, capsys, tmp_path):
    """Calls it with words; exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["obax", "certify", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
            raise SystemExit(0)
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call
