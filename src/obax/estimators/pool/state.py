"""A pool as named arrays and plain values, for checkpoints, and back."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns import Columns
from ..state import VERSION, check_version
from ..tags import plain_option, tagged, untagged, untagged_option
from .keys import spread
from .models import KEY, State

if TYPE_CHECKING:
    from .pool import Pool

RENEW = 1024
"""Rows, at least, after which the medians of a pooled start are taken again; as many as there are
keys, if these are more."""
PLAIN = [name for name in KEY.names or () if name != "slot"]


def to_plain(pool: "Pool") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Every key, whether its model is in memory or not. Each model is whole; for a moment of all of
    them, nobody may learn meanwhile."""
    with pool._lock:
        reader, names = pool._reader, list(pool._keys.names)
        places, count = pool._keys.places.copy(), len(pool._reader.names)
        params = pool.model.get_params(deep=False)
        extra: dict[str, Any] = {
            "version": VERSION,
            "model": type(pool.model).__name__,
            "params": {name: plain_option(value) for name, value in params.items()},
            "key": pool.key,
            "start": pool.start,
            "max_keys": pool.max_keys,
            "rows": pool.rows,
            "starts": pool._starts,
            "renewal": pool._renewal,
            "keys": [tagged(name) for name in names],
            "names": [tagged(name) for name in reader.names],
            "classes": [tagged(label) for label in reader.classes],
            "ignored": reader.ignored,
            "columns": reader.columns.to_plain(),
            "rejected": {
                "count": pool._rejected.count,
                "kept": [
                    {
                        "row": one["row"],
                        "reason": one["reason"],
                        "names": [tagged(str(name)) for name in one["values"]],
                        "values": [_shown(value) for value in one["values"].values()],
                    }
                    for one in pool._rejected
                ],
            },
        }
    classes = max(1, len(extra["classes"]))
    table, order = np.zeros(len(names), KEY), np.zeros((len(names), classes), np.int16)
    states: dict[int, tuple[list[int], list[np.ndarray], list[np.ndarray]]] = {}
    for i, shard in enumerate(pool._shards):
        with shard._lock:
            shard.fit(count, classes)
            for number in np.flatnonzero(places[:, 0] == i).tolist():
                local = int(places[number, 1])
                table[number], order[number] = shard.table[local], shard.order[local, :classes]
                found = shard.fitted(local)
                if found is not None:
                    numbers, vectors, notes = states.setdefault(found.size, ([], [], []))
                    numbers.append(number)
                    vectors.append(found.vector)
                    notes.append(found.notes)
    arrays = {f"keys.{name}": table[name].copy() for name in PLAIN} | {"keys.order": order}
    for size, (numbers, vectors, notes) in states.items():
        arrays[f"states.{size}.keys"] = np.array(numbers, np.int64)
        arrays[f"states.{size}.vectors"] = np.array(vectors)
        arrays[f"states.{size}.notes"] = np.array(notes)
    return arrays, extra | {"sizes": list(states)}


def from_plain(like: "Pool", arrays: dict[str, np.ndarray], extra: dict[str, Any]) -> "Pool":
    """The pool again, with the folder of `like`, and with as many shards."""
    check_version(extra)
    found = {path.removeprefix("['").removesuffix("']"): array for path, array in arrays.items()}
    kind = type(like.model)
    if extra["model"] != kind.__name__:
        raise ValueError(
            f"the checkpoint holds a pool of {extra['model']}, but like is one of {kind.__name__}."
        )
    model = kind(**{name: untagged_option(value) for name, value in extra["params"].items()})
    pool = type(like)(
        model,
        extra["key"],
        start=extra["start"],
        max_keys=extra["max_keys"],
        folder=like.folder,
        shards=like.shards,
    )
    reader = pool._reader
    reader.names = {untagged(name): i for i, name in enumerate(extra["names"])}
    reader.add_classes([untagged(label) for label in extra["classes"]])
    reader.ignored = extra["ignored"]
    reader.columns = Columns.from_plain(pool._options.max_categories, extra["columns"])
    pool.rows, pool._starts, pool._renewal = extra["rows"], extra["starts"], extra["renewal"]
    for key in extra["keys"]:
        pool._keys.add(untagged(key))
    for shard, size in zip(pool._shards, pool._keys.counts(), strict=True):
        shard.add(size)
        shard.fit(len(reader.names), len(reader.classes))
    # In the order in which they were needed, so that the same models stay in memory.
    used = found["keys.used"]
    for size in extra["sizes"]:
        plan = pool._options.plan(len(reader.names), size)
        numbers = found[f"states.{size}.keys"]
        lines = [found[f"states.{size}.{name}"] for name in ("vectors", "notes")]
        _check(f"states.{size}.vectors", lines[0], (len(numbers), len(plan.start({}))))
        for at in np.argsort(used[numbers], kind="stable").tolist():
            shard, local = pool._keys.places[numbers[at]].tolist()
            state = State(lines[0][at], lines[1][at], size, plan.features)
            pool._shards[shard].put(local, state)
    for i, shard in enumerate(pool._shards):
        mine = np.flatnonzero(pool._keys.places[:, 0] == i)
        shard.restore(
            {name: found[f"keys.{name}"][mine] for name in PLAIN}, found["keys.order"][mine]
        )
    for one in extra["rejected"]["kept"]:
        names = [untagged(name) for name in one["names"]]
        values = dict(zip(names, one["values"], strict=True))
        pool._rejected.add(one["row"], one["reason"], values)
    pool._rejected.count = extra["rejected"]["count"]
    return pool


def part(pool: "Pool", index: int, of: int) -> "Pool":
    """Some of the keys of a pool, as a pool."""
    arrays, extra = to_plain(pool)
    names = [untagged(key) for key in extra["keys"]]
    mine = np.array([spread(name) % of == index for name in names], bool)
    # Where those that stay get their numbers anew.
    number = np.cumsum(mine) - 1
    for name, array in arrays.items():
        if name.startswith("keys."):
            arrays[name] = array[mine]
    for size in extra["sizes"]:
        keys = arrays[f"states.{size}.keys"]
        for name in ("vectors", "notes"):
            arrays[f"states.{size}.{name}"] = arrays[f"states.{size}.{name}"][mine[keys]]
        arrays[f"states.{size}.keys"] = number[keys[mine[keys]]]
    most = pool.max_keys and max(1, pool.max_keys // of)
    extra |= {"keys": [tagged(name) for name in names if spread(name) % of == index]}
    extra |= {"rows": 0, "max_keys": most, "renewal": RENEW}
    extra["rejected"] = {"count": 0, "kept": []}
    like = type(pool)(pool.model, folder=pool.folder, shards=1)
    return from_plain(like, arrays, extra)


def _shown(value: object) -> object:
    return value if isinstance(value, float | int | str | type(None)) else repr(value)


def _check(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.float64:
        raise ValueError(
            f"{name} of the checkpoint is {array.dtype}{list(array.shape)}, but this pool needs "
            f"float64{list(shape)}."
        )
