"""What a model did with one sentence: every attention weight, the next words it thought of, the beams it followed."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from transduce.core.hypotheses import Beams, Request
from transduce.core.layout import lay_out
from transduce.core.rules import never_written
from transduce.core.search import search
from transduce.core.special import BEGIN, END, SPECIAL
from transduce.decoding.alignment import Aligner, aligner_of
from transduce.decoding.mbr import most_like_the_others
from transduce.decoding.roles import for_requests, make_roles
from transduce.decoding.sentences import Sentence, sentences_of
from transduce.decoding.translator import Translator
from transduce.decoding.trust import usual_of
from transduce.decoding.wishes import Wishes
from transduce.decoding.wording import Wording
from transduce.errors import DataError
from transduce.inspect import page, plots
from transduce.inspect.kinds import ATTENTION_KINDS
from transduce.inspect.words import joined, merge, words
from transduce.models.kinds import kind_of
from transduce.text.normalise import normalise
from transduce.text.protect import Hidden
from transduce.text.tokenizers import Tokenizer

BEST = 5  # next tokens shown at each step


class Node(NamedTuple):
    """A token of the beam tree: a hypothesis as far as it."""

    token: str
    parent: int  # place of the node before it; -1: the beginning
    score: float  # log-probability by length penalty, as the search ranks
    kept: bool  # part of the translation that was taken


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """Named arrays of weights (layer, head, query, key); a kind of attention that a model has not is None.

    Queries of the decoder are named by the token that is being written, its own keys by the tokens read so far.
    """

    text: str
    translation: str
    source: tuple[str, ...]  # tokens, the end among them
    target: tuple[str, ...]  # tokens as they were written, the end among them
    read: tuple[str, ...]  # what the decoder had read when it wrote each: target, shifted
    encoder: np.ndarray | None
    decoder: np.ndarray | None
    cross: np.ndarray | None
    next_tokens: tuple[tuple[tuple[str, float], ...], ...]  # the most probable ones at each step
    probabilities: tuple[float, ...]  # of each token of the target
    beams: tuple[Node, ...]  # empty where the target was given
    model: str = ""  # what looked, in words
    whole_words: bool = False  # whether subwords have been joined
    aligner: Aligner | None = None  # the head that links words; None: all of them together
    links: tuple[tuple[str, str, float], ...] | None = None  # of whole words, whose tokens are no longer known

    def __repr__(self) -> str:
        shapes = ", ".join(f"{kind} {self.weights(kind).shape}" for kind in self.kinds())
        return f"<Trace of {self.text!r} -> {self.translation!r}: {shapes or 'no attention'}>"

    def kinds(self) -> list[str]:
        """The kinds of attention that there are."""
        return [kind for kind in ATTENTION_KINDS if getattr(self, kind) is not None]

    def weights(self, kind: str) -> np.ndarray:
        """(layers, heads, queries, keys)"""
        if kind not in self.kinds():
            raise DataError(f"this model has no {kind} attention; there is: {', '.join(self.kinds()) or 'none'}")
        return getattr(self, kind)

    def axes(self, kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of queries and keys."""
        self.weights(kind)
        return {
            "encoder": (self.source, self.source),
            "decoder": (self.target, self.read),
            "cross": (self.target, self.source),
        }[kind]

    def head(self, kind: str, layer: int | None, head: int | None) -> np.ndarray:
        """One map (queries, keys), counted from 1; None: the mean over them."""
        weights = self.weights(kind)
        for name, number, size in (("layer", layer, weights.shape[0]), ("head", head, weights.shape[1])):
            if number is not None and not 1 <= number <= size:
                raise DataError(f"{name} {number} is not there: {ATTENTION_KINDS[kind]} has {name}s 1 to {size}")
        weights = weights.mean(0) if layer is None else weights[layer - 1]
        return weights.mean(0) if head is None else weights[head - 1]

    def entropy(self, kind: str) -> np.ndarray:
        """(layers, heads): how spread a head looks, in bits, the mean over its queries; 0 is one token only."""
        p = self.weights(kind)
        return -(p * np.log2(np.maximum(p, 1e-12))).sum(-1).mean(-1)

    def merged(self) -> Trace:
        """The same with subwords joined to words: summed over keys, the mean over queries."""
        if self.whole_words:
            return self
        source, target, read = words(self.source), words(self.target), words(self.read)
        first = [target.index(word) for word in range(max(target) + 1)]  # the token that each word begins with
        return replace(
            self,
            source=joined(self.source, source),
            target=joined(self.target, target),
            read=joined(self.read, read),
            encoder=None if self.encoder is None else merge(self.encoder, source, source),
            decoder=None if self.decoder is None else merge(self.decoder, target, read),
            cross=None if self.cross is None else merge(self.cross, target, source),
            next_tokens=tuple(self.next_tokens[i] for i in first),
            probabilities=tuple(  # a word is as probable as all its tokens one after the other
                math.prod(p for p, group in zip(self.probabilities, target, strict=True) if group == word)
                for word in range(len(first))
            ),
            whole_words=True,
            links=tuple(self.alignment()),
        )

    def alignment(self) -> list[tuple[str, str, float]]:
        """Each word that was written, with the source word looked at most by the head that links words best, and how
        much."""
        if self.cross is None or self.links is not None:
            return [*(self.links or ())]
        into, out_of = words(self.target), words(self.source)
        written, read = joined(self.target, into), joined(self.source, out_of)
        looked = merge(self._looked()[None, None], into, out_of)[0, 0]
        ends = [i for i, token in enumerate(read) if token == SPECIAL[END]]
        looked[:, ends] = 0.0  # the end of a sentence is where heads look that have nothing to say
        rows = [i for i, token in enumerate(written) if token != SPECIAL[END]]
        return [(written[i], read[looked[i].argmax()], float(looked[i].max())) for i in rows]

    def _looked(self) -> np.ndarray:
        """Where that head looks for each target token: when it writes it, or when it has just read it."""
        if self.aligner is None:
            return self.head("cross", None, None)
        weights = self.head("cross", self.aligner.layer, self.aligner.head)
        return np.concatenate([weights[1:], weights[-1:]]) if self.aligner.reads else weights.copy()

    def to_bertviz(self) -> dict[str, Any]:
        """The arguments of bertviz' head_view and model_view, which name decoder positions by what was read there."""

        def layers(kind: str) -> list[torch.Tensor]:
            return [torch.from_numpy(layer).unsqueeze(0) for layer in self.weights(kind)]

        names = {"encoder_tokens": list(self.source), "decoder_tokens": list(self.read)}
        return {**{f"{kind}_attention": layers(kind) for kind in self.kinds()}, **names}

    def save(
        self, path: str | Path, kind: str | None = None, layer: int | None = None, head: int | None = None
    ) -> Path:
        """As a page of everything (.html), or one head, or the mean, as a picture (.png, .svg, .pdf).

        `kind` is cross if it is not given, or what there is.
        """
        path = Path(path)
        if path.suffix.lower() == ".html":
            return page.write(self, path)
        if path.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise DataError(
                f"cannot draw {path}: end its name in .html for everything, in .png, .svg or .pdf for a head"
            )
        usual = "cross" if self.cross is not None else [*self.kinds(), "cross"][0]
        return plots.attention(self, path, kind or usual, layer, head)

    def _repr_html_(self) -> str:
        whole = html.escape(page.render(self), quote=True)
        return f'<iframe srcdoc="{whole}" style="width:100%;height:900px;border:0" title="Attention"></iframe>'


