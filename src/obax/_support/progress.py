"""A progress bar that costs nothing when it is off and little when it is on."""

import sys
import time
from typing import Any, Protocol, SupportsFloat

REFRESH_SECONDS = 0.1


class Bar(Protocol):
    """Something that shows how far one is."""

    def draw(self, done: int, loss: str) -> None:
        """So many rounds are done, and the loss of the last."""

    def stop(self) -> None:
        """There will be no more."""


class TerminalBar:
    """rich's."""

    def __init__(self, total: int | None):
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

    def draw(self, done: int, loss: str) -> None:
        """Draw."""
        self._bar.update(self._task, completed=done, loss=loss)

    def stop(self) -> None:
        """Leave the last picture standing."""
        self._bar.stop()


class NotebookBar:
    """The browser's own bar, in the output of a cell. rich would ask for ipywidgets, and warn in
    every refresh where they are not installed."""

    def __init__(self, total: int | None):
        self.total, self._begun = total, time.monotonic()
        self._handle = self._shown(None, self._html(0, "-"))

    def draw(self, done: int, loss: str) -> None:
        """Draw."""
        self._shown(self._handle, self._html(done, loss))

    def stop(self) -> None:
        """Leave the last picture standing."""

    def _html(self, done: int, loss: str) -> str:
        gone = time.monotonic() - self._begun
        left = ""
        if self.total and done:
            left = f", {gone * (self.total - done) / done:.0f} s left"
        of = f" of {self.total:,}" if self.total else ""
        value = f" value='{done}' max='{self.total}'" if self.total else ""
        return (
            f"<progress{value} style='width:16em'></progress> {done:,}{of} rounds, {gone:.0f} s"
            f"{left}, loss {loss}"
        )

    @staticmethod
    def _shown(handle: Any, html: str) -> Any:
        from IPython.display import HTML, display

        if handle is not None:
            handle.update(HTML(html))
            return handle
        return display(HTML(html), display_id=True)


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this, without loading IPython where none is."""
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


class Progress:
    """Rounds played, time gone and time left, and the loss of the last round."""

    def __init__(self, total: int | None, *, enabled: bool):
        self.enabled = enabled
        self._done = 0
        self._loss = "-"
        self._last = 0.0
        if enabled:
            self._bar: Bar = NotebookBar(total) if in_notebook() else TerminalBar(total)

    def advance(self, rounds: int, loss: SupportsFloat) -> None:
        """Count rounds; draws at most ten times a second, so a fast stream is not slowed."""
        self._done += rounds
        self._latest = loss
        if (now := time.monotonic()) - self._last >= REFRESH_SECONDS:
            self._flush()
            self._last = now

    def _flush(self) -> None:
        if self._done:
            self._loss = f"{float(self._latest):.4g}"
        self._bar.draw(self._done, self._loss)

    def close(self) -> None:
        """Draw what is left and stop."""
        if self.enabled:
            self._flush()
            self._bar.stop()
            self.enabled = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
