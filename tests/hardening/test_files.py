"""Checkpoints that nobody of ours wrote: refused before memory is taken, in words."""

import io
import json
import random
import tracemalloc
import zipfile

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from obax import checkpoint
from obax._support import files
from obax.checkpoint import CheckpointError
from obax.estimators import StreamingRegressor

STATE = {"x": jnp.arange(3.0), "n": 2}


def crafted(change, compression=zipfile.ZIP_STORED, leaf=None):
    """A checkpoint whose manifest was changed, with right checksums."""
    whole = zipfile.ZipFile(io.BytesIO(checkpoint.to_bytes(STATE, {"round": 1})))
    members = {name: whole.read(name) for name in whole.namelist()}
    manifest = json.loads(members["manifest.json"])
    manifest = change(manifest) or manifest
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    members["manifest.json"], members["manifest.sha256"] = text, files.checksum(text).encode()
    if leaf is not None:
        members["leaves/0"] = leaf
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return buffer.getvalue()


def leaf(**values):
    def change(manifest):
        # Paths are sorted: the plain value comes first, the array second.
        manifest["leaves"][1] |= values

    return change


def without(*names):
    return lambda manifest: {k: v for k, v in manifest.items() if k not in names}


CHANGES = {
    "no leaves": without("leaves"),
    "no kind": without("kind"),
    "no meta": without("meta"),
    "leaves are a dict": lambda m: m | {"leaves": {}},
    "leaves are numbers": lambda m: m | {"leaves": [1, 2]},
    "a list": lambda m: [m],
    "deep": lambda m: b"[" * 10**5,
    "not text": lambda m: b"\xff\xfe",
    "version is a word": lambda m: m | {"version": "one"},
    "version is true": lambda m: m | {"version": True},
    "version is 0": lambda m: m | {"version": 0},
    "shape is absurd": leaf(shape=[10**18, 10**18]),
    "shape is negative": leaf(shape=[-3]),
    "shape is a fraction": leaf(shape=[1.5, 2]),
    "shape is a word": leaf(shape="three"),
    "shape is long": leaf(shape=[1] * 100),
    "dtype is an object": leaf(dtype="object"),
    "dtype is text": leaf(dtype="<U3"),
    "dtype has fields": leaf(dtype="i4,i4"),
    "dtype is nothing": leaf(dtype="no such"),
    "dtype is a function": leaf(dtype="finfo"),
    "dtype is a number": leaf(dtype=7),
    "no checksum": leaf(sha256=None),
    "file is elsewhere": leaf(file="../../etc/passwd"),
    "file is a number": leaf(file=7),
    "path is a number": leaf(path=7),
    "value is a list": lambda m: m["leaves"][0].update(value=[1]),
    "value is missing": lambda m: m["leaves"][0].pop("value") and None,
}


@pytest.mark.parametrize("name", CHANGES)
def test_crafted_manifests(name):
    with pytest.raises(CheckpointError):
        checkpoint.from_bytes(crafted(CHANGES[name]), STATE)


def test_the_craft_itself_is_right():
    found = checkpoint.from_bytes(crafted(lambda manifest: None), STATE)
    np.testing.assert_array_equal(found["x"], STATE["x"])


def test_what_unpacks_to_more_is_refused_before_it_is_unpacked():
    bomb = crafted(lambda m: None, zipfile.ZIP_DEFLATED, leaf=bytes(10**8))
    assert len(bomb) < 10**6
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="unpacks to more"):
            checkpoint.from_bytes(bomb, STATE)
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "array",
    [np.array(["a"]), np.array([b"a"]), np.zeros(2, "i4,f8"), np.array(["2020-01-01"], "M8[D]")],
)
def test_save_refuses_what_load_could_not_read(array):
    with pytest.raises(CheckpointError, match=r"state\['x'\] must be an array of numbers"):
        checkpoint.to_bytes({"x": array})
    whole = np.ones(2, ml_dtypes.bfloat16)
    assert checkpoint.from_bytes(checkpoint.to_bytes(whole), whole).dtype == whole.dtype


def test_estimators_that_are_none():
    """Whatever stands in the part that an estimator reads is an error in words."""
    model = StreamingRegressor()
    for i in range(20):
        model.learn_one({"a": float(i), "b": -1.0}, float(i))
    whole = zipfile.ZipFile(io.BytesIO(checkpoint.to_bytes(model)))
    members = {name: whole.read(name) for name in whole.namelist()}
    draw, found = random.Random(0), 0
    for _ in range(200):
        manifest = json.loads(members["manifest.json"])
        extra = manifest["extra"]
        for _ in range(draw.randint(1, 2)):
            at = draw.choice(list(extra))
            extra[at] = draw.choice([None, -1, "x", [], {}, [[]], 1e300, {"kept": 3}])
        text = json.dumps(manifest).encode()
        changed = members | {
            "manifest.json": text, "manifest.sha256": files.checksum(text).encode()
        }  # fmt: skip
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            for name, data in changed.items():
                file.writestr(name, data)
        try:
            checkpoint.from_bytes(buffer.getvalue(), StreamingRegressor())
        except ValueError:
            found += 1
    assert found > 100
