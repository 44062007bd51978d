"""What a method is in an experiment: a kind and its settings, as values."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from .table import Value


def option(words: str | Mapping[Value, str], usual: Value = None) -> Any:
    """A setting of a method, `None` for methods that do not have it.

    `words` are what the label says of a value: a form such as `"w = {}"`, unless the value is the
    `usual` one; or the words for each value that is worth some.
    """
    return dataclasses.field(default=None, metadata={"words": words, "usual": usual})


@dataclasses.dataclass(frozen=True)
class Method:
    """A kind, such as OAGD; an experiment derives a class with its settings as fields.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Ours(Method):
    ...     w: int | None = option("w = {}")
    ...     decay: float | None = option("δ = {:g}", usual=0.9)
    ...     curvature: str | None = option({"current": "one solve"})
    >>> Ours("OAGD", 10, 0.9, "own").label()
    'OAGD, w = 10'
    >>> Ours("OAGD", 10, 0.5, "current").label()
    'OAGD, w = 10, δ = 0.5, one solve'
    >>> Ours("OAGD", 10, 0.9, "own").full()
    'OAGD, w = 10, decay = 0.9, curvature = own'
    >>> Ours("OGD").columns()
    {'method': 'OGD', 'kind': 'OGD', 'w': None, 'decay': None, 'curvature': None}
    """

    kind: str

    def label(self) -> str:
        """Its short name for people: the kind, and what is not as usual."""
        said = [self.kind]
        for field in dataclasses.fields(self)[1:]:
            value, words = getattr(self, field.name), field.metadata["words"]
            if not isinstance(words, str):
                said += [words[value]] if value in words else []
            elif value is not None and value != field.metadata["usual"]:
                said.append(words.format(value))
        return ", ".join(said)

    def full(self) -> str:
        """All of its settings, for those who point at the short name."""
        values = self.settings().items()
        said = [f"{name} = {value}" for name, value in values if value is not None]
        return ", ".join([self.kind, *said])

    def settings(self) -> dict[str, Value]:
        """What it is besides its kind."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)[1:]}

    def columns(self) -> dict[str, Value]:
        """Its columns of the table."""
        return {"method": self.label(), "kind": self.kind} | self.settings()


def check_replay(
    w: int | None, capacity: int | None, recency: int | None, balanced: bool | None = None
) -> None:
    """Raise a `ValueError` that says what is wrong with a replay window, before anything runs: what
    `obax.Replay` and `obax.Window` would say, which cannot be loaded here without JAX."""
    if capacity is None:
        if recency is not None or balanced:
            raise ValueError("recent and balanced are ways of replay, which is not there.")
        return
    if w is None or w < 2 or capacity < w:
        raise ValueError(f"replay must keep at least w >= 2 rounds, but w = {w} and {capacity}.")
    if recency is not None and recency < capacity:
        raise ValueError(f"a mean age below the {capacity} rounds kept, {recency}, cannot be.")
