"""A pool as named arrays and plain values, for checkpoints, and back."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..inputs.columns import Columns
from ..json_codec import plain_option, tagged, untagged
from ..rejected import Rejected
from ..serialise import (
    VERSION,
    Arrays,
    check_version,
    described_by,
    options_from,
    part_of,
    require,
    unique,
    whole,
)
from .keys import spread

if TYPE_CHECKING:
    from .pool import Pool

RENEW = 1024
"""Rows, at least, after which the medians of a pooled start are computed again; as many as there
are keys, if these are more."""
COUNTS = ("given", "rejected", "used")


def to_plain(pool: "Pool") -> tuple[Arrays, dict[str, Any]]:
    """Return every key, whether its model is in memory or not."""
    with pool._lock:
        return _to_plain(pool, list(range(len(pool))))


def _to_plain(pool: "Pool", numbers: list[int]) -> tuple[Arrays, dict[str, Any]]:
    """Return some keys. Models whose arrays have the same shapes lie in the lines of one array."""
    reader, names = pool._reader, list(pool._keys.index)
    infos = [pool._info(number) for number in numbers]
    layouts: dict[tuple[Any, ...], int] = {}
    layout = np.full(len(numbers), -1, np.int64)
    lines: list[list[np.ndarray]] = []
    for i, number in enumerate(numbers):
        state = pool._state(number)
        if state is None:
            continue
        shapes = tuple((name, array.shape) for name, array in state.items())
        layout[i] = layouts.setdefault(shapes, len(layouts))
        if layout[i] == len(lines):
            lines.append([])
        lines[layout[i]].append(np.concatenate([array.ravel() for array in state.values()]))
    arrays = {f"keys.{name}": _integers([info[name] for info in infos]) for name in COUNTS}
    for name in ("features", "labels"):
        arrays[f"keys.{name}"] = _integers([one for info in infos for one in info[name]])
        arrays[f"keys.{name}.count"] = _integers([len(info[name]) for info in infos])
    arrays["keys.layout"] = layout
    arrays |= {f"states.{i}": np.array(some) for i, some in enumerate(lines)}
    params = pool.model.get_params(deep=False)
    return arrays, {
        "version": VERSION,
        "model": type(pool.model).__name__,
        "params": {name: plain_option(value) for name, value in params.items()},
        "key": pool.key,
        "start": pool.start,
        "max_keys": pool.max_keys,
        "rows": pool.rows,
        "starts": pool._starts,
        "renewal": pool._renewal,
        "keys": [tagged(names[number]) for number in numbers],
        "names": [tagged(name) for name in reader.names],
        "classes": [tagged(label) for label in reader.index],
        "ignored": reader.ignored,
        "columns": reader.columns.to_plain(),
        "rejected": pool._rejected.to_plain(),
        "layouts": [[[name, list(shape)] for name, shape in shapes] for shapes in layouts],
    }


def _integers(values: Any) -> np.ndarray:
    return np.array(values, np.int64).reshape(-1)


def from_plain(like: "Pool", arrays: Arrays, extra: dict[str, Any]) -> "Pool":
    """Return the pool again, with the folder of `like`, and with as many shards."""
    check_version(extra)
    kind = type(like.model)
    if extra.get("model") != kind.__name__:
        raise ValueError(
            f"the checkpoint holds a pool of {extra.get('model')}, but like is one of "
            f"{kind.__name__}."
        )
    with described_by("Pool"):
        pool = type(like)(
            options_from(kind, extra["params"]),
            extra["key"],
            start=extra["start"],
            max_keys=extra["max_keys"],
            folder=like.folder,
            shards=like.shards,
        )
        reader = pool._reader
        names, labels, keys = (
            unique(part, [untagged(one) for one in extra[part]])
            for part in ("names", "classes", "keys")
        )
        reader.names = {name: i for i, name in enumerate(names)}
        reader.index = {label: i for i, label in enumerate(labels)}
        reader.ignored = whole("ignored values", extra["ignored"])
        reader.columns = Columns.from_plain(pool._options.max_categories, extra["columns"])
        pool.rows, pool._renewal = whole("rows", extra["rows"]), whole("renewal", extra["renewal"])
        pool._begin_at(extra["starts"])
        pool._keys.index = {key: i for i, key in enumerate(keys)}
        pool._engine.add(len(keys))
        _restore(pool, part_of(arrays, "keys."), part_of(arrays, "states."), extra["layouts"])
        pool._rejected = Rejected.from_plain(extra["rejected"])
        return pool


def _restore(pool: "Pool", table: Arrays, states: Arrays, layouts: list[Any]) -> None:
    """Put the models of all keys in their places; the engine checks their numbers."""
    count, features, labels = len(pool), len(pool._reader.names), len(pool._reader.index)
    for name, array in table.items():
        fits = isinstance(array, np.ndarray) and array.dtype == np.int64 and array.ndim == 1
        flat = name in ("features", "labels")
        require(fits and (flat or len(array) == count), f"keys.{name}", f"int64[{count}]")
        require(np.all(array >= (-1 if name == "layout" else 0)), f"keys.{name}", "counts")
    require(np.all(table["layout"] < len(layouts)), "keys.layout", "numbers of layouts")
    parts = {}
    for name, most in (("features", features), ("labels", labels)):
        counts = table[f"{name}.count"]
        complete = counts.sum() == len(table[name]) and np.all(table[name] < most)
        require(complete, f"keys.{name}", "numbers of the pool's")
        parts[name] = np.split(table[name], np.cumsum(counts)[:-1]) if count else []
    used = {i: iter(_lines(states, i, layout)) for i, layout in enumerate(layouts)}
    # Those that were needed most recently stay in memory.
    recent = np.argsort(-table["used"], kind="stable")[: pool.max_keys]
    stays = np.zeros(count, bool)
    stays[recent] = True
    for number, layout in enumerate(table["layout"].tolist()):
        own = [parts[name][number].tolist() for name in ("features", "labels")]
        numbers = [float(table[name][number]) for name in COUNTS]
        state = next(used[layout], None) if layout >= 0 else {}
        require(state is not None, f"states.{layout}", "a line for each key that has it")
        if layout < 0:
            require(not own[0] and not own[1], "keys.layout", "there for keys with rows")
            continue
        pool._engine.restore(number, *own, *numbers, state)
        if not stays[number]:
            pool._put_away(number)
    require(all(next(rest, None) is None for rest in used.values()), "states", "of these keys")


def _lines(states: Arrays, number: int, layout: list[Any]) -> list[Arrays]:
    """Return the states of one layout by the names of their arrays."""
    shapes = [(str(name), tuple(int(size) for size in shape)) for name, shape in layout]
    fits = all(0 <= size < 2**31 for _, shape in shapes for size in shape)
    sizes = [int(np.prod(shape, dtype=object)) for _, shape in shapes]
    lines = states[str(number)]
    fits = fits and isinstance(lines, np.ndarray) and lines.dtype == np.float64
    fits = fits and lines.ndim == 2 and lines.shape[1] == sum(sizes)
    require(fits, f"states.{number}", "lines of the size that their layout has")
    ends = np.cumsum(sizes)[:-1]
    return [
        {
            name: np.array(part).reshape(shape)
            for (name, shape), part in zip(shapes, np.split(line, ends), strict=True)
        }
        for line in lines
    ]


def part(pool: "Pool", index: int, of: int) -> "Pool":
    """Return some of the keys of a pool, as a pool."""
    with pool._lock:
        numbers = [i for key, i in pool._keys.index.items() if spread(key) % of == index]
        arrays, extra = _to_plain(pool, numbers)
    most = pool.max_keys and max(1, pool.max_keys // of)
    extra |= {"rows": 0, "max_keys": most, "renewal": RENEW, "rejected": Rejected().to_plain()}
    like = type(pool)(pool.model, folder=pool.folder, shards=1)
    return from_plain(like, arrays, extra)
