"""Settings: frozen dataclasses, composed from a preset, a YAML file and flags, in rising strength.

Every setting has one name (`section.key`), one type, one default and one sentence of help. An unknown
key, a wrong type and an impossible combination are refused before any work starts.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from transduce.errors import SettingsError, did_you_mean

T = TypeVar("T")
LARGEST = 2**31  # of whole numbers, so that a slip of the finger is not taken for a size


def setting(
    default: T, help: str, *, least: float | None = None, above: float | None = None, below: float | None = None
) -> T:
    """A dataclass field with its sentence of help, and the range of its numbers."""
    limits = {"at least": least, "above": above, "below": below}
    stated = {words: limit for words, limit in limits.items() if limit is not None}
    return field(default=default, metadata={"help": help, "limits": stated})


@dataclass(frozen=True)
class ModelSettings:
    """The model; the defaults are the paper's base Transformer."""

    kind: Literal["transformer", "rnn", "classifier"] = setting(
        "transformer", "transformer; rnn; classifier: a Transformer's encoder that gives labels"
    )
    score: Literal["scaled", "dot", "additive", "bilinear"] = setting("scaled", "how attention compares query and key")
    score_rank: int | None = setting(None, "rank of the bilinear score's matrix; none: full", least=1)
    cell: Literal["gru", "lstm"] = setting("gru", "of an rnn")
    attention: bool = setting(True, "whether an rnn's decoder looks back at all states of its encoder")
    bidirectional: bool = setting(True, "whether an rnn reads the source in both directions")
    layers: int = setting(6, "encoder layers, and decoder layers unless set apart (N)", least=1)
    decoder_layers: int | None = setting(None, "decoder layers; none: as many as model.layers", least=1)
    d_model: int = setting(512, "width of the residual stream", least=1)
    d_ff: int = setting(2048, "inner width of the feed-forward layer", least=1)
    heads: int = setting(8, "attention heads (h)", least=1)
    d_k: int | None = setting(None, "width of a head's queries and keys; none: d_model / heads", least=1)
    d_v: int | None = setting(None, "width of a head's values; none: d_model / heads", least=1)
    norm: Literal["after", "before"] = setting("after", "layer norm after each sublayer (paper) or before it")
    final_norm: bool | None = setting(None, "norm at the end of each stack; none: only where norm is before")
    embedding_norm: bool = setting(False, "norm right after embedding and position")
    eps: float = setting(1e-5, "epsilon of every layer norm", above=0)
    attention_bias: bool = setting(True, "biases in the projections of q, k, v and o")
    output_bias: bool = setting(False, "bias in the projection onto the vocabulary")
    positions: Literal["sinusoid", "learned"] = setting("sinusoid", "fixed sin/cos or a learned table")
    max_positions: int = setting(
        1024, "longest sentence in tokens; a longer source is cut, with status 'truncated'", least=1
    )
    scale: Literal["embedding", "projection", "none"] = setting(
        "embedding", "times sqrt(d_model) at the embedding, by 1/sqrt(d_model) at the projection, or neither"
    )
    tie_output: bool = setting(True, "target embedding = output projection")
    tie_source: bool = setting(True, "source embedding = target embedding (needs text.joint)")
    activation: Literal["relu", "gelu", "swish"] = setting("relu", "inside the feed-forward layer")
    dropout: float = setting(0.1, "on each sublayer's output and on the embeddings", least=0, below=1)
    embedding_dropout: float | None = setting(None, "on embedding + position; none: model.dropout", least=0, below=1)
    token_dropout: float = setting(0.0, "share of tokens that are hidden from the model in training", least=0, below=1)
    residual_dropout: float | None = setting(None, "on each sublayer's output; none: model.dropout", least=0, below=1)
    attention_dropout: float = setting(0.0, "on the attention weights", least=0, below=1)
    feed_forward_dropout: float = setting(0.0, "inside the feed-forward layer", least=0, below=1)


@dataclass(frozen=True)
class TextSettings:
    """From characters to token ids."""

    tokenizer: Literal["bpe", "unigram", "words", "characters"] = setting("bpe", "how text is cut into tokens")
    target_tokenizer: Literal["same", "labels"] = setting(
        "same", "same: as text.tokenizer; labels: a whole line of the target is one token"
    )
    vocabulary: int = setting(8000, "number of tokens, the four special ones included (words: at most)", least=1)
    joint: bool = setting(True, "one vocabulary for both languages")
    lowercase: bool = setting(False, "lower-case all text; the model then writes lower case")
    coverage: float = setting(0.9999, "share of the text's characters that the subword vocabulary must cover")
    byte_fallback: bool = setting(False, "spell characters outside the vocabulary as bytes (adds 256 tokens)")
    sampling: float = setting(
        0.0, "subword sampling in training: BPE dropout rate, or unigram smoothing alpha; 0 is off", least=0, below=1
    )
    variants: int = setting(8, "segmentations of each sentence that sampling draws; an epoch uses one of them", least=1)


