"""Several processes that compute together: what stops one of them, all of them are told.

A process that stops alone leaves the others in a sum that never comes, and at its exit JAX waits
for them: all stand still for minutes, without a word. So where one of them may stop alone (at its
part of the rounds, at the disk, in a callback), they tell each other before they go on.
"""

from types import TracebackType

import jax
import numpy as np
from jax.experimental import multihost_utils

WORDS = 400
"""As many bytes of what stopped a process are told. Every message has this size, so that processes
that are not at the same point talk past each other instead of waiting."""


class ProcessError(RuntimeError):
    """Another process of the same computation has stopped, or is not at the same point."""


class Together:
    """What may stop one process, for all of them: `with Together(several): ...`

    Whoever fails inside raises its own error, and all others a `ProcessError` that repeats it. All
    that wait for each other must come here, so nothing inside may wait for the others. Ctrl-C does
    not wait for anybody.
    """

    def __init__(self, several: bool):
        self.several = several

    def __enter__(self) -> "Together":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.several or not isinstance(error, Exception | None):
            return
        mine = _in_words(error)
        said = exchange(mine)
        stopped = [f"process {index} {words}" for index, words in enumerate(said) if words]
        # The end of the rounds is no error if it is the end for all.
        alone = isinstance(error, StopIteration) and {*said} != {mine}
        if stopped and (error is None or alone):
            found = "; ".join(stopped).rstrip(".")
            raise ProcessError(f"{found}. All processes stop here.") from None


def same(name: str, mine: object, several: bool) -> None:
    """Raise a `ValueError` in all processes if they do not have the same."""
    if not several:
        return
    said = exchange(str(mine))
    if len({*said}) > 1:
        found = ", ".join(f"process {index} has {words}" for index, words in enumerate(said))
        raise ValueError(f"{name} must be the same in all processes, but {found}.")


def exchange(words: str) -> list[str]:
    """What each process says, by their numbers; all of them must ask."""
    raw = words.encode()[:WORDS]
    padded = np.frombuffer(raw.ljust(WORDS, b"\0"), np.uint8)
    try:
        said = multihost_utils.process_allgather(padded)
    except jax.errors.JaxRuntimeError as error:
        raise ProcessError(
            f"a process of this computation is gone, or did not come in time ({error})."
        ) from error
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in said]


def _in_words(error: Exception | None) -> str:
    if error is None:
        return ""
    if isinstance(error, StopIteration):
        return "has no more rounds, while others have"
    return f"has stopped: {type(error).__name__}: {error}"
