"""Typed settings of an experiment, and its methods: a kind, such as OAGD, and its options.

The annotations of settings are their checks (`obax._support.checks`).

@dataclasses.dataclass(frozen=True)
class Config(Settings):
    rounds: Count = 400
    step_sizes: tuple[Positive, ...] = (0.1, 0.3)
    source: Annotated[str, one_of("real", "synthetic")] = "real"
"""

import dataclasses
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from ..._support.checks import check_fields, one_of as one_of
from ..._support.messages import UserError, nearest
from .results import Value

C = TypeVar("C")
M = TypeVar("M", bound="Method")
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base class of the configuration of an experiment."""

    def __post_init__(self) -> None:
        check_fields(self)


def with_overrides(config: C, assignments: Iterable[str]) -> C:
    """Return the configuration with `key=value` assignments applied, each checked by its type.

    The items of a tuple are separated by commas: `windows=1,100,T`.
    """
    hints = typing.get_type_hints(type(config))
    changes: dict[str, object] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise UserError(f"--set takes key=value, but got {assignment!r}.")
        if key not in hints:
            known = ", ".join(sorted(hints))
            raise UserError(f"unknown key {key!r}.{nearest(key, hints)} Known keys: {known}.")
        changes[key] = _parse(text.strip(), hints[key], key)
    return with_changes(config, changes)


def with_changes(config: C, changes: dict[str, object]) -> C:
    """Return the configuration with other values. Raise a `UserError` if one is not accepted."""
    try:
        return dataclasses.replace(config, **changes)  # type: ignore[type-var]
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from error


def _parse(text: str, hint: Any, key: str) -> object:
    # A tuple that may be empty is annotated as `tuple[item, ...] | tuple[()]`.
    kind = typing.get_args(hint)[0] if isinstance(hint, types.UnionType) else hint
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_parse(part.strip(), item, key) for part in text.split(",") if part.strip())
    try:
        return TRUTHS[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        names = {int: "an integer", float: "a number", bool: "true or false"}
        raise UserError(f"{key} must be {names[kind]}, but got {text!r}.") from None


def as_dict(config: object) -> dict[str, object]:
    """Return the configuration as plain values for JSON, with tuples as lists."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(config).items()  # type: ignore[call-overload]
    }


def from_dict(config_class: type[C], values: dict[str, object]) -> C:
    """Return the configuration that `as_dict` wrote."""
    return config_class(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )


def option(
    label: str | Mapping[Value, str],
    written: str | Mapping[str, Value] | None = None,
    *,
    usual: Value = None,
    kinds: tuple[str, ...] = (),
) -> Any:
    """Declare an option of a method. It is `None` for methods that do not have it.

    - `label`: what the method's label says about the value: a form such as `"w = {}"`, left out for
      the `usual` value; or words by value.
    - `written`: how a configuration writes the option: the letters before a number, such as `"w"`
      for `w10`; or values by word. Without it `Method.parse` does not read the option.
    - `kinds`: the kinds of method that `Method.parse` reads the option for; all if it is empty.
    """
    about = {"label": label, "written": written, "usual": usual, "kinds": kinds}
    return dataclasses.field(default=None, metadata=about)


