"""CTranslate2 as an engine: the model is converted once, kept in the user's cache, and asked with the same options.

It stops a sentence when as many hypotheses have ended as are followed (search.stop=usual). Its candidates are then
scored and ranked as ours are, so every length penalty is available.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch

from transduce.core.choose import Best
from transduce.core.hypotheses import Hypothesis, Request, ranked
from transduce.core.layers import EncoderLayer
from transduce.core.rules import Forbid, NoRepeat, RepetitionPenalty, at_least, begin_with_prefix
from transduce.core.search import Roles
from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import BEGIN, END, PAD
from transduce.core.transformer import Transformer
from transduce.decoding.batches import batches
from transduce.errors import SettingsError
from transduce.formats.ctranslate2_out import convert, library, token_name, why_not
from transduce.signals import usable_cores

KEPT = 8  # converted models
PART = "part-"  # how the names of folders begin that are being written, or deleted
A_DAY = 86400  # seconds; who began one earlier is gone
TOGETHER = 32  # sentences of a batch, which is where CTranslate2 is fastest
GROUP = 2  # batches of ours that it is given at once
AHEAD = 1  # such groups that it has begun before the answers of one are read: it works while Python does


class CTranslate2Engine:
    """Greedy and beam search on a CPU, in float32 or in whole numbers."""

    chunk = 4096
    takes_rules = False
    alone = 0

    def __init__(self, model: Seq2Seq, precision: str, device: str) -> None:
        if device != "cpu":
            raise SettingsError(f"search.engine=ctranslate2 computes on the CPU here, not on {device}: --device cpu")
        if reason := why_not(model):
            raise SettingsError(f"search.engine=ctranslate2 cannot take this model: {reason}")
        assert isinstance(model, Transformer)
        precision = "float32" if precision == "auto" else precision
        is_known = precision in library().get_supported_compute_types("cpu")
        if precision in ("bfloat16", "float16") or not is_known:
            raise SettingsError(
                f"search.precision={precision} is not for ctranslate2 on this CPU; take float32 or int8"
            )
        cores = usable_cores()
        self._end = [token_name(END)] if model.source_end else []
        path = _converted(model)
        before = torch.get_num_threads()
        self.translator = library().Translator(str(path), compute_type=precision, inter_threads=cores, intra_threads=1)
        torch.set_num_threads(before)  # both have one OpenMP, which now thinks of one thread
        self.name = f"ctranslate2 ({precision}) on {device}"

    def warm_up(self) -> None:
        """It is compiled already."""

    def find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        results: list[list[Hypothesis]] = [[] for _ in requests]
        ask = functools.partial(self._ask, requests, roles, _options(roles))

        def read(asked: dict[int, Any]) -> None:
            answers = {i: answer.result() for i, answer in asked.items()}
            limit = max(requests[i].most for i in asked)
            too_long: dict[int, list[int]] = {}  # their own limit would have come first; by it
            for i, answer in answers.items():
                longest = max((len(names) - len(roles.begin) for names in answer.hypotheses), default=0)
                if requests[i].most < limit and longest >= requests[i].most - 1:
                    too_long.setdefault(requests[i].most, []).append(i)
            for those in too_long.values():
                answers |= {i: answer.result() for i, answer in ask(those).items()}
            for i, answer in answers.items():
                results[i] = _hypotheses(answer, requests[i], roles)
            found(len(asked))

        begun: deque[dict[int, Any]] = deque()
        for batch in _batches(requests, roles):
            begun.append(ask(batch))
            if len(begun) > AHEAD:
                read(begun.popleft())
        for asked in begun:
            read(asked)
        return results

    def _ask(self, requests: list[Request], roles: Roles, options: dict[str, Any], which: list[int]) -> dict[int, Any]:
        """Some sentences of one least length, each of which may become as long as the longest may: answers to come."""
        some = [requests[i] for i in which]
        answers = self.translator.translate_batch(
            [[*map(token_name, request.source), *self._end] for request in some],
            [[*map(token_name, [*roles.begin, *request.prefix])] for request in some],
            max_decoding_length=max(request.most for request in some) + len(roles.begin),
            min_decoding_length=some[0].least,
            max_batch_size=TOGETHER,
            asynchronous=True,
            **options,
        )
        return dict(zip(which, answers, strict=True))


def _batches(requests: list[Request], roles: Roles) -> Iterator[list[int]]:
    """Requests of like length, and of one least length: CTranslate2 has one for all that it is given."""
    sizes = [len(request.source) + 1 for request in requests]
    by_least: dict[int, list[int]] = {}
    for i, request in enumerate(requests):
        by_least.setdefault(request.least, []).append(i)
    for group in by_least.values():
        yield from batches(group, sizes, GROUP * roles.slots, roles.size)


def _options(roles: Roles) -> dict[str, Any]:
    """The same search in CTranslate2's words; what it does not have is refused."""
    if not isinstance(roles.choose, Best):
        raise SettingsError("search.engine=ctranslate2 has greedy and beam search only: take search.engine=auto")
    if roles.penalty.beta:
        raise SettingsError(
            "search.engine=ctranslate2 counts the padding beside longer neighbours as source that was left out, where "
            "there is a search.coverage_penalty: take search.engine=auto"
        )
    options: dict[str, Any] = {"suppress_sequences": [[token_name(PAD)], [token_name(BEGIN)]]}
    for rule in roles.rules:
        if isinstance(rule, NoRepeat):
            options["no_repeat_ngram_size"] = rule.n
        elif isinstance(rule, Forbid):
            options["suppress_sequences"] += [[*map(token_name, sequence)] for sequence in rule.sequences()]
        elif isinstance(rule, RepetitionPenalty):
            raise SettingsError("search.engine=ctranslate2 has another repetition penalty: take search.engine=auto")
        elif rule not in (at_least, begin_with_prefix):
            raise SettingsError("search.engine=ctranslate2 cannot search like this: take search.engine=auto")
    return {
        **options,
        "beam_size": roles.size,
        "num_hypotheses": roles.size,
        "length_penalty": 0,
        "return_scores": True,
        "disable_unk": True,
        "max_input_length": 0,
        "batch_type": "examples",
    }


