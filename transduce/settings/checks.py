"""What settings may not be: values out of range, combinations that cannot work, choices without effect."""

from __future__ import annotations

from collections.abc import Iterator

from transduce.errors import SettingsError, did_you_mean
from transduce.settings.entries import entries, flat, written
from transduce.settings.pattern import Pattern
from transduce.settings.sections import (
    PROTECTED,
    ModelSettings,
    SearchSettings,
    Settings,
    TextSettings,
    VectorSettings,
    listed,
)
from transduce.settings.task import task_of


def check(settings: Settings) -> None:
    """Raise one SettingsError that names every impossible value or combination."""
    values = flat(settings)
    wrong = [
        f"{entry.name}={written(values[entry.name])} must be "
        + " and ".join(f"{words} {n}" for words, n in entry.limits.items())
        for entry in entries()
        if not entry.is_within(values[entry.name])
    ]
    wrong += [] if wrong else _impossible_model(settings)
    wrong += [*_impossible_text(settings), *_impossible_protection(settings.text)]
    wrong += [*_impossible_training(settings), *_impossible_search(settings.search)]
    wrong += _impossible_vectors(settings.vectors)
    if wrong:
        raise SettingsError("; ".join(wrong))


def _impossible_model(settings: Settings) -> Iterator[str]:
    m, t, b = settings.model, settings.text, settings.batch
    if m.kind != "rnn" and (m.d_k is None or m.d_v is None) and m.d_model % m.heads:
        yield f"model.d_model={m.d_model} must be a multiple of model.heads={m.heads}"
    if m.kind != "fasttext" and (m.kind == "classifier") != task_of(settings).labels:
        yield (
            f"model.kind={m.kind} does not go with text.target_tokenizer={t.target_tokenizer}: classifiers write labels"
        )
    if m.kind == "classifier" and (m.tie_output or m.tie_source):
        yield "model.kind=classifier needs model.tie_output=false and model.tie_source=false"
    if m.kind == "rnn" and m.bidirectional and m.d_model % 2:
        yield f"model.d_model={m.d_model} must be even for model.bidirectional=true, half for each direction"
    if m.kind == "rnn" and b.layout == "packed":
        yield "batch.layout=packed needs model.kind=transformer: an rnn reads one sentence a row"
    if m.kind == "rnn" and m.scale == "projection":
        yield "model.scale=projection needs model.kind=transformer; for an rnn it is embedding or none"
    width = m.d_model if m.kind == "rnn" else m.d_k or m.d_model // m.heads
    if m.score_rank is not None and m.score_rank > width:
        yield f"model.score_rank={m.score_rank} must not exceed {width}, the width of what is compared"
    if m.score_rank is not None and m.score != "bilinear":
        yield f"model.score_rank={m.score_rank} needs model.score=bilinear, not {m.score}"
    if m.kind != "rnn" and m.positions != "learned" and m.d_model % 2:
        yield f"model.d_model={m.d_model} must be even for sin/cos positions"
    if settings.training.start and (m.source_vectors or m.target_vectors):
        yield "model.source_vectors and target_vectors are for a new model; one of training.start has its own"
    if m.tie_source and not (t.joint or t.same_ids):
        yield "model.tie_source=true needs text.joint=true, one vocabulary for both languages"


def _impossible_vectors(v: VectorSettings) -> Iterator[str]:
    if 0 < v.longest < v.shortest:
        yield f"vectors.shortest={v.shortest} must not exceed vectors.longest={v.longest}; for words only, longest is 0"
    if v.loss == "ova" and v.objective != "labels":
        yield f"vectors.loss=ova needs vectors.objective=labels, not {v.objective}"
    if v.word_ngrams > 1 and v.objective != "labels":
        yield f"vectors.word_ngrams={v.word_ngrams} needs vectors.objective=labels, not {v.objective}"


