"""Checkpoints with bytes changed, and checkpoints that somebody made up with right checksums."""

import copy
import io
import json
import random
import zipfile
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax import checkpoint
from obax._support import files
from obax.estimators import StreamingClassifier

ODD = (None, -1, 2**70, 1e300, "x", "", [], {}, [[]], [-1], [10**18, 10**18], True, {"a": []})


def damaged(count: int, seed: int = 0) -> Iterator[str | None]:
    """Of each: what is wrong; `None` where it was an error in words or the exact state."""
    draw, cases = random.Random(seed), _cases()
    for number in range(count):
        data, like = cases[number % len(cases)]
        yield _judge(_changed(data, draw), like, data)


def crafted(count: int, seed: int = 0) -> Iterator[str | None]:
    """The same of manifests in which something odd stands where something else should."""
    draw, cases = random.Random(seed), _cases()
    for number in range(count):
        data, like = cases[number % len(cases)]
        yield _judge(_crafted(data, draw), like, None)


def _cases() -> list[tuple[bytes, object]]:
    problem = obax.Problem(
        outer=lambda x, y, round: 0.5 * jnp.sum((y - round) ** 2),
        inner=lambda x, y, round: 0.5 * jnp.sum((y - x) ** 2),
    )
    algorithm = obax.OAGD(problem, 0.1, 0.1, window=obax.Window(3))
    state = algorithm.init(jnp.zeros(3), jnp.zeros(3), jnp.zeros(3))
    model = StreamingClassifier()
    for i in range(50):
        model.learn_one({"a": float(i % 5), "b": float(i % 3)}, i % 2)
    tree = {"a": np.arange(6.0), "b": [1, "x", None], "key": jax.random.key(0)}
    return [
        (checkpoint.to_bytes(state), state),
        (checkpoint.to_bytes(model), StreamingClassifier()),
        (checkpoint.to_bytes(tree), tree),
    ]


def _changed(data: bytes, draw: random.Random) -> bytes:
    changed, way = bytearray(data), draw.randrange(4)
    if way == 0:
        return bytes(changed[: draw.randrange(len(data))])
    if way == 1:
        begin = draw.randrange(len(data))
        del changed[begin : begin + draw.randint(1, 64)]
    elif way == 2:
        place = draw.randrange(len(data))
        changed[place:place] = draw.randbytes(draw.randint(1, 64))
    else:
        for _ in range(draw.randint(1, 8)):
            changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _crafted(data: bytes, draw: random.Random) -> bytes:
    whole = zipfile.ZipFile(io.BytesIO(data))
    members = {name: whole.read(name) for name in whole.namelist()}
    manifest = json.loads(members["manifest.json"])
    for _ in range(draw.randint(1, 3)):
        node = manifest
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = draw.choice(keys)
            if isinstance(node[key], dict | list) and node[key] and draw.random() < 0.7:
                node = node[key]
                continue
            # A copy: what is put in one place may be changed in the next turn.
            node[key] = copy.deepcopy(draw.choice(ODD))
            break
    text = json.dumps(manifest).encode()
    members |= {"manifest.json": text, "manifest.sha256": files.checksum(text).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as f:
        for name, blob in members.items():
            f.writestr(name, blob)
    return buffer.getvalue()


def _judge(data: bytes, like: object, exact: bytes | None) -> str | None:
    try:
        found = checkpoint.from_bytes(data, like)
    except ValueError:
        return None
    except Exception as error:
        return f"raw {type(error).__name__}: {error}"
    # A made-up manifest may well be right; one that was damaged must give the state, or nothing.
    return None if exact is None or checkpoint.to_bytes(found) == exact else "another state"
