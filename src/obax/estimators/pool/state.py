"""A pool as named arrays and plain values, for checkpoints, and back; and in words."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns import Columns
from ..state import check_version, VERSION
from ..tags import plain_option, tagged, untagged, untagged_option
from .models import KEY, State

if TYPE_CHECKING:
    from .pool import Pool

PLAIN = [name for name in KEY.names or () if name != "slot"]


def to_plain(pool: "Pool") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Every key, whether its model is in memory or not. Each model is whole; for a moment of all of
    them, nobody may learn meanwhile."""
    with pool._lock:
        reader, names = pool._reader, list(pool._keys.names)
        places, count = pool._keys.places.copy(), len(pool._reader.names)
        params = pool.model.get_params(deep=False)  # type: ignore[union-attr]
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


def explain(pool: "Pool") -> str:
    """How many, how well, the hyperparameters in the middle, the worst key, what was rejected."""
    table = pool.tenants()
    table = table[table["rows"] > 0]
    text = "No row has been learned yet."
    if len(table):
        what = "log loss" if pool._options.classify else "loss (in deviations of the target)"
        text = (
            f"{len(pool):,} keys, {pool.learned_:,} rows learned, mean {what} "
            f"{pool.mean_loss_:.4f}. Half of the keys look back more than "
            f"{table['memory'].median():.0f} rows (from {table['memory'].min():.0f} to "
            f"{table['memory'].max():.0f}), penalty {table['penalty'].median():.3g} and inertia "
            f"{table['inertia'].median():.3g} in the middle. The worst is {table['key'].iloc[0]}: "
            f"{table['loss'].iloc[0]:.4f} over {table['rows'].iloc[0]:,} rows."
        )
    if pool.in_memory_ < len(pool):
        text += f" {pool.in_memory_:,} models are in memory, the others on disk."
    if pool._rejected.count:
        were = "rows were" if pool._rejected.count > 1 else "row was"
        text += f" {pool._rejected.count:,} {were} rejected, {pool._rejected.most_often()}."
    if pool.ignored_:
        text += (
            f" {pool.ignored_:,} values of features beyond the first {len(pool.feature_names_)} "
            f"were ignored."
        )
    return text


def _shown(value: object) -> object:
    return value if isinstance(value, float | int | str | type(None)) else repr(value)


def _check(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.float64:
        raise ValueError(
            f"{name} of the checkpoint is {array.dtype}{list(array.shape)}, but this pool needs "
            f"float64{list(shape)}."
        )
