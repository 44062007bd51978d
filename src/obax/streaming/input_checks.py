"""Checks of the first bytes and the header of an input, with messages that say how to fix it."""

import dataclasses
from collections.abc import Iterable, Mapping

from .._support.messages import nearest

MAX_NAMES_SHOWN = 20
BYTE_ORDER_MARK = "\ufeff"
"""What some programs write before the name of the first column."""
ENDS_SIZE = 1024
"""How many bytes of either end identify an input or output."""
PAGE_TAGS = (b"<!doctype", b"<html", b"<?xml")
OTHER_SEPARATORS = ";\t|"
KNOWN_FORMATS = {
    b"\x1f\x8b": "is compressed (gzip); stream what `zcat FILE` prints",
    b"BZh": "is compressed (bzip2); stream what `bzcat FILE` prints",
    b"\xfd7zXZ": "is compressed (xz); stream what `xzcat FILE` prints",
    b"\x28\xb5\x2f\xfd": "is compressed (zstd); stream what `zstdcat FILE` prints",
    b"PK\x03\x04": "is a zip file or a spreadsheet; unpack it, or save it as CSV",
    b"PAR1": "is a Parquet file; write it as CSV or JSON lines",
    b"\xff\xfe\x00\x00": "is UTF-32; convert it with `iconv -f UTF-32 -t UTF-8`",
    b"\xff\xfe": "is UTF-16; convert it with `iconv -f UTF-16 -t UTF-8`",
    b"\xfe\xff": "is UTF-16; convert it with `iconv -f UTF-16 -t UTF-8`",
}
"""First bytes of files that are not rows of text, and what to do with such a file."""


class StreamError(Exception):
    """Invalid arguments, input or output of a stream."""


@dataclasses.dataclass
class Ends:
    """The first and last bytes of some data, which identify it."""

    head: bytes = b""
    tail: bytes = b""

    def add(self, data: bytes) -> None:
        """Append data that follows."""
        self.head += data[: ENDS_SIZE - len(self.head)]
        self.tail = (self.tail + data)[-ENDS_SIZE:]

    def to_dict(self) -> dict[str, str]:
        """Return plain values for a checkpoint."""
        return {"head": self.head.decode("latin-1"), "tail": self.tail.decode("latin-1")}

    @classmethod
    def from_dict(cls, values: Mapping[str, str]) -> "Ends":
        """Return the object that `to_dict` was called on."""
        return cls(values["head"].encode("latin-1"), values["tail"].encode("latin-1"))


def check_first_bytes(data: bytes, format: str) -> None:
    """Raise a `StreamError` if data cannot begin an input of this format."""
    for magic, description in KNOWN_FORMATS.items():
        if data.startswith(magic):
            raise StreamError(f"the input {description}.")
    first = next((line.strip() for line in data.splitlines() if line.strip()), b"")
    first = first.removeprefix(BYTE_ORDER_MARK.encode())
    if b"\x00" in first:
        raise StreamError(
            "the input has zero bytes in its first line: it is not text, or it is UTF-16 without a "
            "byte-order mark, which `iconv -f UTF-16LE -t UTF-8` converts."
        )
    if first.lower().startswith(PAGE_TAGS):
        raise StreamError("the input looks like a page (HTML or XML), not like rows.")
    if format == "csv":
        _check_csv(data, first)
    elif first.startswith(b"["):
        raise StreamError(
            "the input is one array of JSON, but rows are objects, one on each line; stream what "
            "`jq -c '.[]' FILE` prints."
        )
    elif first == b"{":
        raise StreamError(
            "the input has objects of JSON over several lines, but a row is an object on one line; "
            "stream what `jq -c . FILE` prints."
        )


def _check_csv(data: bytes, first: bytes) -> None:
    if first.startswith((b"{", b"[{")):
        raise StreamError("the input looks like JSON, not CSV; pass --format jsonl.")
    try:
        first.decode()
    except UnicodeDecodeError as error:
        raise StreamError(
            f"the header is not UTF-8 (byte {first[error.start]:#04x}): either it is text in "
            f"another encoding, as `iconv -f LATIN1 -t UTF-8` converts, or it is not text."
        ) from None
    if b"\r" in data.lstrip().partition(b"\n")[0].rstrip():
        raise StreamError(
            "lines must end with a line feed, but those of the input end with a carriage return "
            "alone; stream what `tr '\\r' '\\n' < FILE` prints."
        )


def check_header(header: list[str], named: Mapping[str, Iterable[str]]) -> None:
    """Raise a `StreamError` if a header has a name twice or lacks a column that an option names.

    `named` maps an option such as `--target` to the columns that it names.
    """
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise StreamError(
            f"the header has {', '.join(map(repr, repeated[:MAX_NAMES_SHOWN]))} more than once; "
            f"give every column a name of its own."
        )
    for option, names in named.items():
        missing = next((name for name in names if name not in header), None)
        if missing is None:
            continue
        shown = ", ".join(header[:MAX_NAMES_SHOWN])
        if all(map(_is_number, header)):
            raise StreamError(
                f"the first line must name the columns, but it holds numbers ({shown}); put a "
                f"header before it."
            )
        separator = [mark for mark in OTHER_SEPARATORS if len(header) == 1 and mark in header[0]]
        raise StreamError(
            f"{option} must be a column of the input, but its header has no {missing!r}."
            f"{nearest(missing, header)} It has: {shown}"
            f"{' ...' if len(header) > MAX_NAMES_SHOWN else ''}."
            + "".join(
                f" Columns must be separated by commas, not by {mark!r}." for mark in separator[:1]
            )
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
