"""Checkpoints: whole or not there, checked, no pickle; `play` goes on from them."""

import io
import json
import subprocess
import sys
import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import checkpoint
from obax._support import files
from obax.checkpoint import CheckpointError, Folder
from obax.estimators import StreamingClassifier, StreamingRegressor

pytestmark = pytest.mark.usefixtures("quick_compilation")


def same_numbers(a, b):
    """Two estimators have learned the same, bit for bit."""
    ours, theirs = (model.__obax_save__()[0] for model in (a, b))
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def outer(x, y, round):
    return 0.5 * (y - round) ** 2


def inner(x, y, round):
    return 0.5 * (y - x * round) ** 2


@pytest.fixture(scope="module")
def oagd():
    algorithm = obax.OAGD(obax.Problem(outer, inner), 0.1, 0.1, 3, window=obax.Window(4))
    return algorithm, algorithm.init(0.5, 0.0, jnp.zeros(()))


class Stream:
    """A source that can seek."""

    def __init__(self, rounds):
        self.rounds, self.at = rounds, 0

    def seek(self, round):
        self.at = round

    def __iter__(self):
        while self.at < len(self.rounds):
            self.at += 1
            yield self.rounds[self.at - 1]


ROUNDS = [jnp.asarray(value) for value in np.linspace(-1, 2, 23)]


def test_any_tree_comes_back_as_it_was(tmp_path):
    tree = {
        "a": jnp.arange(6.0).reshape(2, 3),
        "half": jnp.ones(3, jnp.bfloat16),
        "flags": np.array([True, False]),
        "key": jax.random.key(7),
        "plain": (1, 2.5, "word", True),
        "empty": jnp.zeros((0, 4), jnp.int8),
    }
    obax.save(tmp_path / "tree.obax", tree, meta={"note": [1, 2]})
    found = obax.load(tmp_path / "tree.obax", like=jax.tree.map(lambda leaf: leaf, tree))
    assert found["plain"] == tree["plain"]
    for name in ("a", "half", "flags", "empty"):
        np.testing.assert_array_equal(found[name], tree[name])
        assert found[name].dtype == tree[name].dtype
    assert jnp.array_equal(jax.random.key_data(found["key"]), jax.random.key_data(tree["key"]))
    assert checkpoint.read_meta(tmp_path / "tree.obax") == {"note": [1, 2]}


def test_a_state_goes_on_to_the_same_bits(tmp_path, oagd):
    algorithm, start = oagd
    half, _ = obax.run(algorithm, start, jnp.stack(ROUNDS[:11]))
    obax.save(tmp_path / "half.obax", half)
    again = obax.load(tmp_path / "half.obax", like=start)
    assert eqx.tree_equal(half, again)
    whole, _ = obax.run(algorithm, half, jnp.stack(ROUNDS[11:]))
    resumed, _ = obax.run(algorithm, again, jnp.stack(ROUNDS[11:]))
    assert eqx.tree_equal(whole, resumed)


def test_estimators_go_on_to_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 3))
    classifier = StreamingClassifier(penalty=0.1)
    classifier.learn_many(rows, ["a" if r[0] > 0 else 7 for r in rows])
    classifier.learn_one({"x": float("inf")}, "a")
    regressor = StreamingRegressor(loss="huber").fit(rows, rows[:, 1])
    for model in (classifier, regressor, StreamingRegressor()):
        obax.save(tmp_path / "model.obax", model)
        found = obax.load(tmp_path / "model.obax", like=type(model)())
        assert repr(found) == repr(model)
        if model.__sklearn_is_fitted__():
            same_numbers(found, model)
            assert found.feature_names_ == model.feature_names_
            a, b = (m.hyperparameter_history_ for m in (found, model))
            jax.tree.map(np.testing.assert_array_equal, a, b)
    assert obax.load(tmp_path / "model.obax", like=StreamingRegressor()).predict_one({}) == 0
    obax.save(tmp_path / "c.obax", classifier)
    found = obax.load(tmp_path / "c.obax", like=StreamingClassifier())
    assert (
        found.rejected_.count == 1
        and found.rejected_[0]["reason"] == "feature 'x' is inf, infinite or beyond 1e+15"
    )
    for model in (found, classifier):
        model.learn_many(rows[:10], ["a"] * 10)
    same_numbers(found, classifier)
    np.testing.assert_array_equal(regressor.predict(rows), regressor.predict(rows))


