"""Text in, text out: a stream of lines becomes sentences, requests and batches, and translations come back in order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self, overload

import numpy as np

from transduce.core.ensemble import Ensemble
from transduce.core.hypotheses import Hypothesis, Request
from transduce.core.seq2seq import Seq2Seq
from transduce.decoding.alignment import align, aligner_of
from transduce.decoding.batches import FEW, Engine, PlainEngine
from transduce.decoding.constrain import width_of
from transduce.decoding.forced import alternatives, score_targets
from transduce.decoding.garbage import garbage_collection_paused
from transduce.decoding.lengths import Lengths
from transduce.decoding.marks import Marks
from transduce.decoding.mbr import most_like_the_others
from transduce.decoding.results import Candidate, TargetScore, Translation, gravest, join_lines
from transduce.decoding.roles import for_requests, make_roles
from transduce.decoding.sentences import Sentence, has_strange_mark, in_learned_letters, sentences_of
from transduce.decoding.trust import Answer, Trust, Verdict, usual_of
from transduce.decoding.wishes import Wishes, with_prefixes
from transduce.decoding.wording import Wording
from transduce.errors import SettingsError
from transduce.report import Progress
from transduce.settings.compose import compose
from transduce.settings.sections import Settings
from transduce.settings.task import task_of
from transduce.text.normalise import normalise
from transduce.text.protect import has_marks
from transduce.text.tokenizers import FOREIGN, Tokenizers
from transduce.text.words import word_links

SCORED = 4096  # pairs that are read ahead


class Translator:
    """A model with its tokenizers, ready to be used."""

    def __init__(
        self,
        model: Seq2Seq,
        tokenizers: Tokenizers,
        settings: Settings,
        device: str = "cpu",
        engine: Engine | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`trust`: what tells how far a translation can be trusted."""
        self.model = model
        self.tokenizers = tokenizers
        self.settings = settings
        self.search = settings.search
        self.lengths = Lengths.of(settings)
        self.device = device
        self.trust = trust
        self.engine = engine or self.make_engine()

    def make_engine(self) -> Engine:
        """What searches, unless another is given."""
        return PlainEngine(self.model, self.device)

    def with_search(self, **changes: object) -> Self:
        """The same model, looked through differently."""
        given = {key: value for key, value in changes.items() if value is not None}
        settings = compose({"search": given}, base=self.settings)
        how = [(s.engine, s.precision) for s in (settings.search, self.search)]
        engine = self.engine if how[0] == how[1] else None
        return type(self)(self.model, self.tokenizers, settings, self.device, engine, self.trust)

    @overload
    def translate(self, text: str, n_best: int = 1, **wishes: object) -> Translation: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Iterable[str], n_best: int = 1, **wishes: object) -> list[Translation]: ...
    def translate(
        self, text: str | Iterable[str], n_best: int = 1, **wishes: object
    ) -> Translation | list[Translation]:
        """The translation of a text, or of each in a list; `wishes` are those of wishes.py."""
        asked = Wishes(n_best, **wishes)  # type: ignore[arg-type]
        if isinstance(text, str):
            return next(self.stream([text], asked))
        return list(self.stream(text, asked))

    def stream(
        self,
        lines: Iterable[str],
        wishes: Wishes | None = None,
        chunk: int | None = None,
        progress: Progress | None = None,
        prefixes: Iterable[str] = (),
    ) -> Iterator[Translation]:
        """One translation for each line, in order, in memory that does not grow with their number: `chunk` lines are
        read ahead, sorted by length and translated before the next are read.

        `prefixes`: what the translation of each line begins with; as many as lines, or none.
        """
        wishes = wishes or Wishes()
        self._check(wishes)
        tokenizers = self.tokenizers
        wording = Wording(wishes, tokenizers.target, tokenizers.source, tokenizers.protection)
        done = 0
        for read, prefix in with_prefixes(lines, prefixes, chunk or self.engine.chunk):
            with garbage_collection_paused():
                translated = self._translate_chunk(read, prefix, wording, progress or Progress(), done)
            yield from translated
            done += len(read)

    def score(self, pairs: Iterable[tuple[str, str]], chunk: int = SCORED) -> Iterator[TargetScore]:
        """The log-probability of each target given its source, in order."""
        remaining, longest = iter(pairs), self.lengths.longest
        while read := list(itertools.islice(remaining, chunk)):
            hide = self.tokenizers.protection.hide_pair
            hidden = [hide(normalise(source), normalise(target)) for source, target in read]
            t, usual = self.tokenizers, usual_of(self.trust, self.tokenizers.settings)
            sources = in_learned_letters([source.text for source, _ in hidden], t.source, usual)
            targets = t.target.encode([target.text for _, target in hidden])
            for i, source in enumerate(sources):
                if source.shouted:  # then `translate` writes the capitals of a translation in calm letters
                    targets[i] = in_learned_letters([hidden[i][1].text], t.target, None)[0].ids
            begin = t.target.begin
            targets = [ids or [*begin] for ids in targets]
            ids, slots, given = [source.ids for source in sources], self.search.tokens, len(begin)
            yield from score_targets(self.model, ids, targets, longest, slots, self.device, given)

    def _check(self, wishes: Wishes) -> None:
        s, n_best = self.search, wishes.n_best
        if n_best < 1:
            raise SettingsError(f"n_best={n_best} must be at least 1")
        if s.method == "beam" and n_best > s.beam:
            raise SettingsError(f"n_best={n_best} must be between 1 and the beam, {s.beam}; widen it: --beam {n_best}")
        if s.mbr != "none" and s.method == "sample" and n_best > s.candidates:
            raise SettingsError(f"n_best={n_best} must not exceed search.candidates={s.candidates}")
        if wishes.alignment and (not self.model.looks_at_source or isinstance(self.model, Ensemble)):
            raise SettingsError("word alignments need one model with attention over its source")
        if wishes.alignment:
            aligner_of(self.settings)  # complains now
        if (wishes.glossary or wishes.keep or wishes.forbidden) and self.tokenizers.settings.tokenizer in FOREIGN:
            raise SettingsError(
                f"a glossary, --keep and --forbid need to know where words begin, which a model that cuts text by "
                f"text.tokenizer={self.tokenizers.settings.tokenizer} does not"
            )
        if (wishes.glossary or wishes.keep) and (s.method == "sample" or s.groups > 1):
            raise SettingsError(
                "a glossary and --keep need a plain beam: leave out search.groups and search.method=sample"
            )
        if s.coverage_penalty and not self.model.looks_at_source:
            raise SettingsError("search.coverage_penalty needs a model with attention over its source")

    # ---- one chunk ---------------------------------------------------------------------------------------------

    def _translate_chunk(
        self, lines: Sequence[str], prefixes: Sequence[str], wording: Wording, progress: Progress, done: int
    ) -> list[Translation]:
        self.engine.alone += len(lines) if len(lines) < FEW else 0
        split = self.search.split and not task_of(self.settings).labels
        read, usual = self.tokenizers.source, usual_of(self.trust, self.tokenizers.settings)
        sentences = sentences_of(lines, read, self.lengths.longest, split, wording.protection, usual)
        filled = [sentence for sentence in sentences if sentence.source]
        requests = self._requests(filled, prefixes, wording)
        count = 0

        def found(more: int) -> None:
            nonlocal count
            count += more
            at = done + len(lines) * count // len(filled)
            of_sentences = {"sentences": f"{count:,} of {len(filled):,}"} if len(filled) > len(lines) else {}
            progress.update(at, lines=f"{at:,}", **of_sentences)

        hypotheses = self._find(requests, wording, found)
        if wording.marks is not None:
            hypotheses = _with_marks_kept(self, requests, hypotheses, wording, wording.marks)
        finished = list(self._finish(filled, requests, hypotheses, wording))
        finished = finished if self.trust is None else _trusted(filled, finished, self.trust)
        found_all = self._aligned(filled, finished, wording) if wording.wishes.alignment else finished
        translated = (
            _with_each_text_once(_restored(s, t), wording.wishes.n_best, self.search.method)
            for s, t in zip(filled, found_all, strict=True)
        )
        each = [next(translated) if s.source else Translation(s.text, "", "empty", ()) for s in sentences]
        return join_lines(lines, sentences, each)

    def _requests(self, sentences: Sequence[Sentence], prefixes: Sequence[str], wording: Wording) -> list[Request]:
        """A prefix is for the first sentence of its line."""
        lengths = {len(s.source) for s in sentences}  # few, and sentences are many
        limits = {length: (self.lengths.limit(length), self.lengths.least(length)) for length in lengths}
        plain = [Request(s.source, *limits[len(s.source)]) for s in sentences]
        if wording.shortlist is not None:
            plain = [request._replace(vocabulary=wording.vocabulary(request.source)) for request in plain]
        if not wording.has_terms and not any(prefixes):
            return plain
        requests, line = [], -1
        for request, sentence in zip(plain, sentences, strict=True):
            begins_with = prefixes[sentence.line] if sentence.line != line else ""
            line = sentence.line
            requests.append(_with_wishes(request, sentence, begins_with, wording, self.lengths.positions))
        return requests

    def _find(self, requests: list[Request], wording: Wording, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        """Sentences with terms apart, with few and with many: their search is wider, and the others need not wait."""
        roles = make_roles(self.search, wording)
        if not wording.has_terms:
            return self.engine.find(requests, for_requests(roles, requests, wording), found) if requests else []
        results: list[list[Hypothesis]] = [[] for _ in requests]
        widths = [width_of(r.terms, roles.size).bit_length() if r.terms else 0 for r in requests]
        for width in sorted(set(widths)):
            group = [i for i, one in enumerate(widths) if one == width]
            some = [requests[i] for i in group]
            engine = _engine_for_rules(self) if width else self.engine
            together = engine.find(some, for_requests(roles, some, wording), found)
            for i, hypotheses in zip(group, together, strict=True):
                results[i] = hypotheses
        return results

    def _finish(
        self, sentences: Sequence[Sentence], requests: list[Request], found: list[list[Hypothesis]], wording: Wording
    ) -> Iterator[Translation]:
        """Hypotheses as text, all of a chunk together."""
        texts = iter(self.tokenizers.target.decode_all([h.tokens for hypotheses in found for h in hypotheses]))
        pieces = self.tokenizers.target.pieces
        for sentence, request, hypotheses in zip(sentences, requests, found, strict=True):
            candidates = [
                Candidate(next(texts), h.score, h.log_probability, tuple(pieces(h.tokens))) for h in hypotheses
            ]
            if not candidates or not math.isfinite(candidates[0].score):
                yield Translation(sentence.text, "", "failed", ())
                continue
            best = hypotheses[0]
            if self.search.mbr != "none":
                order = most_like_the_others([c.text for c in candidates], self.search.mbr)[: wording.wishes.n_best]
                candidates, best = [candidates[i] for i in order], hypotheses[order[0]]
            others = self._alternatives(sentence, best, wording) if wording.wishes.alternatives else ()
            status = _status(sentence, request, best, wording)
            if status == "ok" and not candidates[0].text.strip():
                status = "doubtful"
            elif status == "ok" and has_strange_mark(sentence.text, self.tokenizers.source):
                status = "unknown"
            yield Translation(sentence.text, candidates[0].text, status, tuple(candidates), (), others)

    def _aligned(
        self, sentences: Sequence[Sentence], found: list[Translation], wording: Wording
    ) -> Iterator[Translation]:
        """The same, with the words that come from one another."""
        ids = {piece: i for i, piece in enumerate(wording.pieces)}
        written = [t.candidates[0].tokens[: self.lengths.longest] if t.candidates else () for t in found]
        begin, unread = self.tokenizers.target.begin, [""] * len(self.tokenizers.source.begin)
        sources = [s.source for s in sentences]
        targets = [[*begin, *(ids[piece] for piece in tokens)] for tokens in written]
        places = align(self.model, sources, targets, aligner_of(self.settings), self.search.tokens, self.device)
        for sentence, t, tokens, looked in zip(sentences, found, written, places, strict=True):
            read = [*unread, *self.tokenizers.source.cut(sentence.hidden.text)]  # a mark of a language is no word
            read += [""] * (len(sentence.source) - len(read))  # nor is one behind the text
            read[len(unread)] = "" if sentence.mark else read[len(unread)]
            restore = sentence.hidden.restore_pieces
            yield t._replace(alignment=word_links(restore(read), restore(tokens), looked[len(begin) :]))

    def _alternatives(
        self, sentence: Sentence, best: Hypothesis, wording: Wording
    ) -> tuple[tuple[tuple[str, float], ...], ...]:
        count, begin = wording.wishes.alternatives, self.tokenizers.target.begin
        target = [*begin, *best.tokens][: self.lengths.longest]
        rows = alternatives(self.model, sentence.source, target, count, self.device)[len(begin) :]
        return tuple(tuple((wording.pieces[token], round(p, 6)) for token, p in row) for row in rows)


def _engine_for_rules(translator: Translator) -> Engine:
    engine = translator.engine
    return engine if engine.takes_rules else PlainEngine(translator.model, translator.device)


def _with_marks_kept(
    translator: Translator, requests: list[Request], found: list[list[Hypothesis]], wording: Wording, marks: Marks
) -> list[list[Hypothesis]]:
    """Sentences that lost a mark, or wrote one that is not theirs, are searched again, with a rule against it."""
    again = marks.astray(requests, found)
    if not again:
        return found
    some = [marks.with_room(requests[i], translator.lengths.positions) for i in again]
    roles = make_roles(translator.search, wording)
    roles = for_requests(roles._replace(rules=[*roles.rules, marks.each_once]), some, wording)
    engine = _engine_for_rules(translator)
    mended = dict(zip(again, engine.find(some, roles, lambda _: None), strict=True))
    return [mended.get(i, hypotheses) for i, hypotheses in enumerate(found)]


def _restored(sentence: Sentence, translation: Translation) -> Translation:
    """In capitals, if the source was, and with what the marks stand for."""
    hidden = sentence.hidden
    if sentence.shouted:
        loud = tuple(c._replace(text=c.text.upper()) for c in translation.candidates)
        translation = translation._replace(text=translation.text.upper(), candidates=loud)
    if hidden.items is None or not (hidden.items or any(has_marks(c.text) for c in translation.candidates)):
        return translation
    return translation._replace(
        text=hidden.restore(translation.text),
        candidates=tuple(
            c._replace(text=hidden.restore(c.text), tokens=tuple(map(hidden.name, c.tokens)))
            for c in translation.candidates
        ),
        alternatives=tuple(tuple((hidden.name(piece), p) for piece, p in row) for row in translation.alternatives),
    )


def _with_each_text_once(translation: Translation, n_best: int, method: str) -> Translation:
    """The best candidates of a beam, of those that spell one text in different tokens only the best; samples stay as
    they were drawn."""
    if method == "sample":
        return translation
    best: dict[str, Candidate] = {}
    for candidate in translation.candidates:
        best.setdefault(candidate.text, candidate)
    return translation._replace(candidates=tuple(best.values())[:n_best])


def _with_wishes(request: Request, sentence: Sentence, begins_with: str, wording: Wording, positions: int) -> Request:
    prefix, whole = wording.prefix(begins_with, sentence.hidden)
    terms, all_of_them = wording.terms(sentence)
    room = len(prefix) + sum(term.shortest for term in terms) + 1  # what was asked for comes before the limit
    short = request.vocabulary
    if short is not None:  # what was asked for may be written too
        wanted = [*prefix, *(token for term in terms for way in term.alternatives for token in way)]
        short = np.union1d(short, np.array(wanted, np.int64))
    most = min(max(request.most, room), positions)
    unwritable = not (whole and all_of_them)
    return request._replace(most=most, prefix=prefix, terms=terms, vocabulary=short, unwritable=unwritable)


def _status(sentence: Sentence, request: Request, best: Hypothesis, wording: Wording) -> str:
    if not sentence.whole:
        return "truncated"
    if request.unwritable:
        return "unmet"
    if not best.complete:
        missing = wording.are_missing(sentence, best.tokens)
        lost = wording.marks is not None and not wording.marks.are_kept(sentence.source, best.tokens)
        return "unmet" if missing or lost else "length"
    return "long" if sentence.long else "ok"


def _trusted(sentences: Sequence[Sentence], found: list[Translation], trust: Trust) -> list[Translation]:
    """The same, with how far each can be trusted."""
    whole = [(s, t, t.candidates[0] if t.candidates else None) for s, t in zip(sentences, found, strict=True)]
    verdicts = iter(trust.judge([Answer(s.text, s.source, c.tokens, c.log_probability) for s, _, c in whole if c]))
    judged = []
    for _, t, candidate in whole:
        verdict = next(verdicts) if candidate else Verdict(0.0, "ok")
        judged.append(t._replace(confidence=verdict.confidence, status=gravest([t.status, verdict.status])))
    return judged
