"""Save and restore states, atomically and checked when they are read, without pickle.

`save` and `load` take any pytree of arrays; its structure comes from `like`. `format` describes the
file; it and checkpoints of streaming models do without JAX, which is loaded when a name needs it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .format import (
        MIGRATIONS as MIGRATIONS,
        SUFFIX as SUFFIX,
        CheckpointError as CheckpointError,
        DamagedError as DamagedError,
        Meta as Meta,
        ModelFolder as ModelFolder,
    )
    from .tree import (
        Digests as Digests,
        Folder as Folder,
        Input as Input,
        check_seekable as check_seekable,
        digest as digest,
        from_bytes as from_bytes,
        load as load,
        read_meta as read_meta,
        save as save,
        seek as seek,
        source_digests as source_digests,
        stacked_digests as stacked_digests,
        to_bytes as to_bytes,
    )
else:
    from .._support.names import lazy_names

    __all__, __getattr__, __dir__ = lazy_names(__name__)