@dataclass(frozen=True)
class DataSettings:
    """Which text, and what is left out of it."""

    source: str | None = setting(None, "training text; .gz also; a .tsv or .jsonl holds both sides")
    target: str | None = setting(None, "its translation, line by line")
    valid_source: str | None = setting(None, "validation text")
    valid_target: str | None = setting(None, "its translation")
    hold_out: int = setting(500, "without validation files: pairs set aside (at most a twentieth); 0: none", least=0)
    drop_empty: bool = setting(True, "leave out pairs with an empty side")
    drop_identical: bool = setting(False, "leave out pairs whose two sides are the same")
    drop_duplicates: bool = setting(False, "leave out pairs seen before")
    max_tokens: int = setting(256, "leave out pairs with a longer side", least=1)
    max_ratio: float | None = setting(None, "leave out pairs with one side this many times longer", least=1)
    cache: str | None = setting(None, "folder for tokenized text; none: inside the run folder")


BATCH_TOKENS = 4096


@dataclass(frozen=True)
class BatchSettings:
    """How sentences share a step."""

    tokens: int | Literal["auto"] = setting(
        BATCH_TOKENS, "slots of a batch on each side, empty ones included; auto: what fits into the GPU", least=1
    )
    layout: Literal["auto", "buckets", "packed"] = setting(
        "auto",
        "buckets: one sentence a row; packed: several, in one fixed shape; auto: packed on CUDA",
    )
    row: int | None = setting(
        None, "slots of a row in the packed layout; none: 128, or more if a sentence needs it", least=1
    )
    accumulate: int = setting(1, "batches summed before an update", least=1)
    split: int = setting(1, "parts that a batch is worked on in: the same update in less memory", least=1)


@dataclass(frozen=True)
class OptimizerSettings:
    """The optimizer and its learning rate; the defaults are the paper's."""

    name: Literal["adam", "adamw", "schedule_free", "muon"] = setting(
        "adam", "adamw: decay apart from the gradient; schedule_free: averages instead of a decaying rate; muon"
    )
    beta1: float = setting(0.9, "decay of the gradient's mean", least=0, below=1)
    beta2: float = setting(0.98, "decay of the gradient's square", least=0, below=1)
    eps: float = setting(1e-9, "added to the denominator", above=0)
    weight_decay: float = setting(0.0, "pull of the weights towards zero", least=0)
    clip: float | None = setting(None, "largest gradient norm; none: no clipping", above=0)
    schedule: Literal["noam", "inverse_sqrt", "cosine", "constant"] = setting("noam", "shape of the learning rate")
    factor: float = setting(1.0, "multiplies the noam schedule", above=0)
    rate: float = setting(1e-3, "highest learning rate of the other schedules", above=0)
    warmup: int = setting(4000, "steps of linear rise (all schedules)", least=1)


@dataclass(frozen=True)
class TrainingSettings:
    """How long, how watched, how kept."""

    steps: int | None = setting(100_000, "stop after this many updates", least=1)
    epochs: int | None = setting(None, "stop after this many passes over the data", least=1)
    minutes: float | None = setting(None, "stop after this much training time", above=0)
    label_smoothing: float = setting(0.1, "share of the probability spread over the vocabulary", least=0, below=1)
    seed: int = setting(1, "of weights, dropout and data order", least=0)
    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "auto: the best there is")
    precision: Literal["auto", "float32", "bfloat16"] = setting("auto", "auto: bfloat16 where a GPU has it")
    fast: bool = setting(True, "on a GPU: compiled, with our own kernels; false: plain PyTorch, the same numbers")
    log_every: int = setting(50, "updates between lines in metrics.jsonl", least=1)
    validate_every: int = setting(1000, "updates between validations; each also saves a checkpoint", least=1)
    bleu_lines: int = setting(500, "validation lines decoded for BLEU; 0: none", least=0)
    bleu_tokenizer: str = setting("13a", "sacreBLEU tokenizer; zh for Chinese")
    patience: int | None = setting(None, "stop after this many validations without a better one", least=1)
    ema: float | None = setting(
        None, "decay of a moving average of the weights, such as 0.999; it is then the model", least=0, below=1
    )
    average: int = setting(5, "checkpoints in the averaged weights", least=1)
    keep: int = setting(2, "complete checkpoints kept for resuming", least=1)
    keep_best: int = setting(0, "weights of the best validations kept, to be averaged too", least=0)
    max_skipped: int = setting(10, "stop after so many batches in a row whose loss or gradient is no number", least=1)
    tensorboard: bool = setting(False, "also write RUN/tensorboard (needs the extra: tensorboard)")


