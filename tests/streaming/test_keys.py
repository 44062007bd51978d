"""`obax stream --key`: a model for each value of a column."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from obax import cli
from obax.serve.page import read as read_page

pytestmark = pytest.mark.usefixtures("quick_compilation")


def stream(*arguments):
    return CliRunner().invoke(cli.app, ["stream", *map(str, arguments)])


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def rows(tmp_path):
    """Lines of three shops, of which one sells the other way round and one at random."""
    rng = np.random.default_rng(0)
    lines = []
    for i in range(240):
        shop, (a, b) = "xyz"[i % 3], rng.standard_normal(2).round(4).tolist()
        sold = rng.random() > 0.5 if shop == "z" else (a > 0) == (shop == "x")
        lines.append({"a": a, "b": b, "shop": shop, "sold": "yes" if sold else "no"})
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    text = "a,b,shop,sold\n" + "".join(",".join(map(str, r.values())) + "\n" for r in lines)
    (tmp_path / "rows.csv").write_text(text)
    return lines


def test_keys_are_separate_streams(tmp_path, rows):
    for kind in ("csv", "jsonl"):
        arguments = ("--target", "sold", "--key", "shop", "--out", tmp_path / f"{kind}.out")
        done = stream(tmp_path / f"rows.{kind}", *arguments)
        assert done.exit_code == 0, done.output
        assert "240 rows, 0 rejected" in done.output
    assert (tmp_path / "csv.out").read_bytes() == (tmp_path / "jsonl.out").read_bytes()
    found = read(tmp_path / "csv.out")
    assert [one["key"] for one in found] == [row["shop"] for row in rows]
    # What the lines of one shop alone give.
    for shop in "xyz":
        mine = [row for row in rows if row["shop"] == shop]
        (tmp_path / "one.jsonl").write_text("\n".join(map(json.dumps, mine)))
        arguments = ("--target", "sold", "--drop", "shop", "--out", tmp_path / f"{shop}.out")
        assert stream(tmp_path / "one.jsonl", *arguments).exit_code == 0
        told = [
            {"prediction", "probability", "loss", "hyperparameters"} & one.keys() for one in found
        ]
        assert all(len(names) == 4 for names in told)
        alone, together = read(tmp_path / f"{shop}.out"), [o for o in found if o["key"] == shop]
        for one, other in zip(alone, together, strict=True):
            assert {n: v for n, v in one.items() if n != "t"} == {
                n: v for n, v in other.items() if n not in ("t", "key")
            }


def test_bad_keys_are_rejected_line_by_line(tmp_path, rows):
    bad = ['{"a": 1, "sold": "no"}', '{"a": 1, "shop": null, "sold": "no"}']
    bad += ['{"a": 1, "shop": ["x"], "sold": "no"}', '{"a": 1, "shop": {"x": 1}, "sold": "no"}']
    text = "\n".join([*bad, "no json", *map(json.dumps, rows)])
    (tmp_path / "rows.jsonl").write_text(text)
    arguments = ("--target", "sold", "--key", "shop", "--out", tmp_path / "out")
    done = stream(tmp_path / "rows.jsonl", *arguments)
    assert "245 rows, 5 rejected" in done.output
    reasons = [one.get("rejected", "") for one in read(tmp_path / "out")[:6]]
    words = ("missing", "missing", "a list is not hashable", "a dict is not hashable", "not JSON")
    for reason, word in zip(reasons, (*words, ""), strict=True):
        assert word in reason
    assert not reasons[-1]


def test_watch_shows_the_worst_keys_first(tmp_path, rows):
    arguments = ("--target", "sold", "--key", "shop", "--checkpoint", tmp_path / "ck")
    done = stream(tmp_path / "rows.csv", *arguments, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    seen = read_page(tmp_path / "ck")
    assert seen["trouble"] is None and ["keys", "3"] in seen["facts"]
    head, *cells = seen["table"]
    assert head == ["key, worst first", "rows", "loss", "penalty", "memory", "inertia", "rejected"]
    assert cells[0][0] == "z" and [line[1] for line in cells] == ["80"] * 3
    losses = [float(line[2]) for line in cells]
    assert losses == sorted(losses, reverse=True) and "3 keys" in seen["text"]
    json.dumps(seen)
    # Taken up by a model without keys, or the other way round: other settings.
    done = stream(tmp_path / "rows.csv", "--target", "sold", "--out", tmp_path / "out",
                  "--checkpoint", tmp_path / "ck")  # fmt: skip
    assert done.exit_code == 1 and "holds a Pool" in str(done.exception)


def test_incompatible_options_raise(tmp_path, rows):
    for arguments, words in (
        (("--key", "shopp"), "Did you mean 'shop'?"),
        (("--key", "shop", "--coverage", "0.9"), "--key cannot be used with --id or --coverage"),
        (("--key", "shop", "--id", "a"), "--key cannot be used with --id or --coverage"),
        (("--max-keys", "5"), "name their column with --key"),
        (("--key", "shop", "--start", "median"), "start must be one of 'default', 'pooled'"),
    ):
        done = stream(
            tmp_path / "rows.csv", "--target", "sold", *arguments, "--out", tmp_path / "o"
        )
        assert done.exit_code == 1 and words in str(done.exception), arguments


def test_regression_with_keys(tmp_path):
    rng = np.random.default_rng(0)
    text = "a,who,y\n" + "".join(
        f"{a:.3f},{i % 2},{(3 if i % 2 else -3) * a:.3f}\n"
        for i, a in enumerate(rng.standard_normal(200))
    )
    (tmp_path / "rows.csv").write_text(text)
    arguments = ("--target", "y", "--task", "regress", "--key", "who", "--out", tmp_path / "out")
    done = stream(tmp_path / "rows.csv", *arguments)
    assert done.exit_code == 0 and "MAE" in done.output
    losses = [one["loss"] for one in read(tmp_path / "out")]
    assert np.mean(losses[100:]) < 0.01
    # One model for both would have nothing to say.
    assert stream(tmp_path / "rows.csv", "--target", "y", "--task", "regress", "--drop", "who",
                  "--out", tmp_path / "one").exit_code == 0  # fmt: skip
    assert np.mean([one["loss"] for one in read(tmp_path / "one")][100:]) > 0.2
