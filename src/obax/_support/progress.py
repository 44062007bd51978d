"""A progress bar that costs nothing when it is off and little when it is on."""

import time
from typing import SupportsFloat

REFRESH_SECONDS = 0.1


class Progress:
    """Rounds played, time gone and time left, and the loss of the last round."""

    def __init__(self, total: int | None, *, enabled: bool):
        self.enabled = enabled
        self._pending = 0
        self._last = 0.0
        if not enabled:
            return
        # rich is slow to import and only needed here.
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("rounds"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("loss {task.fields[loss]}"),
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=total, loss="-")

    def advance(self, rounds: int, loss: SupportsFloat) -> None:
        """Count rounds; draws at most ten times a second, so a fast stream is not slowed."""
        self._pending += rounds
        if (now := time.monotonic()) - self._last >= REFRESH_SECONDS:
            self._flush(loss)
            self._last = now

    def _flush(self, loss: SupportsFloat | None) -> None:
        if loss is not None:
            self._bar.update(self._task, loss=f"{float(loss):.4g}")
        self._bar.update(self._task, advance=self._pending)
        self._pending = 0

    def close(self) -> None:
        """Draw what is left and stop."""
        if self.enabled:
            self._flush(None)
            self._bar.stop()
            self.enabled = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