@dataclass(frozen=True)
class SearchSettings:
    """How translations are looked for."""

    beam: int = setting(4, "hypotheses kept side by side; 1 is greedy", least=1)
    length_penalty: float = setting(0.6, "alpha in ((5 + length) / 6) ** alpha", least=0)
    extra: int = setting(50, "longest output: source tokens + this", least=0)
    tokens: int = setting(4096, "slots of a decoding batch, beams included", least=1)


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run."""

    model: ModelSettings = field(default_factory=ModelSettings)
    text: TextSettings = field(default_factory=TextSettings)
    data: DataSettings = field(default_factory=DataSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    search: SearchSettings = field(default_factory=SearchSettings)


Overrides = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Entry:
    """One setting as help and messages show it."""

    name: str
    type: Any
    default: Any
    help: str
    limits: Mapping[str, float]

    def is_within(self, value: Any) -> bool:
        """Whether a number respects the limits; what is no number does."""
        if not isinstance(value, int | float):
            return True
        holds = {"at least": operator.ge, "above": operator.gt, "below": operator.lt}
        return all(holds[words](value, limit) for words, limit in self.limits.items())

    @property
    def choices(self) -> tuple[str, ...]:
        """What a setting of few values can be."""
        return typing.get_args(self.type) if typing.get_origin(self.type) is Literal else ()


def entries() -> Iterator[Entry]:
    """Every setting there is, in order."""
    for section in dataclasses.fields(Settings):
        cls: Any = section.default_factory
        hints = typing.get_type_hints(cls)
        for f in dataclasses.fields(cls):
            yield Entry(f"{section.name}.{f.name}", hints[f.name], f.default, f.metadata["help"], f.metadata["limits"])


def compose(*layers: Overrides, base: Settings | None = None) -> Settings:
    """Settings from layers of `{section: {key: value}}`, later layers stronger, checked as a whole."""
    known = {entry.name: entry for entry in entries()}
    values = {name: entry.default for name, entry in known.items()} if base is None else flat(base)
    for layer in layers:
        for name, value in _names(layer):
            if name not in known:
                raise SettingsError(f"unknown setting {name}{did_you_mean(name, known)}")
            values[name] = _convert(known[name], value)
    sections: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = value
    hints = typing.get_type_hints(Settings)
    settings = Settings(**{section: hints[section](**keys) for section, keys in sections.items()})
    check(settings)
    return settings


def flat(settings: Settings) -> dict[str, Any]:
    """`{"model.layers": 6, ...}`."""
    return {f"{s}.{k}": v for s, keys in dataclasses.asdict(settings).items() for k, v in keys.items()}


def read(path: str | Path) -> Overrides:
    """The settings that a YAML file gives."""
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"cannot read the settings file {path}: {reason}") from error
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f" near line {place.line + 1}" if place else ""
        raise SettingsError(f"{path} is not valid YAML{where}; write 'section:' and 'key: value' lines") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path} must hold sections such as 'model:', not a {type(content).__name__}")
    return content


def write(settings: Settings) -> str:
    """The settings as YAML that `read` takes back."""
    return yaml.safe_dump(dataclasses.asdict(settings), sort_keys=False, allow_unicode=True)


def check(settings: Settings) -> None:
    """Raise one SettingsError that names every impossible value or combination."""
    values = flat(settings)
    wrong = [
        f"{entry.name}={values[entry.name]} must be {' and '.join(f'{words} {n}' for words, n in entry.limits.items())}"
        for entry in entries()
        if not entry.is_within(values[entry.name])
    ]
    wrong += [] if wrong else _impossible_model(settings)
    wrong += [*_impossible_text(settings), *_impossible_training(settings)]
    if wrong:
        raise SettingsError("; ".join(wrong))


def _impossible_model(settings: Settings) -> Iterator[str]:
    m, t, b = settings.model, settings.text, settings.batch
    if m.kind != "rnn" and (m.d_k is None or m.d_v is None) and m.d_model % m.heads:
        yield f"model.d_model={m.d_model} must be a multiple of model.heads={m.heads}"
    if (m.kind == "classifier") != (t.target_tokenizer == "labels"):
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
    if m.kind != "rnn" and m.positions == "sinusoid" and m.d_model % 2:
        yield f"model.d_model={m.d_model} must be even for sin/cos positions"
    if m.tie_source and not t.joint:
        yield "model.tie_source=true needs text.joint=true, one vocabulary for both languages"


def _impossible_text(settings: Settings) -> Iterator[str]:
    t, d = settings.text, settings.data
    if t.target_tokenizer == "labels" and t.joint:
        yield "text.target_tokenizer=labels needs text.joint=false: labels are not words of the text"
    if t.sampling and t.tokenizer not in ("bpe", "unigram"):
        yield f"text.sampling={t.sampling} needs text.tokenizer bpe or unigram, not {t.tokenizer}"
    if t.byte_fallback and t.tokenizer not in ("bpe", "unigram"):
        yield f"text.byte_fallback=true needs text.tokenizer bpe or unigram, not {t.tokenizer}"
    if not 0 < t.coverage <= 1:
        yield f"text.coverage={t.coverage} must be above 0 and at most 1"
    if d.max_tokens > settings.model.max_positions:
        yield f"data.max_tokens={d.max_tokens} must not exceed model.max_positions={settings.model.max_positions}"


def _impossible_training(settings: Settings) -> Iterator[str]:
    b, o, t = settings.batch, settings.optimizer, settings.training
    if b.layout != "buckets" and b.row is not None and b.tokens != "auto" and b.row > b.tokens:
        yield f"batch.row={b.row} must not exceed batch.tokens={b.tokens}"
    if o.name == "schedule_free" and o.beta1 == 0:
        yield "optimizer.beta1=0 must be above 0 for optimizer.name=schedule_free, which averages by it"
    if o.name == "schedule_free" and t.ema:
        yield f"training.ema={t.ema} does not go with optimizer.name=schedule_free, which is an average already"
    if o.schedule == "cosine" and t.steps is None:
        yield "optimizer.schedule=cosine needs training.steps, the step where it reaches zero"
    if t.steps is None and t.epochs is None and t.minutes is None:
        yield "one of training.steps, training.epochs and training.minutes must be set"


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
    if wrong:
        raise SettingsError("; ".join(wrong))


def _names(layer: Overrides) -> Iterator[tuple[str, Any]]:
    sections = [f.name for f in dataclasses.fields(Settings)]
    for section, keys in layer.items():
        if isinstance(keys, Mapping):
            yield from ((f"{section}.{key}", value) for key, value in keys.items())
        elif section in sections and keys is None:
            continue  # a section of a file with nothing in it
        elif section in sections:
            raise SettingsError(
                f"{section} is a section: write {section}.key with one of its keys, not {section}={keys}"
            )
        else:
            yield str(section), keys


def _convert(entry: Entry, value: Any) -> Any:
    """`value`, from YAML or from a flag's text, as the entry's type."""
    options = options_of(entry.type)
    if isinstance(value, str) and value.lower() in ("none", "null") and type(None) in options:
        return None
    for option in options:
        if typing.get_origin(option) is Literal:
            if value in typing.get_args(option):
                return value
            if len(options) > 1:
                continue
            choices = typing.get_args(option)
            hint = did_you_mean(str(value), choices)
            raise SettingsError(f"{entry.name}={value} must be one of {', '.join(choices)}{hint}")
        if option is bool and str(value).lower() in ("true", "yes", "on", "false", "no", "off"):
            return str(value).lower() in ("true", "yes", "on")
        if option is type(None) and value is None:
            return None
        if option is str and isinstance(value, str | Path):
            return str(value)
        if option in (int, float) and not isinstance(value, bool):
            try:
                number = float(str(value).replace("_", ""))
            except ValueError:
                continue
            if option is float and math.isfinite(number):
                return number
            if option is int and math.isfinite(number) and number == int(number) and abs(number) < LARGEST:
                return int(number)
    kind = " or ".join(describe_type(option) for option in options)
    raise SettingsError(f"{entry.name}={value} must be {kind}")


def options_of(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)


def describe_type(kind: Any) -> str:
    """A type in the words of a message."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "none"}
    return words.get(kind) or " | ".join(typing.get_args(kind))