def test_misfits_name_the_leaf(tmp_path, oagd):
    algorithm, state = oagd
    path = tmp_path / "state.obax"
    obax.save(path, state)
    other = obax.OAGD(algorithm.problem, 0.1, 0.1, 3, window=obax.Window(6))
    with pytest.raises(CheckpointError, match=r"state\.past\.rounds is float64\[3\], but like"):
        obax.load(path, like=other.init(0.5, 0.0, jnp.zeros(())))
    plain = obax.OGD(obax.Problem(lambda x, y, round: x * round), 0.1)
    with pytest.raises(CheckpointError, match=r"another structure than like: like lacks state"):
        obax.load(path, like=plain.init(0.5, None, jnp.zeros(())))
    with pytest.raises(CheckpointError, match="holds a state, but like is a StreamingClassifier"):
        obax.load(path, like=StreamingClassifier())
    obax.save(path, StreamingClassifier())
    with pytest.raises(CheckpointError, match="holds a StreamingClassifier; pass like="):
        obax.load(path, like=state)
    with pytest.raises(CheckpointError, match="is not there"):
        obax.load(tmp_path / "nothing.obax", like=state)
    with pytest.raises(CheckpointError, match="must be an array or a plain value"):
        obax.save(path, {"f": object()})
    with pytest.raises(CheckpointError, match="meta must hold plain values"):
        obax.save(path, {"a": 1}, meta={"f": object()})


def test_every_damaged_byte_is_noticed(tmp_path):
    state = {"a": jnp.arange(4.0), "b": 3}
    data = checkpoint.to_bytes(state)
    assert data == checkpoint.to_bytes(state)
    same = 0
    for at in range(0, len(data), 3):
        broken = bytearray(data)
        broken[at] ^= 0x41
        try:
            found = checkpoint.from_bytes(bytes(broken), state)
        except CheckpointError:
            continue
        # Bytes that carry nothing, such as the date of a member, may change.
        same += 1
        assert found["b"] == 3 and np.array_equal(found["a"], state["a"])
    assert same < len(data) / 6
    for length in range(0, len(data), 37):
        with pytest.raises(CheckpointError):
            checkpoint.from_bytes(data[:length], state)


def rewritten(data, **changes):
    """The same checkpoint with another manifest, checksum included."""
    old = zipfile.ZipFile(io.BytesIO(data))
    manifest = json.loads(old.read("manifest.json")) | changes
    text = json.dumps(manifest).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as new:
        new.writestr("manifest.json", text)
        new.writestr("manifest.sha256", files.checksum(text))
        for name in old.namelist()[2:]:
            new.writestr(name, old.read(name))
    return buffer.getvalue()


def test_versions(monkeypatch):
    state = {"a": jnp.arange(2.0)}
    data = checkpoint.to_bytes(state)
    with pytest.raises(CheckpointError, match="written by a newer obax: its version is 99"):
        checkpoint.from_bytes(rewritten(data, version=99), state)
    old = rewritten(data, version=0)
    with pytest.raises(CheckpointError, match="has version 0, which this obax"):
        checkpoint.from_bytes(old, state)
    monkeypatch.setitem(checkpoint.MIGRATIONS, 0, lambda manifest: manifest | {"version": 1})
    np.testing.assert_array_equal(checkpoint.from_bytes(old, state)["a"], state["a"])
    with pytest.raises(CheckpointError, match="not a checkpoint of obax"):
        checkpoint.from_bytes(rewritten(data, format="other"), state)