@torch.inference_mode()
def trace(model: Translator, text: str, target: str | None = None) -> Trace:
    """Translate `text`, or read `target` as its translation, and note everything on the way."""
    for given in (text, "" if target is None else target):
        if not isinstance(given, str):
            raise DataError(f"a sentence is text, not {type(given).__name__}: {given!r}")
    nodes: tuple[Node, ...] = ()
    shouted = False
    if target is None:
        sentence = _read(model, text)
        read = written = sentence.hidden
        source_ids, shouted = sentence.source, sentence.shouted
        target_ids, nodes = _follow_beams(model, sentence)
    else:
        read, written = model.tokenizers.protection.hide_pair(normalise(text), normalise(target))
        source_ids = _encode(model.tokenizers.source, read, "sentence", model.lengths.longest)
        target_ids = _encode(model.tokenizers.target, written, "target", model.lengths.longest)
    if not source_ids:
        raise DataError("there is nothing to look at: the sentence is empty")
    source = lay_out([[[*source_ids, END]]]).to(model.device)
    target_in = lay_out([[[BEGIN, *target_ids]]]).to(model.device)
    model.model.eval()
    maps = model.model.attention(source, target_in)
    logits = model.model(source, target_in)[0]  # (T, vocabulary)
    # What search never writes is impossible, unless somebody wrote it.
    log_p = logits.float().log_softmax(-1)
    if target is None:
        never_written(log_p)
    p = log_p.exp()
    of_target = torch.tensor([*target_ids, END], device=p.device)
    best, ids = p.topk(min(BEST, p.size(1)))
    names = [_names(model.tokenizers.target, row, read) for row in ids.tolist()]
    translation = model.tokenizers.target.decode(target_ids)
    return Trace(
        text=normalise(text),
        translation=written.restore(translation.upper() if shouted else translation),
        source=_names(model.tokenizers.source, [*source_ids, END], read),
        target=_names(model.tokenizers.target, [*target_ids, END], read),
        read=_names(model.tokenizers.target, [BEGIN, *target_ids], read),
        encoder=_stacked(maps.encoder),
        decoder=_stacked(maps.decoder),
        cross=_stacked(maps.cross),
        next_tokens=tuple(tuple(zip(row, q, strict=True)) for row, q in zip(names, best.tolist(), strict=True)),
        probabilities=tuple(p.gather(1, of_target.unsqueeze(1)).squeeze(1).tolist()),
        beams=nodes,
        model=kind_of(model.settings.model).describe(model.settings.model),
        aligner=aligner_of(model.settings) if maps.cross else None,
    )


