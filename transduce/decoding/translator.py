"""Text in, text out: a stream of lines becomes length batches, and translations come back in order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, overload

import torch

from transduce.data.layout import lay_out
from transduce.decoding.lengths import Lengths
from transduce.decoding.search import Hypothesis, beam, greedy
from transduce.errors import SettingsError
from transduce.models.seq2seq import Seq2Seq
from transduce.report import Progress
from transduce.settings.compose import compose
from transduce.settings.sections import Settings
from transduce.text.normalise import normalise
from transduce.text.special import BEGIN, END
from transduce.text.tokenizers import Tokenizers

CHUNK = 4096  # lines read ahead, sorted by length and translated before the next are read


@dataclass(frozen=True)
class Candidate:
    """One translation found for a line."""

    text: str
    score: float
    log_probability: float
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Translation:
    """What became of one line.

    status: `ok`; `empty`, nothing to translate; `truncated`, the source was longer than the model can read and its
    end was left out; `length`, the output reached its limit before it ended; `failed`, the model gave no number.
    """

    source: str
    text: str
    status: str
    candidates: tuple[Candidate, ...]

    @property
    def score(self) -> float:
        return self.candidates[0].score if self.candidates else 0.0


class TargetScore(NamedTuple):
    """How probable a given target is. status: `ok`; `truncated`, the source was cut; `too long`, no score (nan);
    `failed`, the model gave no number (nan)."""

    log_probability: float
    tokens: int  # END counted
    status: str


class Translator:
    """A model with its tokenizers, ready to be used."""

    def __init__(self, model: Seq2Seq, tokenizers: Tokenizers, settings: Settings, device: str = "cpu") -> None:
        self.model = model
        self.tokenizers = tokenizers
        self.settings = settings
        self.search = settings.search
        self.lengths = Lengths.of(settings)
        self.device = device

    def with_search(self, **changes: object) -> Self:
        """The same model, looked through differently."""
        given = {key: value for key, value in changes.items() if value is not None}
        settings = compose({"search": given}, base=self.settings)
        return type(self)(self.model, self.tokenizers, settings, self.device)

    @overload
    def translate(self, text: str, n_best: int = 1) -> Translation: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Iterable[str], n_best: int = 1) -> list[Translation]: ...
    def translate(self, text: str | Iterable[str], n_best: int = 1) -> Translation | list[Translation]:
        """The translation of a sentence, or of each in a list."""
        if isinstance(text, str):
            return next(self.stream([text], n_best))
        return list(self.stream(text, n_best))

    def stream(
        self, lines: Iterable[str], n_best: int = 1, chunk: int = CHUNK, progress: Progress | None = None
    ) -> Iterator[Translation]:
        """One translation for each line, in order, in memory that does not grow with their number."""
        if not 1 <= n_best <= self.search.beam:
            beam = self.search.beam
            raise SettingsError(f"n_best={n_best} must be between 1 and the beam, search.beam={beam}; widen the beam")
        remaining, done = iter(lines), 0
        while read := list(itertools.islice(remaining, chunk)):
            yield from self._translate_chunk(read, n_best, progress or Progress(), done)
            done += len(read)

    def score(self, pairs: Iterable[tuple[str, str]], chunk: int = CHUNK) -> Iterator[TargetScore]:
        """The log-probability of each target given its source, in order."""
        remaining = iter(pairs)
        while read := list(itertools.islice(remaining, chunk)):
            yield from self._score_chunk(read)

    # ---- translating -------------------------------------------------------------------------------------------

    def _translate_chunk(self, lines: Sequence[str], n_best: int, progress: Progress, done: int) -> list[Translation]:
        texts = [normalise(line) for line in lines]
        sources = self.tokenizers.source.encode(texts)
        longest = self.lengths.longest
        cut = [len(ids) > longest for ids in sources]
        sources = [ids[:longest] for ids in sources]
        results: list[list[Hypothesis]] = [[] for _ in lines]
        filled = [i for i, ids in enumerate(sources) if ids]
        for batch in self._batches(filled, [len(ids) + 1 for ids in sources], self.search.beam):
            for i, hypotheses in zip(batch, self._search([sources[i] for i in batch], n_best), strict=True):
                results[i] = hypotheses
            done += len(batch)
            progress.update(done, lines=f"{done:,}")
        return [self._finish(*parts) for parts in zip(lines, sources, results, cut, strict=True)]

    def _search(self, sources: list[list[int]], n_best: int) -> list[list[Hypothesis]]:
        source = lay_out([[[*ids, END]] for ids in sources]).to(self.device)
        limits = [self.lengths.limit(len(ids)) for ids in sources]
        self.model.eval()
        if self.search.beam == 1:
            return greedy(self.model, source, limits, self.search.length_penalty)
        return beam(self.model, source, limits, self.search.beam, self.search.length_penalty, n_best)

    def _finish(self, line: str, source: list[int], hypotheses: list[Hypothesis], cut: bool) -> Translation:
        if not source:
            return Translation(line, "", "empty", ())
        if not hypotheses or not math.isfinite(hypotheses[0].score):
            return Translation(line, "", "failed", ())
        target = self.tokenizers.target
        candidates = tuple(
            Candidate(target.decode(h.tokens), h.score, h.log_probability, tuple(target.pieces(h.tokens)))
            for h in hypotheses
        )
        status = "truncated" if cut else "ok" if hypotheses[0].complete else "length"
        return Translation(line, candidates[0].text, status, candidates)

    # ---- scoring -----------------------------------------------------------------------------------------------

    def _score_chunk(self, pairs: Sequence[tuple[str, str]]) -> list[TargetScore]:
        sources = self.tokenizers.source.encode([normalise(source) for source, _ in pairs])
        targets = self.tokenizers.target.encode([normalise(target) for _, target in pairs])
        longest = self.lengths.longest
        status = ["truncated" if len(ids) > longest else "ok" for ids in sources]
        sources = [ids[:longest] for ids in sources]
        sizes = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
        scores = [TargetScore(math.nan, len(t) + 1, "too long") for t in targets]
        fitting = [i for i, t in enumerate(targets) if len(t) <= longest]
        for batch in self._batches(fitting, sizes):
            total = self._log_probabilities([sources[i] for i in batch], [targets[i] for i in batch])
            for i, value in zip(batch, total, strict=True):
                known = math.isfinite(value)
                scores[i] = TargetScore(
                    value if known else math.nan, len(targets[i]) + 1, status[i] if known else "failed"
                )
        return scores

    @torch.inference_mode()
    def _log_probabilities(self, sources: list[list[int]], targets: list[list[int]]) -> list[float]:
        source = lay_out([[[*ids, END]] for ids in sources]).to(self.device)
        target_in = lay_out([[[BEGIN, *ids]] for ids in targets]).to(self.device)
        target_out = lay_out([[[*ids, END]] for ids in targets]).to(self.device)
        self.model.eval()
        log_p = self.model(source, target_in).float().log_softmax(-1)
        right = log_p.gather(-1, target_out.tokens.unsqueeze(-1)).squeeze(-1)  # (R, T)
        return (right * (target_out.segments != 0)).sum(-1).tolist()

    def _batches(self, lines: list[int], sizes: list[int], width: int = 1) -> Iterator[list[int]]:
        """Lines of like length together, longest first, each batch within search.tokens slots."""
        return budget(sorted(lines, key=lambda i: -sizes[i]), lambda i: sizes[i] * width, self.search.tokens)


def budget(items: Iterable[int], size: Callable[[int], int], most: int) -> Iterator[list[int]]:
    """Cut items, largest first, into groups whose count x largest size stays within `most`."""
    group: list[int] = []
    for item in items:
        if group and (len(group) + 1) * size(group[0]) > most:
            yield group
            group = []
        group.append(item)
    if group:
        yield group