@dataclasses.dataclass(frozen=True)
class Method:
    """Base class of the methods of an experiment, which declares their options as fields.

    `PROTOTYPES` are the methods without options by the word that begins their names, and `EXAMPLES`
    are names for error messages.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Ours(Method):
    ...     w: int | None = option("w = {}", "w")
    ...     decay: float | None = option("δ = {:g}", "u", usual=0.9)
    ...     curvature: str | None = option({"current": "one solve"}, {"current": "current"})
    >>> Ours.PROTOTYPES = {"oagd": Ours("OAGD", 1, 0.9, "own"), "ogd": Ours("OGD")}
    >>> Ours.parse("oagd-w10").label()
    'OAGD, w = 10'
    >>> Ours.parse("oagd-w10-u0.5-current").label()
    'OAGD, w = 10, δ = 0.5, one solve'
    >>> Ours.parse("oagd-w10").full_label()
    'OAGD, w = 10, decay = 0.9, curvature = own'
    >>> Ours.parse("ogd").columns()
    {'method': 'OGD', 'kind': 'OGD', 'w': None, 'decay': None, 'curvature': None}
    """

    PROTOTYPES: ClassVar[Mapping[str, Any]] = {}
    EXAMPLES: ClassVar[str] = ""

    kind: str

    @classmethod
    def parse(cls: type[M], text: str) -> M:
        """Return the method that a configuration names, such as `oagd-w10-u0.5`."""
        first, *words = text.strip().lower().split("-")
        method = cls.PROTOTYPES.get(first)
        options = [cls._option_of(method.kind, word) if method else None for word in words]
        if method is None or None in options:
            raise ValueError(f"methods must be written like {cls.EXAMPLES}, but got {text!r}.")
        try:
            return dataclasses.replace(method, **dict(filter(None, options))).checked()
        except ValueError as error:
            raise ValueError(f"methods must be possible, but {text!r}: {error}") from None

    @classmethod
    def _option_of(cls, kind: str, word: str) -> tuple[str, Value] | None:
        """Return the name and value of the option that a word stands for, or `None`."""
        types_by_name = cls.column_types()
        for field in dataclasses.fields(cls)[1:]:
            written, kinds = field.metadata["written"], field.metadata["kinds"]
            if written is None or (kinds and kind not in kinds):
                continue
            if not isinstance(written, str):
                if word in written:
                    return field.name, written[word]
                continue
            number_type = types_by_name[field.name]
            digits = r"\d+" if number_type is int else r"\d+(\.\d+)?"
            if (match := re.fullmatch(f"{written}({digits})", word)) and float(match[1]) > 0:
                return field.name, number_type(match[1])
        return None

    def checked(self: M) -> M:
        """Return the method. Raise a `ValueError` if its options do not fit together."""
        return self

    @classmethod
    def column_types(cls) -> dict[str, type]:
        """Return the columns of a table that identify a method, with their types."""
        hints, options = typing.get_type_hints(cls), dataclasses.fields(cls)[1:]
        return {"kind": str} | {o.name: typing.get_args(hints[o.name])[0] for o in options}

    def label(self) -> str:
        """Return a short name for people: the kind and every option that is not as usual."""
        words = [self.kind]
        for field in dataclasses.fields(self)[1:]:
            value, label = getattr(self, field.name), field.metadata["label"]
            if not isinstance(label, str):
                words += [label[value]] if value in label else []
            elif value not in (None, field.metadata["usual"]):
                words.append(label.format(value))
        return ", ".join(words)

    def full_label(self) -> str:
        """Return the kind with the name and value of every option."""
        given = [f"{name} = {value}" for name, value in self.options().items() if value is not None]
        return ", ".join([self.kind, *given])

    def options(self) -> dict[str, Value]:
        """Return the options by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)[1:]}

    def columns(self) -> dict[str, Value]:
        """Return the columns of the table that identify the method."""
        return {"method": self.label(), "kind": self.kind} | self.options()


def check_replay(
    w: int | None, capacity: int | None, recency: int | None, balanced: bool | None = None
) -> None:
    """Raise a `ValueError` if a replay window is impossible.

    `obax.Replay` and `obax.Window` would say the same, but cannot be loaded here without JAX.
    """
    if capacity is None:
        if recency is not None or balanced:
            raise ValueError("recent and balanced are options of replay, which is missing.")
        return
    if w is None or w < 2 or capacity < w:
        raise ValueError(f"replay must keep at least w >= 2 rounds, but w = {w} and {capacity}.")
    if recency is not None and recency < capacity:
        raise ValueError(f"recent must be at least the {capacity} rounds kept, but is {recency}.")
