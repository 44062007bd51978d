"""Save and restore states: whole or not there, checked when read, no pickle.

A checkpoint is one file, a zip without compression:

    manifest.json     format, version, what it is, one entry per leaf: path, dtype, shape, SHA-256
    manifest.sha256   the checksum of manifest.json
    leaves/0, 1 ...   the bytes of each array, little-endian, C order

It is written aside, flushed to disk and renamed, so a crash at any point leaves the file that was
there or the new one. Structure comes from `like`: nothing in the file can name code to run.
"""

from .file import (
    from_bytes as from_bytes,
    load as load,
    read_meta as read_meta,
    save as save,
    to_bytes as to_bytes,
)
from .folder import (
    SUFFIX as SUFFIX,
    Folder as Folder,
    check_seekable as check_seekable,
    seek as seek,
)
from .input import (
    Digests as Digests,
    Input as Input,
    digest as digest,
    source_digests as source_digests,
    stacked_digests as stacked_digests,
)
from .manifest import (
    MIGRATIONS as MIGRATIONS,
    CheckpointError as CheckpointError,
    DamagedError as DamagedError,
    Meta as Meta,
)
