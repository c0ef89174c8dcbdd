"""Whether a model that was sent out does what the model does: on some sentences, and how fast and how large it is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from transduce.errors import ModelError
from transduce.report import Report, Table

if TYPE_CHECKING:
    import numpy as np

    from transduce.model import Model

FEW = 50  # sentences that a beam translates, and whose log-probabilities are compared: large models take seconds each
BEAM = 4  # where the model is searched without one
AGREE = 0.98  # of greedy translations, where nothing was rounded; ties and the last bits decide the rest
AGREE_WITH_BEAM = 0.9  # likewise; systems differ in when a beam is done
NEAR = 1e-3  # the largest difference of a log-probability, where nothing was rounded
ALIKE_ROUNDED = 0.8  # in chrF, with weights in fewer bits


class Copy(Protocol):
    """A model as another system has it, and uses it."""

    def translate(self, line: str, beam: int, most: int) -> str:
        """`most`: tokens that may be written, a forced end not counted."""

    def log_probabilities(self, source: list[int], target: list[int]) -> np.ndarray:
        """Those of each token of a target, and of its END."""


class Equal(NamedTuple):
    """How many translations are the same here and there."""

    same: int
    of: int

    def __str__(self) -> str:
        return f"{self.same / self.of:.1%}"

    def enough(self, least: float) -> bool:
        """One may differ, however few there are: two tokens can be as probable to the sixth digit."""
        return 0 < self.same >= min(self.of - 1, least * self.of)


class Agreement(NamedTuple):
    """How far a model's answers and its copy's agree. Weights in fewer bits change a word of a long sentence sooner
    than of a short one, and then the whole is no longer equal: so how alike they are is told too."""

    log_probabilities: float  # the largest difference
    greedy: Equal
    alike: float  # chrF of the greedy ones, from 0 to 1
    beam: Equal

    def check(self, name: Path, rounded: bool) -> None:
        """Raise, where it is not the same model; the numbers first, then what the search makes of them."""
        if rounded and not self.alike >= ALIKE_ROUNDED:
            raise ModelError(
                f"the translations by {name} and its copy have a chrF of {100 * self.alike:.0f} to each other; "
                f"at least {100 * ALIKE_ROUNDED:.0f} is needed"
            )
        if not rounded and not self.log_probabilities <= NEAR:
            raise ModelError(
                f"log-probabilities of {name} and its copy differ by up to {self.log_probabilities:.2g}; at most "
                f"{NEAR:g} is allowed"
            )
        for kind, equal, least in (("greedy", self.greedy, AGREE), ("beam", self.beam, AGREE_WITH_BEAM)):
            if not rounded and not equal.enough(least):
                raise ModelError(
                    f"only {equal} of the {kind} translations by {name} and its copy agree; at least {least:.0%} "
                    f"should (their log-probabilities differ by {self.log_probabilities:.1g} at most)"
                )


def compare(
    model: Model, folder: Path, lines: list[str], copy: Copy, rule: dict[str, Any], report: Report
) -> tuple[Table, Agreement]:
    """Both translate, one line after the other. `rule`: the search settings that the other system has too, as it has
    them."""
    import torch

    from transduce.evaluate import chrf_of_each

    threads, few, beam = torch.get_num_threads(), lines[:FEW], model.search.beam
    beam = beam if beam > 1 else BEAM
    greedy, wide = (_searching(model, beam=size, **rule) for size in (1, beam))
    most = {line: wide.lengths.limit(len(model.tokenizers.source.encode([line])[0])) for line in lines}
    theirs, seconds_there = _timed(lambda line: copy.translate(line, 1, most[line]), lines, "there", report)
    theirs_by_beam, _ = _timed(lambda line: copy.translate(line, beam, most[line]), few, f"there, beam {beam}", report)
    torch.set_num_threads(threads)  # CTranslate2 has the same OpenMP, which now thinks of one thread
    ours, seconds_here = _timed(lambda line: greedy.translate(line).text, lines, "here", report)
    ours_by_beam, _ = _timed(lambda line: wide.translate(line).text, few, f"here, beam {beam}", report)
    each = zip(theirs, ours, chrf_of_each(theirs, ours), strict=True)
    found = Agreement(
        _largest_difference(model, few, ours[:FEW], copy),
        _equal(theirs, ours),
        statistics.mean(100 if a == b else score for a, b, score in each) / 100,  # sacreBLEU's of nothing is 0
        _equal(theirs_by_beam, ours_by_beam),
    )
    torch.set_num_threads(threads)
    size = sum(path.stat().st_size for path in folder.iterdir())
    rows = [
        ["log-probabilities differ by at most", f"{found.log_probabilities:.1e}"],
        ["equal greedy translations", str(found.greedy)],
        ["chrF of both", f"{100 * found.alike:.1f}"],
        [f"equal translations with beam {beam}", str(found.beam)],
        ["size", f"{size / 1e6:.1f} MB"],
        ["sentences a second there, greedy", f"{len(lines) / seconds_there:,.0f}"],
        ["sentences a second here, greedy", f"{len(lines) / seconds_here:,.0f}"],
    ]
    below = [f"{len(lines):,} sentences, one after the other; by beam, and log-probabilities: {len(few)}"]
    told = [f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in rule.items()]
    below += [f"with a beam both search by {', '.join(told)}"]
    return Table(["", folder.name], rows, below=below), found


def _searching(model: Model, **rule: Any) -> Model:
    """The model with this search and nothing beside it, a sentence a line."""
    from transduce.settings.sections import SearchSettings

    s = model.search
    settings = replace(model.settings, search=SearchSettings(extra=s.extra, tokens=s.tokens, split=False))
    return type(model)(model.model, model.tokenizers, settings, model.device).with_search(**rule)


def _equal(some: list[str], others: list[str]) -> Equal:
    return Equal(sum(a == b for a, b in zip(some, others, strict=True)), len(some))


def _timed(translate: Callable[[str], str], lines: list[str], where: str, report: Report) -> tuple[list[str], float]:
    """Translations, and the seconds they took without what is made ready once."""
    translate(lines[0])
    begin = time.perf_counter()
    return [translate(line) for line in _told(lines, where, report)], time.perf_counter() - begin


def _told(lines: list[str], where: str, report: Report) -> Iterator[str]:
    """Sentence by sentence, with a bar: a large model takes seconds for each."""
    with report.progress(f"translate {where}", total=len(lines)) as bar:
        for done, line in enumerate(lines):
            bar.update(done)
            yield line


def _largest_difference(model: Model, lines: list[str], translations: list[str], copy: Copy) -> float:
    """Between log-probabilities of tokens: those of our translations, given the source and the tokens before."""
    import numpy as np

    from transduce.core.special import END
    from transduce.decoding.forced import forced_log_probabilities

    sources, targets = model.tokenizers.source.encode(lines), model.tokenizers.target.encode(translations)
    largest = [0.0]
    for source, target in zip(sources, targets, strict=True):
        target = target[: model.lengths.longest]
        log_p = forced_log_probabilities(model.model, [source], [target], "cpu")[0].numpy()
        ours = log_p[np.arange(len(target) + 1), [*target, END]]
        largest.append(float(np.abs(ours - copy.log_probabilities(source, target)).max()))
    return float(np.max(largest))  # which does not lose a NaN
