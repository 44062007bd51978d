"""What the first bytes of an input tell: what it is not, which columns it has, and whether it is
the input of before."""

import dataclasses
from collections.abc import Iterable, Mapping

from .._support.errors import nearest

MOST_SHOWN = 20
MARK = "\ufeff"
"""The byte-order mark that some programs write before the first column's name."""
KEPT = 1024
"""So many bytes from either end tell one input from another."""
PAGES = (b"<!doctype", b"<html", b"<?xml")
SEPARATORS = ";\t|"
KINDS = {
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


class StreamError(Exception):
    """Something in the call is to be mended."""


@dataclasses.dataclass
class Seen:
    """The first and the last bytes of what has been read."""

    head: bytes = b""
    tail: bytes = b""

    def add(self, data: bytes) -> None:
        """These were read too."""
        self.head += data[: KEPT - len(self.head)]
        self.tail = (self.tail + data)[-KEPT:]

    def plain(self) -> dict[str, str]:
        """For a checkpoint."""
        return {"head": self.head.decode("latin-1"), "tail": self.tail.decode("latin-1")}

    @classmethod
    def of(cls, plain: Mapping[str, str]) -> "Seen":
        """What `plain` gave."""
        return cls(plain["head"].encode("latin-1"), plain["tail"].encode("latin-1"))


def check_beginning(data: bytes, kind: str) -> None:
    """An error for an input that cannot be rows of this kind, in words that say what it is."""
    for magic, words in KINDS.items():
        if data.startswith(magic):
            raise StreamError(f"the input {words}.")
    first = next((line.strip() for line in data.splitlines() if line.strip()), b"")
    first = first.removeprefix(MARK.encode())
    if b"\x00" in first:
        raise StreamError(
            "the input has zero bytes in its first line: it is no text, or text in UTF-16 without "
            "a mark, which `iconv -f UTF-16LE -t UTF-8` converts."
        )
    if first.lower().startswith(PAGES):
        raise StreamError("the input looks like a page (HTML or XML), not rows.")
    if kind == "csv":
        _check_csv(data, first)
    if kind == "jsonl" and first.startswith(b"["):
        raise StreamError(
            "the input is one array of JSON, but rows are objects, one on each line; stream what "
            "`jq -c '.[]' FILE` prints."
        )
    if kind == "jsonl" and first == b"{":
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
            f"the header is not UTF-8 (byte {first[error.start]:#04x}): text in another encoding, "
            f"as `iconv -f LATIN1 -t UTF-8` converts, or no text."
        ) from None
    if b"\r" in data.lstrip().partition(b"\n")[0].rstrip():
        raise StreamError(
            "lines must end with a line feed, but those of the input end with a carriage return "
            "alone; stream what `tr '\\r' '\\n' < FILE` prints."
        )


def check_header(header: list[str], named: Mapping[str, Iterable[str]]) -> None:
    """An error for a header that is none, has a name twice, or lacks a column that was named."""
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise StreamError(
            f"the header has {', '.join(map(repr, twice[:MOST_SHOWN]))} more than once; give every "
            f"column a name of its own."
        )
    for option, names in named.items():
        for name in names:
            if name in header:
                continue
            if all(map(_is_number, header)):
                raise StreamError(
                    f"the first line must name the columns, but it holds numbers "
                    f"({', '.join(header[:MOST_SHOWN])}); put a header before it."
                )
            raise StreamError(
                f"{option} must be a column of the input, but its header has no {name!r}."
                f"{nearest(name, header)} It has: {', '.join(header[:MOST_SHOWN])}"
                f"{' ...' if len(header) > MOST_SHOWN else ''}.{_separated(header)}"
            )


def _separated(header: list[str]) -> str:
    """A hint where one column looks like several."""
    found = [mark for mark in SEPARATORS if len(header) == 1 and mark in header[0]]
    return f" Columns must be separated by commas, not by {found[0]!r}." if found else ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
