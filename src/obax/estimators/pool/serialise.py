"""A pool as named arrays and plain values, for checkpoints, and back."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import serialise as values
from ..inputs.columns import Columns
from ..rejected import Rejected
from ..serialise import Arrays, require, tagged, unique, untagged, whole

if TYPE_CHECKING:
    from .pool import Pool

COUNTS = ("given", "rejected", "used")


def to_plain(pool: "Pool", numbers: list[int] | None = None) -> tuple[Arrays, dict[str, Any]]:
    """Return some keys, by default all, whether their models are in memory or not. Models whose
    arrays have the same shapes lie in the same arrays, one after another."""
    with pool.lock:
        reader, models, names = pool.reader, pool.models, list(pool)
        numbers = list(range(len(pool))) if numbers is None else numbers
        infos = [models.info(number) for number in numbers]
        layouts: dict[Any, tuple[int, list[Arrays]]] = {}
        layout = np.full(len(numbers), -1, np.int64)
        for i, number in enumerate(numbers):
            state = models.state(number)
            if state is None:
                continue
            shapes = tuple((name, array.shape) for name, array in state.items())
            layout[i], states = layouts.setdefault(shapes, (len(layouts), []))
            states.append(state)
        arrays = {"keys.layout": layout}
        for name in COUNTS:
            arrays[f"keys.{name}"] = _integers([info[name] for info in infos])
        for name in ("features", "labels"):
            arrays[f"keys.{name}"] = _integers([one for info in infos for one in info[name]])
            arrays[f"keys.{name}.count"] = _integers([len(info[name]) for info in infos])
        for i, states in layouts.values():
            for name in states[0]:
                arrays[f"states.{i}.{name}"] = np.array([state[name] for state in states])
        params = pool.model.get_params(deep=False)
        return arrays, {
            "version": values.VERSION,
            "model": type(pool.model).__name__,
            "params": {name: values.plain_option(value) for name, value in params.items()},
            "key": pool.key,
            "start": pool.start,
            "max_keys": pool.max_keys,
            "rows": pool.rows,
            "starts": pool.starts,
            "renewal": pool.renewal,
            "keys": [tagged(names[number]) for number in numbers],
            "names": [tagged(name) for name in reader.names],
            "classes": [tagged(label) for label in reader.labels],
            "ignored": reader.ignored,
            "columns": reader.columns.to_plain(),
            "rejected": pool.rejected_.to_plain(),
        }


def _integers(values: Any) -> np.ndarray:
    return np.array(values, np.int64).reshape(-1)


def from_plain(like: "Pool", arrays: Arrays, extra: dict[str, Any]) -> "Pool":
    """Return the pool again, with the folder of `like`, and with as many shards."""
    values.check_version(extra)
    kind: Any = type(like.model)
    if extra.get("model") != kind.__name__:
        raise ValueError(
            f"the checkpoint holds a pool of {extra.get('model')}, but like is one of "
            f"{kind.__name__}."
        )
    with values.described_by("Pool"):
        pool = type(like)(
            kind(
                **{name: values.untagged_option(value) for name, value in extra["params"].items()}
            ),
            extra["key"],
            start=extra["start"],
            max_keys=extra["max_keys"],
            folder=like.folder,
            shards=like.shards,
        )
        reader = pool.reader
        reader.names, reader.labels, reader.keys = (
            {name: i for i, name in enumerate(unique(part, [untagged(one) for one in extra[part]]))}
            for part in ("names", "classes", "keys")
        )
        reader.ignored = whole("ignored values", extra["ignored"])
        reader.columns = Columns.from_plain(reader.options.max_categories, extra["columns"])
        pool.rows, pool.renewal = whole("rows", extra["rows"]), whole("renewal", extra["renewal"])
        pool.begin_at(extra["starts"])
        pool.models.engine.add(len(reader.keys))
        _restore(pool, values.part_of(arrays, "keys."), values.part_of(arrays, "states."))
        pool.rejected_ = Rejected.from_plain(extra["rejected"])
        return pool


def _restore(pool: "Pool", table: Arrays, states: Arrays) -> None:
    """Put the models of all keys in their places; the engine checks their numbers."""
    count, own = len(pool), {}
    for name, array in table.items():
        fits = isinstance(array, np.ndarray) and array.dtype == np.int64 and array.ndim == 1
        flat = name in ("features", "labels")
        require(fits and (flat or len(array) == count), f"keys.{name}", f"int64[{count}]")
        require(np.all(array >= (-1 if name == "layout" else 0)), f"keys.{name}", "counts")
    for name, known in (("features", pool.reader.names), ("labels", pool.reader.labels)):
        counts = table[f"{name}.count"]
        complete = counts.sum() == len(table[name]) and np.all(table[name] < len(known))
        require(complete, f"keys.{name}", "numbers of the pool's")
        own[name] = np.split(table[name], np.cumsum(counts)[:-1]) if count else []
    # Those that were needed most recently stay in memory.
    away = set(np.argsort(-table["used"], kind="stable")[pool.max_keys or count :].tolist())
    for i in np.unique(table["layout"]).tolist():
        numbers = np.flatnonzero(table["layout"] == i).tolist()
        if i < 0:
            none = not any(len(own[name][number]) for name in own for number in numbers)
            require(none, "keys.layout", "there for keys with rows")
            continue
        lines = values.part_of(states, f"{i}.")
        fits = all(np.shape(array)[:1] == (len(numbers),) for array in lines.values())
        require(lines and fits, f"states.{i}", "a line for each key that has it")
        for line, number in enumerate(numbers):
            parts = [own[name][number].tolist() for name in ("features", "labels")]
            rows = [float(table[name][number]) for name in COUNTS]
            state = {name: np.array(array[line]) for name, array in lines.items()}
            pool.models.engine.restore(number, *parts, *rows, state)
            if number in away:
                pool.models.put_away(number)
    layouts = {name.partition(".")[0] for name in states}
    require(layouts <= set(map(str, table["layout"].tolist())), "states", "of these keys")