def _hypotheses(answer: Any, request: Request, roles: Roles) -> list[Hypothesis]:
    """Scored as ours are: CTranslate2 gives log-probabilities when it is asked for no penalty."""
    found, given = [], len(roles.begin)
    for names, total in zip(answer.hypotheses, answer.scores, strict=True):
        length = len(names) - given
        complete = length < request.most
        has_end = complete or roles.penalty.forced_end
        found.append(Hypothesis(names, roles.penalty.score(total, length + has_end), total, complete))
    best = ranked(found, roles.ended_first)[: roles.n_best]
    return [hypothesis._replace(tokens=list(map(int, hypothesis.tokens[given:]))) for hypothesis in best]


def _converted(model: Transformer) -> Path:
    """The model as CTranslate2 reads it, by the hash of its weights. It lies in the user's cache and not in the model
    folder, which may come from anybody and hold anything under that name."""
    first = cast(EncoderLayer, model.encoder[0])
    unseen = (first.self_attention.heads, first.self_residual.norm_before, first.feed_forward.activation.__name__)
    facts = (model, *unseen, model.source.scale, model.projection_scale, library().__version__)  # not in weights
    stamp = hashlib.sha256(repr(facts).encode())
    for weight in (*model.parameters(), *model.buffers()):  # positions that are computed are no parameters
        stamp.update(weight.detach().float().numpy().tobytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transduce" / "ctranslate2"
    place = cache / stamp.hexdigest()
    if place.is_dir():
        return place
    try:
        cache.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=cache, prefix=PART))
    except OSError:  # no home, or one that is read-only: for this time only
        part = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, part, ignore_errors=True)
        convert(model, part)
        return part
    convert(model, part)
    _forget_old(cache)
    try:
        return part.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(part, ignore_errors=True)
        return place


def _forget_old(cache: Path) -> None:
    """All but the newest; who has one of them open keeps what it has read. Other processes may do the same now."""
    ages = []
    for path in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):
            is_part, age = path.name.startswith(PART), path.stat().st_mtime
            if is_part and age < time.time() - A_DAY:
                shutil.rmtree(path, ignore_errors=True)
            elif not is_part:
                ages.append((age, path))
    for _, old in sorted(ages)[:-KEPT]:
        gone = old.with_name(f"{PART}{os.getpid()}-{old.name}")  # half of a folder must not look like a whole one
        with contextlib.suppress(OSError):
            shutil.rmtree(old.rename(gone), ignore_errors=True)
