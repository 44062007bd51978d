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
KINDS = {
    b"\x1f\x8b": "is compressed (gzip); stream what `zcat FILE` prints",
    b"BZh": "is compressed (bzip2); stream what `bzcat FILE` prints",
    b"\xfd7zXZ": "is compressed (xz); stream what `xzcat FILE` prints",
    b"\x28\xb5\x2f\xfd": "is compressed (zstd); stream what `zstdcat FILE` prints",
    b"PK\x03\x04": "is a zip file or a spreadsheet; unpack it, or save it as CSV",
    b"PAR1": "is a Parquet file; write it as CSV or JSON lines",
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
    if kind == "csv" and first.startswith((b"{", b"[{")):
        raise StreamError("the input looks like JSON, not CSV; pass --format jsonl.")


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
                f"{' ...' if len(header) > MOST_SHOWN else ''}."
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