def _impossible_text(settings: Settings) -> Iterator[str]:
    t, d = settings.text, settings.data
    if task_of(settings).labels and t.joint:
        yield "text.target_tokenizer=labels needs text.joint=false: labels are not words of the text"
    if t.sampling and t.tokenizer not in ("bpe", "unigram"):
        yield f"text.sampling={t.sampling} needs text.tokenizer bpe or unigram, not {t.tokenizer}"
    if t.byte_fallback and t.tokenizer not in ("bpe", "unigram"):
        yield f"text.byte_fallback=true needs text.tokenizer bpe or unigram, not {t.tokenizer}"
    if t.joint and t.target_vocabulary is not None:
        yield f"text.target_vocabulary={t.target_vocabulary} needs text.joint=false: there is one vocabulary for both"
    if t.lowercase and t.case == "marks":
        yield "text.lowercase=true does not go with text.case=marks, which keeps case; leave one of them out"
    if not 0 < t.coverage <= 1:
        yield f"text.coverage={t.coverage} must be above 0 and at most 1"
    for key, example in (("columns", "1,3"), ("languages", "de,en")):
        chosen = getattr(d, key)
        if chosen is not None and len(chosen) != 2:
            yield f"data.{key}={written(chosen)} must be two, source and target, such as {example}"
    if d.weight is not None and len(d.weight) != len(listed(d.source)):
        yield (
            f"data.weight={written(d.weight)} must have as many numbers as data.source has files, "
            f"{len(listed(d.source))}"
        )
    if d.max_tokens > settings.model.max_positions:
        yield f"data.max_tokens={d.max_tokens} must not exceed model.max_positions={settings.model.max_positions}"


def _impossible_protection(t: TextSettings) -> Iterator[str]:
    for kind in (kind.strip() for kind in t.protect.split(",")) if t.protect else ():
        if kind not in PROTECTED:
            hint = did_you_mean(kind, PROTECTED)
            yield f"text.protect={t.protect}: {kind or 'nothing'} is none of {', '.join(PROTECTED)}{hint}"
    if t.protect_pattern is not None:
        try:
            if Pattern(t.protect_pattern, "text.protect_pattern").matches_empty_text():
                yield f"text.protect_pattern={t.protect_pattern} matches the empty text; let it match what is protected"
        except SettingsError as error:
            yield str(error)
    if task_of(t).labels and (t.protect or t.protect_pattern):
        yield "text.protect does not go with text.target_tokenizer=labels: a label has no place for what passes through"


def _impossible_training(settings: Settings) -> Iterator[str]:
    for name in ("freeze", "unfreeze_every", "vectors_rest"):
        value = getattr(settings.training, name)
        if value and settings.optimizer.weight_decay:
            yield f"training.{name}={value} needs optimizer.weight_decay=0, which moves every weight"
    b, o, t = settings.batch, settings.optimizer, settings.training
    yield from _impossible_adapting(settings)
    if b.layout != "buckets" and b.row is not None and b.tokens != "auto" and b.row > b.tokens:
        yield f"batch.row={b.row} must not exceed batch.tokens={b.tokens}"
    if o.name == "schedule_free" and o.beta1 == 0:
        yield "optimizer.beta1=0 must be above 0 for optimizer.name=schedule_free, which averages by it"
    if o.name == "schedule_free" and t.ema:
        yield f"training.ema={t.ema} does not go with optimizer.name=schedule_free, which is an average already"
    if o.schedule == "cosine" and t.steps is None:
        yield "optimizer.schedule=cosine needs training.steps, the step where it reaches zero; or take wsd"
    if t.steps is None and t.epochs is None and t.minutes is None:
        yield "one of training.steps, training.epochs and training.minutes must be set"


