"""The loop: stretches of text, in order, each by one of some threads that share the two matrices without locks.

The rate falls in a straight line from stretch to stretch, and each draws from a state of its own, made of the seed and
its number. So a run with one thread gives the same result every time, also when it was interrupted.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

import numpy as np

from transduce.errors import SettingsError
from transduce.fasttext.encode import Text, spans
from transduce.fasttext.kernels.learning import LONGEST_LINE, labels, words
from transduce.fasttext.network import Network
from transduce.report import SILENT, Progress, Report
from transduce.settings.sections import VectorSettings
from transduce.signals import catch_signals

STRETCH = 20_000  # words
LOOK = 0.2  # seconds between looks at the threads
MERGED_EVERY = 32, 1000  # lines of labels: by losses that change all output rows, and by others
# Of the most frequent words each of a few threads has so many output rows of its own, by their number, merged after so
# many words, by its square: each adds what it has learned without the others, and of many that would be too much.
OWN_ROWS, MERGED_WORDS, FEW_THREADS = 2048, 8000, 4
SAVE_EVERY = 120.0  # seconds between checkpoints
BITS = 0xFFFFFFFFFFFFFFFF


def threads_of(s: VectorSettings) -> int:
    return s.threads or os.cpu_count() or 1


class Work:
    """The text in stretches, and what is done with one of them."""

    def __init__(self, network: Network, text: Text) -> None:
        s = network.settings
        self.network, self.text = network, text
        self.stretches = list(spans(text.starts, STRETCH))
        self.total = s.epochs * len(self.stretches)
        self.keep = network.dictionary.kept_share(s.subsample)
        counts = network.dictionary.label_counts
        rare = counts.sum() / (len(counts) * counts) if s.balance and len(counts) else np.ones(len(counts))
        self.weights = rare.astype(np.float32)
        dense = s.loss in ("softmax", "ova")  # a line then writes into all rows
        threads = threads_of(s)
        self.out, self.merged_every = network.out, 0 if threads == 1 else MERGED_EVERY[0 if dense else 1]
        if s.objective != "labels":
            self.merged_every = MERGED_WORDS // threads**2
            line = min(LONGEST_LINE, text.starts[-1] / max(1, len(text.starts) - 1))  # words; merges lie between lines
            has_own = 1 < threads <= FEW_THREADS and line <= self.merged_every and s.loss == "ns"
            has_own = has_own and len(network.U) > OWN_ROWS  # in a smaller vocabulary all words are frequent
            self.out = network.out._replace(own=network.U[: OWN_ROWS // threads if has_own else 0])

    def do(self, number: int) -> tuple[float, int, int]:
        """The stretch of this number: (loss in all, of how many predictions, words read)."""
        n, s = self.network, self.network.settings
        first, last = self.stretches[number % len(self.stretches)]
        rates = (s.rate * (1 - number / self.total), s.rate * (1 - (number + 1) / self.total))
        state = np.array([_mixed(s.seed, number)], np.uint64)
        where = (tuple(self.text), first, last, n.inputs, self.out)
        if s.objective == "labels":
            how = (s.word_ngrams, n.bucket_rows, self.weights, rates, self.merged_every)
            loss, predictions = labels(*where, *how, state)
        else:
            skips = s.objective == "skipgram"
            loss, predictions = words(*where, skips, s.window, self.keep, rates, self.merged_every, state)
        return loss, predictions, int(self.text.starts[last] - self.text.starts[first])


def _mixed(seed: int, number: int) -> int:
    """A state to draw from, unlike that of the number before (splitmix64)."""
    value = (seed * 0x9E3779B97F4A7C15 + (number + 1) * 0xBF58476D1CE4E5B9) & BITS
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = ((value ^ (value >> shift)) * factor) & BITS
    return value ^ (value >> 31)


class Crew:
    """Threads that take one stretch after the other, until there is none, or they are to pause."""

    def __init__(self, work: Work, begin: int, threads: int) -> None:
        self.work, self.next, self.threads = work, begin, threads
        self.words, self.loss, self.predictions = 0, 0.0, 0
        self.pause = False
        self.fault: BaseException | None = None
        self.lock = threading.Lock()

    def run(self, look: Callable[[], bool]) -> None:
        """Until all is done, or `look`, which is asked every moment, wants a pause. Afterwards all stretches before
        `next` are done and no other is begun."""
        crew = [threading.Thread(target=self._toil, daemon=True) for _ in range(self.threads)]
        for thread in crew:
            thread.start()
        while any(thread.is_alive() for thread in crew):
            crew[0].join(LOOK)
            self.pause = look() or self.pause
        if self.fault is not None:
            raise self.fault

    def _toil(self) -> None:
        try:
            while not self.pause:
                with self.lock:
                    number = self.next
                    if number >= self.work.total:
                        return
                    self.next += 1
                loss, predictions, read = self.work.do(number)
                with self.lock:
                    self.words, self.loss = self.words + read, self.loss + loss
                    self.predictions += predictions
        except BaseException as fault:  # is raised where somebody waits
            self.fault, self.pause = fault, True


def train(
    network: Network,
    text: Text,
    report: Report = SILENT,
    begin: int = 0,
    save: Callable[[int], None] | None = None,
    until: float = math.inf,
) -> tuple[int, int]:
    """Train from a stretch on. Gives the one to go on with, which is behind the last unless a signal asked for the end
    or the clock has passed `until`, and that signal. `save` is called with it every other minute, and when a signal
    comes."""
    work = Work(network, text)
    crew = Crew(work, begin, threads_of(network.settings))
    saved = time.monotonic()
    with catch_signals() as signals, report.progress("train", total=work.total) as bar:
        show = _shower(crew, bar)

        def look() -> bool:
            show()
            is_due = save is not None and time.monotonic() - saved > SAVE_EVERY
            return bool(signals.stop or signals.save) or is_due or time.monotonic() > until

        while crew.next < work.total and not signals.stop and time.monotonic() < until:
            crew.pause, signals.save = False, False
            crew.run(look)
            _refuse_no_number(crew.loss, network)
            if save is not None and crew.next < work.total:
                save(crew.next)
                saved = time.monotonic()
    return crew.next, signals.stop if crew.next < work.total else 0  # after the last stretch there is nothing to stop


def _shower(crew: Crew, bar: Progress) -> Callable[[], None]:
    """What is shown of the work: the loss since it was last shown, the speed since the beginning."""
    work, started, seen = crew.work, time.monotonic(), [0.0, 0]
    epochs = work.network.settings.epochs

    def show() -> None:
        loss, predictions = crew.loss - seen[0], crew.predictions - seen[1]
        if predictions:
            seen[:] = crew.loss, crew.predictions
            epoch = min(epochs, crew.next * epochs // work.total + 1)
            speed = crew.words / max(1e-9, time.monotonic() - started)
            facts = {"epoch": str(epoch), "loss": f"{loss / predictions:.3f}", "speed": f"{speed:,.0f} words/s"}
            bar.update(crew.next, **facts)

    return show


def _refuse_no_number(loss: float, network: Network) -> None:
    if not (math.isfinite(loss) and np.isfinite(network.U).all()):
        s = network.settings
        raise SettingsError(f"the loss is no number any more: vectors.rate={s.rate:g} is too high; try {s.rate / 10:g}")
