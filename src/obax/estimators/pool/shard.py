"""Some of the keys of a pool with their models, used by one thread at a time.

Classes have a number of the pool's and, for each key, one of its own, in the order in which that
key met them; and a model has as many outputs as its key needs. So it is the same as a model that
learns the rows of its key alone.
"""

import numpy as np

from ..kernel import ACCEPTED, LOSS, OUTCOME, SAID
from .models import Models
from .rows import Lines, Said


class Shard(Models):
    """`Models`, and how rows are played by them."""

    def play(self, lines: Lines, starts: dict[str, float], trace: bool, count: bool) -> Said:
        """Test on rows and train on them, those of each key in their order; `count` them as given
        to their keys."""
        said = Said.empty(self.options, len(lines), lines.features, lines.classes, trace)
        with self._lock:
            self.fit(lines.features, lines.classes)
            # No more keys at a time than there may be models in memory.
            step = min(self.limit or len(lines), len(lines))
            for begin in range(0, len(lines), step):
                span = slice(begin, begin + step)
                self._play(lines[span], said[span], starts)
            if count:
                np.add.at(self.table["given"], lines.keys, 1)
                refused = lines.keys[said.lost | lines.rejected]
                np.add.at(self.table["rejected"], refused, 1)
        return said

    def _play(self, lines: Lines, said: Said, starts: dict[str, float]) -> None:
        self._bring(np.unique(lines.keys), starts)
        before, known = self._meet(lines)
        size = np.maximum(2, known) if self.options.classify else known
        own = lines.targets
        if self.options.classify:
            code = lines.targets.astype(np.int64)
            own = np.where(lines.labelled, self.codes[lines.keys, code], 0)
        # A key that meets a third class goes on in a larger stack, so that all rows of the smaller
        # ones come first; those of a key stay in their order.
        for classes in np.unique(size).tolist():
            at = np.flatnonzero(size == classes)
            new = at[(known[at] > before[at]) & (known[at] > 2)]
            # That the class exists is news of the very row that is to be predicted.
            early = self._run(classes - 1, lines, new, own, 0.0) if len(new) else None
            self._move(lines.keys[new], classes)
            out = self._run(classes, lines, at, own, lines.weights[at], said.x is not None)
            said.loss[at] = out[:, LOSS]
            said.lost[at] = (lines.weights[at] > 0) & (out[:, OUTCOME] != ACCEPTED)
            self._say(said, lines.keys, at, out, before)
            if early is not None:
                self._say(said, lines.keys, new, early, before)
            if said.x is not None:
                plan = self._stacks[classes].plan
                trail = out[:, SAID + max(1, plan.slots) :]
                said.trace(at, trail, plan, self.order[lines.keys[at]], known[at])
        self._note(lines.keys)

    def _run(
        self,
        classes: int,
        lines: Lines,
        at: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | float,
        trace: bool = False,
    ) -> np.ndarray:
        stack = self._stacks[classes]
        rows = np.full((len(at), self.features + 2), np.nan)
        rows[:, : lines.features] = lines.values[at]
        rows[:, -2], rows[:, -1] = targets[at], weights
        out = np.empty((len(at), SAID + max(1, stack.plan.slots) + trace * stack.plan.trail))
        stack.play(self.table["slot"][lines.keys[at]], rows, out)
        return out

    def _meet(self, lines: Lines) -> tuple[np.ndarray, np.ndarray]:
        """How many classes its key knows before each row and with it; new ones are noted."""
        old = self.table["known"][lines.keys]
        if not self.options.classify:
            return old, old
        code = lines.targets.astype(np.int64)
        unknown = np.flatnonzero(lines.labelled & (self.codes[lines.keys, code] < 0))
        if not len(unknown):
            return old, old
        pairs = lines.keys[unknown] * self.codes.shape[1] + code[unknown]
        first = unknown[np.sort(np.unique(pairs, return_index=True)[1])]
        new, known = np.zeros(len(lines), np.int64), self.table["known"]
        for i in first.tolist():
            key, own = lines.keys[i], known[lines.keys[i]]
            self.codes[key, code[i]], self.order[key, own] = own, code[i]
            known[key] += 1
            new[i] = 1
        by_key = np.argsort(lines.keys, kind="stable")
        ordered, steps = lines.keys[by_key], new[by_key]
        sums = np.cumsum(steps)
        heads = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        sizes = np.diff(np.append(heads, len(ordered)))
        with_row = np.empty_like(old)
        with_row[by_key] = sums - np.repeat((sums - steps)[heads], sizes)
        return old + with_row - new, old + with_row

    def _say(
        self, said: Said, keys: np.ndarray, at: np.ndarray, out: np.ndarray, known: np.ndarray
    ) -> None:
        """What was said of rows, in the pool's order of classes. A model that knows one class says
        it of every row.

        Between reading these rows and this, another thread may have brought classes: they have no
        column, and the chances are those of the others."""
        if not self.options.classify:
            said.predictions[at] = out[:, SAID]
            return
        theirs, width = known[at], said.predictions.shape[1]
        for own in range(int(theirs.max(initial=0))):
            who = np.flatnonzero((theirs > own) & (self.order[keys[at], own] < width))
            columns = self.order[keys[at[who]], own]
            told = np.where(theirs[who] == 1, 1.0, out[who, SAID + own])
            said.predictions[at[who], columns] = told
        if np.any(theirs > width):
            total = np.sum(said.predictions[at], axis=1, keepdims=True)
            said.predictions[at] /= np.where(total > 0, total, 1.0)