def _impossible_adapting(settings: Settings) -> Iterator[str]:
    o, t = settings.optimizer, settings.training
    if t.teacher is not None and (t.new_vocabulary or task_of(settings).labels):
        yield "training.teacher is for a translator with the teacher's own vocabulary"
    blind = settings.model.kind == "rnn" and not settings.model.attention
    if t.guided_alignment and (blind or task_of(settings).labels):
        yield "training.guided_alignment needs a translator with attention over its source"
    if t.teacher is not None and t.start is not None:
        yield "training.teacher does not go with --from: the run would have two vocabularies"
    if t.new_vocabulary and t.start is None:
        yield "training.new_vocabulary=true needs a model to begin with: --from MODEL"
    if t.new_vocabulary and t.lora_rank is not None:
        yield "training.new_vocabulary=true does not go with training.lora_rank: new tokens have to be learned"
    if t.lora_rank is not None and t.start is None:
        yield f"training.lora_rank={t.lora_rank} needs a model to adapt: --from MODEL"
    if t.lora_rank is not None and (t.freeze is not None or t.unfreeze_every is not None):
        yield "training.lora_rank does not go with training.freeze or unfreeze_every: nothing else learns anyway"
    if t.lora_rank is None and (t.lora_alpha is not None or t.lora_dropout):
        yield "training.lora_alpha and training.lora_dropout need training.lora_rank"
    for name, value in (("training.unfreeze_every", t.unfreeze_every), ("optimizer.layer_decay", o.layer_decay)):
        if value not in (None, 1.0) and settings.model.kind == "rnn":
            yield f"{name}={value} needs model.kind=transformer, which has layers"
    if o.layer_decay != 1 and o.name == "schedule_free":
        yield f"optimizer.layer_decay={o.layer_decay} does not go with optimizer.name=schedule_free"


def _impossible_search(s: SearchSettings) -> Iterator[str]:
    usual = SearchSettings()
    for key in ("temperature", "top_k", "top_p", "min_p"):
        if s.method != "sample" and getattr(s, key) != getattr(usual, key):
            yield f"search.{key}={getattr(s, key)} needs search.method=sample: a beam draws nothing"
    for key in ("groups", "coverage_penalty"):
        if s.method == "sample" and getattr(s, key) != getattr(usual, key):
            yield f"search.{key}={getattr(s, key)} needs search.method=beam: samples do not compete"
    if s.precision.startswith("int") and s.engine != "ctranslate2":
        yield f"search.precision={s.precision} needs search.engine=ctranslate2"
    if s.beam % s.groups:
        yield f"search.beam={s.beam} must be a multiple of search.groups={s.groups}"
    if s.min_length and s.max_length is not None and s.min_length >= s.max_length:
        yield f"search.min_length={s.min_length} must be below search.max_length={s.max_length}, which counts the end"
    if s.max_ratio is not None and s.min_ratio > s.max_ratio:
        yield f"search.min_ratio={s.min_ratio} must not exceed search.max_ratio={s.max_ratio}"
    if s.mbr != "none" and s.method == "beam" and s.beam < 3:
        yield f"search.mbr={s.mbr} chooses among candidates and needs search.beam of 3 or more, or search.method=sample"


def _frozen_at_random(settings: Settings) -> list[str]:
    """What a run without a model to begin with would keep; embeddings may begin with word vectors."""
    m, t = settings.model, settings.training
    begun = {side for side in ("source", "target") if getattr(m, f"{side}_vectors") is not None}
    begun = {"source", "target"} if begun and m.tie_source else begun
    kept = {part.strip() for part in (t.freeze or "").split(",")} - begun - {""}
    if t.start is not None or not kept:
        return []
    return [f"training.freeze={t.freeze} would keep random weights as they are: it needs a model, --from MODEL"]


def check_idle(settings: Settings) -> None:
    """Refuse what would have no effect. For new runs only: a trained model keeps what it was trained with."""
    m = settings.model
    idle = ["decoder_layers", "token_dropout"] if m.kind == "rnn" else ["cell", "attention", "bidirectional"]
    wrong = [
        f"model.{key}={str(getattr(m, key)).lower()} has no effect with model.kind={m.kind}; leave it out"
        for key in idle
        if getattr(m, key) != getattr(ModelSettings, key)
    ]
    if m.kind == "rnn" and not m.attention and m.score != ModelSettings.score:
        wrong.append(f"model.score={m.score} has no effect with model.attention=false; leave it out")
    wrong += _frozen_at_random(settings)
    if wrong:
        raise SettingsError("; ".join(wrong))