def _read(model: Translator, text: str) -> Sentence:
    """A sentence as `translate` reads it: also TEXT IN CAPITALS."""
    t, longest = model.tokenizers, model.lengths.longest
    (sentence,) = sentences_of([text], t.source, longest, False, t.protection, usual_of(model.trust, t.settings))
    if not sentence.whole:
        _encode(t.source, sentence.hidden, "sentence", longest)  # complains
    return sentence


def _encode(tokenizer: Tokenizer, hidden: Hidden, what: str, longest: int) -> list[int]:
    ids = tokenizer.encode([hidden.text])[0]
    if len(ids) > longest:
        raise DataError(f"the {what} has {len(ids)} tokens; this model reads at most {longest}")
    return ids


def _stacked(layers: list[torch.Tensor]) -> np.ndarray | None:
    return torch.cat(layers).float().cpu().numpy() if layers else None  # (layers, heads, T, S)


def _names(tokenizer: Tokenizer, ids: list[int], hidden: Hidden) -> tuple[str, ...]:
    return tuple(SPECIAL[i] if i < len(SPECIAL) else hidden.name(tokenizer.pieces([i])[0]) for i in ids)


def _follow_beams(model: Translator, sentence: Sentence) -> tuple[list[int], tuple[Node, ...]]:
    """The translation, and every hypothesis that was followed on the way to it, as a tree."""
    s, t = model.search, model.tokenizers
    wording = Wording(Wishes(), t.target, t.source, t.protection)
    length = len(sentence.source)
    request = Request(sentence.source, model.lengths.limit(length), model.lengths.least(length))
    roles = for_requests(make_roles(s, wording), [request], wording)
    begin, seen = t.target.begin, dict[tuple[int, ...], float]()

    def watch(beams: Beams) -> None:
        for row, scores in zip(beams.tokens.tolist(), beams.scores.tolist(), strict=True):
            for tokens, total in zip(row, scores, strict=True):
                if total > float("-inf"):
                    seen[tuple(tokens)] = roles.penalty.score(total, len(tokens))
        for hypothesis in beams.finished[0]:  # those that ran into the limit have no end, but may be scored with one
            end = (END,) if hypothesis.complete else ()
            seen[*hypothesis.tokens, *end] = hypothesis.score

    model.model.eval()
    hypotheses = search(model.model, [request], roles, model.device, watch)[0]
    if wording.marks is not None and wording.marks.astray([request], [hypotheses]):  # as `translate` does
        seen.clear()
        request = wording.marks.with_room(request, model.lengths.positions)
        roles = roles._replace(rules=[*roles.rules, wording.marks.each_once])
        hypotheses = search(model.model, [request], roles, model.device, watch)[0]
    if not hypotheses:
        raise DataError("there is nothing to look at: the model's scores for this sentence are NaN")
    best = hypotheses[0]
    if s.mbr != "none":
        best = hypotheses[most_like_the_others(t.target.decode_all([h.tokens for h in hypotheses]), s.mbr)[0]]
    if roles.size == 1:  # greedy search ends with its END; what would have come after it was never looked at
        seen = {tokens: score for tokens, score in seen.items() if list(tokens) == [*best.tokens, END][: len(tokens)]}
    kept = (*best.tokens, END)
    places: dict[tuple[int, ...], int] = {(): -1}
    nodes: list[Node] = []
    for tokens in sorted(seen, key=lambda tokens: (len(tokens), tokens != kept[: len(tokens)], -seen[tokens])):
        places[tokens] = len(nodes)
        name = _names(t.target, [tokens[-1]], sentence.hidden)[0]
        nodes.append(Node(name, places[tokens[:-1]], seen[tokens], tokens == kept[: len(tokens)]))
    return [*begin, *best.tokens][: model.lengths.longest], tuple(nodes)