def test_states_of_version_1_are_read(oagd):
    """Their past rounds had other names, and a count of them."""
    algorithm, state = oagd
    state, _ = algorithm.step(state, jnp.asarray(1.0))
    data = checkpoint.to_bytes(state)
    manifest = json.loads(zipfile.ZipFile(io.BytesIO(data)).read("manifest.json"))
    names = {".past.present": ".window.there", ".past.rounds": ".window.rounds"}
    leaves = [
        entry | {"path": names.get(entry["path"], entry["path"])} for entry in manifest["leaves"]
    ]
    (mask,) = (entry for entry in leaves if entry["path"] == ".window.there")
    old = rewritten(data, version=1, leaves=[*leaves, mask | {"path": ".window.held"}])
    found = checkpoint.from_bytes(old, state)
    jax.tree.map(np.testing.assert_array_equal, found, state)
    # Without the migration it is an error.
    with pytest.raises(CheckpointError, match=r"it lacks state\.past"):
        checkpoint.from_bytes(rewritten(data, leaves=leaves), state)


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.obax"
    obax.save(path, {"a": 1})

    def crash(_):
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "fsync", crash)
    with pytest.raises(OSError, match="disk full"):
        obax.save(path, {"a": 2})
    assert obax.load(path, like={"a": 0}) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["state.obax"]


@pytest.mark.parametrize("source", [list, Stream])
def test_play_resumes_at_the_right_round(tmp_path, oagd, source):
    algorithm, start = oagd
    *_, (whole, _) = obax.play(algorithm, start, ROUNDS)
    options = {"checkpoint_every": 4, "checkpoint_dir": tmp_path, "keep": 2}
    for count, _ in enumerate(obax.play(algorithm, start, source(ROUNDS), **options), 1):
        if count == 14:
            break
    assert [file.name for file in Folder(tmp_path).files()] == [
        "000000000008.obax",
        "000000000012.obax",
    ]
    game = obax.play(algorithm, start, source(ROUNDS), **options)
    assert game.rounds == 12
    *_, (resumed, _) = game
    assert game.rounds == len(ROUNDS) and eqx.tree_equal(whole, resumed)


def test_play_needs_a_source_that_can_be_read_again(tmp_path, oagd):
    algorithm, start = oagd
    with pytest.raises(ValueError, match="checkpoint_every needs checkpoint_dir"):
        obax.play(algorithm, start, ROUNDS, checkpoint_every=5)
    options = {"checkpoint_every": 2, "checkpoint_dir": tmp_path}
    with pytest.raises(ValueError, match="sequence or have a method seek"):
        obax.play(algorithm, start, iter(ROUNDS), **options)


def test_rejected_rounds_count_towards_the_place_in_the_source(tmp_path, oagd):
    algorithm, start = oagd
    rounds = [*ROUNDS[:3], jnp.asarray(jnp.nan), *ROUNDS[3:]]
    options = {"checkpoint_every": 6, "checkpoint_dir": tmp_path, "on_rejected": "skip"}
    *_, (whole, _) = obax.play(algorithm, start, rounds, on_rejected="skip")
    for count, _ in enumerate(obax.play(algorithm, start, rounds, **options), 1):
        if count == 7:
            break
    game = obax.play(algorithm, start, rounds, **options)
    assert (game.rounds, game.rejected) == (6, 1)
    *_, (resumed, _) = game
    assert eqx.tree_equal(whole, resumed)


def test_a_damaged_checkpoint_is_passed_over(tmp_path, oagd):
    folder = Folder(tmp_path)
    for round in (1, 2, 3):
        folder.save(round, {"a": round})
    folder.files()[-1].write_bytes(b"half a file")
    found, meta = folder.latest(like={"a": 0})
    assert found == {"a": 2} and meta["round"] == 2
    for file in folder.files():
        file.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read"):
        folder.latest(like={"a": 0})


class Counter:
    """A model that says itself what it holds, as those of `obax.estimators` do."""

    def __init__(self, count=0):
        self.count = np.array(count)

    def __obax_save__(self):
        return {"count": self.count}, {"word": "a"}

    def __obax_load__(self, arrays, extra):
        assert extra == {"word": "a"}
        return Counter(arrays["['count']"])


def test_models_have_the_same_file_with_and_without_jax(tmp_path):
    folder = checkpoint.ModelFolder(tmp_path)
    folder.save(3, Counter(5))
    (file,) = folder.files()
    assert file.read_bytes() == checkpoint.to_bytes(Counter(5), {"round": 3})
    found, meta = folder.latest(Counter())
    assert found.count == 5 and meta == {"round": 3}
    assert obax.load(file, like=Counter()).count == 5


def test_checkpoints_of_models_are_written_without_jax():
    code = "import sys, obax; obax.checkpoint.ModelFolder; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
