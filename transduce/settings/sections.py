"""The sections of the settings: frozen dataclasses. Every setting has one name (`section.key`), one type, one default,
one sentence of help and the range of its numbers, all of it here; compose.py puts them together, checks.py judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

T = TypeVar("T")
Texts = str | tuple[str, ...]  # one file, or several
Overrides = Mapping[str, Mapping[str, Any]]  # {section: {key: value}}: a preset, a file, flags


def listed(texts: Texts | None) -> tuple[str, ...]:
    """The files of a setting that names none, one or several."""
    return () if texts is None else (texts,) if isinstance(texts, str) else texts


def setting(
    default: T,
    help: str,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> T:
    """A dataclass field with its sentence of help, and the range of its numbers."""
    limits = {"at least": least, "above": above, "below": below, "at most": most}
    stated = {words: limit for words, limit in limits.items() if limit is not None}
    return field(default=default, metadata={"help": help, "limits": stated})


@dataclass(frozen=True)
class ModelSettings:
    """The model; the defaults are the paper's base Transformer."""

    kind: Literal["transformer", "rnn", "classifier", "fasttext"] = setting(
        "transformer",
        "transformer; rnn; classifier: a Transformer's encoder that gives labels; fasttext: section vectors",
    )
    score: Literal["scaled", "dot", "additive", "bilinear"] = setting("scaled", "how attention compares query and key")
    score_rank: int | None = setting(None, "rank of the bilinear score's matrix; none: full", least=1)
    cell: Literal["gru", "lstm"] = setting("gru", "recurrent cell, where model.kind=rnn")
    attention: bool = setting(True, "whether an rnn's decoder looks back at all states of its encoder")
    bidirectional: bool = setting(True, "whether an rnn reads the source in both directions")
    layers: int = setting(6, "encoder layers, and decoder layers unless set apart (N)", least=1, most=1000)
    decoder_layers: int | None = setting(None, "decoder layers; none: as many as model.layers", least=1, most=1000)
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
    positions: Literal["sinusoid", "halves", "fairseq", "marian", "learned"] = setting(
        "sinusoid",
        "sin/cos in turns, as in the paper; a learned table; or as converted models have it: halves, fairseq, marian",
    )
    max_positions: int = setting(
        1024, "longest sentence in tokens; a longer source is cut, with status 'truncated'", least=1, most=100_000
    )
    source_end: bool = setting(True, "the encoder reads the end of a source as a token; false in some converted models")
    scale: Literal["embedding", "projection", "none"] = setting(
        "embedding", "times sqrt(d_model) at the embedding, by 1/sqrt(d_model) at the projection, or neither"
    )
    tie_output: bool = setting(True, "target embedding = output projection")
    tie_source: bool = setting(True, "source embedding = target embedding (needs text.joint or text.same_ids)")
    source_vectors: str | None = setting(None, "file of word vectors that the source's embeddings begin with")
    target_vectors: str | None = setting(None, "file of word vectors that the embeddings of the target begin with")
    activation: Literal["relu", "gelu", "swish"] = setting("relu", "inside the feed-forward layer")
    dropout: float = setting(0.1, "on each sublayer's output and on the embeddings", least=0, below=1)
    embedding_dropout: float | None = setting(None, "on embedding + position; none: model.dropout", least=0, below=1)
    token_dropout: float = setting(0.0, "share of tokens that are hidden from the model in training", least=0, below=1)
    residual_dropout: float | None = setting(None, "on each sublayer's output; none: model.dropout", least=0, below=1)
    attention_dropout: float = setting(0.0, "on the attention weights", least=0, below=1)
    feed_forward_dropout: float = setting(0.0, "inside the feed-forward layer", least=0, below=1)


PROTECTED = ("urls", "emails", "tags", "placeholders", "numbers", "emoji")  # kinds of what can pass through unchanged


@dataclass(frozen=True)
class TextSettings:
    """From characters to token ids."""

    tokenizer: Literal["bpe", "unigram", "words", "characters", "bytes", "moses"] = setting(
        "bpe",
        "how text is cut into tokens; bytes (as in BART) and moses (as in some of Argos): only in converted models",
    )
    target_tokenizer: Literal["same", "labels"] = setting(
        "same", "same: as text.tokenizer; labels: a whole line of the target is one token"
    )
    vocabulary: int = setting(8000, "number of tokens, the four special ones included (words: at most)", least=1)
    target_vocabulary: int | None = setting(
        None, "the same for the target, where text.joint=false; none: as many as text.vocabulary", least=1
    )
    joint: bool = setting(True, "one vocabulary for both languages")
    same_ids: bool = setting(False, "two vocabularies, but a token has one id in both: so in converted models")
    lowercase: bool = setting(False, "lower-case all text; the model then writes lower case")
    case: Literal["typed", "marks"] = setting(
        "typed", "typed: as it is; marks: words in lower case, with a mark behind Capitalised ones and ALL CAPS"
    )
    protect: str | None = setting(None, f"what passes through unchanged, with commas: {', '.join(PROTECTED)}")
    protect_pattern: str | None = setting(None, "a regular expression: what it matches passes through unchanged")
    source_language: str | None = setting(None, "mark that every source begins with, in a model of many languages")
    target_language: str | None = setting(None, "mark that every translation begins with, likewise")
    mark_place: Literal["before", "behind"] = setting("before", "of the source's mark; behind: as in the older mBART")
    coverage: float = setting(0.9999, "share of the text's characters that the subword vocabulary must cover")
    byte_fallback: bool = setting(False, "spell characters outside the vocabulary as bytes (adds 256 tokens)")
    sampling: float = setting(
        0.0, "subword sampling in training: BPE dropout rate, or unigram smoothing alpha; 0 is off", least=0, below=1
    )
    variants: int = setting(8, "segmentations of each sentence that sampling draws; an epoch uses one of them", least=1)


@dataclass(frozen=True)
class DataSettings:
    """Which text, and what is left out of it."""

    source: Texts | None = setting(
        None,
        "training text, a file or a list of them; packed also; .tsv, .csv, .jsonl, .tmx and .parquet hold both sides",
    )
    target: Texts | None = setting(None, "its translation, line by line")
    valid_source: Texts | None = setting(None, "validation text")
    valid_target: Texts | None = setting(None, "its translation")
    weight: tuple[int, ...] | None = setting(
        None, "how often an epoch goes through each file of data.source, such as 1,3; none: once", least=1
    )
    columns: tuple[str, ...] | None = setting(
        None, "source and target: numbers in a .tsv or .csv, such as 1,3; names in a .csv, .jsonl or .parquet"
    )
    languages: tuple[str, ...] | None = setting(None, "source and target in a .tmx, such as de,en")
    hold_out: int = setting(500, "without validation files: pairs set aside (at most a twentieth); 0: none", least=0)
    drop_empty: bool = setting(True, "leave out pairs with an empty side")
    drop_identical: bool = setting(False, "leave out pairs whose two sides are the same")
    drop_duplicates: bool = setting(False, "leave out pairs seen before")
    max_tokens: int = setting(256, "leave out pairs with a longer side", least=1)
    max_ratio: float | None = setting(None, "leave out pairs with one side this many times longer", least=1)
    cache: str | None = setting(None, "folder for tokenized text; none: inside the run folder")


BATCH_TOKENS = 4096
TEXT_KEPT = 10_000  # lines of validation text that a store keeps as text, drawn from all of it, to be decoded


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
    schedule: Literal["noam", "inverse_sqrt", "cosine", "constant", "wsd"] = setting(
        "noam", "shape of the learning rate; wsd: warm-up, stable, decay, which fits any length and can be extended"
    )
    factor: float = setting(1.0, "multiplies the noam schedule", above=0)
    rate: float = setting(1e-3, "highest learning rate of the other schedules", above=0)
    warmup: int = setting(4000, "steps of linear rise (all schedules)", least=1)
    layer_decay: float = setting(
        1.0,
        "a layer learns at this share of the rate of the one above it: below 1 the first layers change least",
        above=0,
        most=1,
    )
    decay: float = setting(0.25, "share of the run, at its end, in which wsd lets the rate fall", above=0, below=1)


@dataclass(frozen=True)
class TrainingSettings:
    """How long, how watched, how kept."""

    steps: int | None = setting(100_000, "stop after this many updates", least=1)
    epochs: int | None = setting(None, "stop after this many passes over the data", least=1)
    minutes: float | None = setting(
        None, "time of the whole run, preparing and validating included; it sets optimizer.schedule=wsd", above=0
    )
    start: str | None = setting(None, "model folder that the run begins with: its shape, vocabulary and weights")
    teacher: str | None = setting(
        None, "model folder with the same vocabulary, whose probabilities of each token are learned too (distill)"
    )
    teacher_share: float = setting(0.5, "share of the loss that comes from the teacher", above=0, most=1)
    guided_alignment: float = setting(
        0.0,
        "weight of a loss that shows a head where to look, by a lexicon; with schedule=wsd until its decay",
        least=0,
    )
    new_vocabulary: bool = setting(False, "begin with the model's weights, but a vocabulary of the new text")
    freeze: str | None = setting(None, "parts that do not learn, with commas: encoder, decoder.0-2, source, projection")
    unfreeze_every: int | None = setting(
        None,
        "updates after which one more layer learns, the last layer first, embeddings last; none: all at once",
        least=1,
    )
    vectors_rest: int = setting(
        0, "updates for which embeddings that began with vectors stay as they are; for good: training.freeze", least=0
    )
    lora_rank: int | None = setting(None, "rank of adapters (LoRA), which then learn instead of the weights", least=1)
    lora_alpha: float | None = setting(None, "what adapters add counts alpha / rank times; none: twice", above=0)
    lora_parts: str = setting("query,value", "projections with an adapter: query, key, value, output, inner, outer")
    lora_dropout: float = setting(0.0, "share of an adapter's inputs that are left out in a batch", least=0, below=1)
    label_smoothing: float = setting(0.1, "share of the probability spread over the vocabulary", least=0, below=1)
    seed: int = setting(1, "of weights, dropout and data order", least=0)
    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "auto: the best there is")
    precision: Literal["auto", "float32", "bfloat16"] = setting("auto", "auto: bfloat16 where a GPU has it")
    fast: bool = setting(True, "on a GPU: compiled, with our own kernels; false: plain PyTorch, the same numbers")
    log_every: int = setting(50, "updates between lines in metrics.jsonl", least=1)
    validate_every: int = setting(1000, "updates between validations; each also saves a checkpoint", least=1)
    bleu_lines: int = setting(
        500, "validation lines decoded for BLEU, drawn from all of them; 0: none", least=0, most=TEXT_KEPT
    )
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
class VectorSettings:
    """Word vectors and the fast classifier; fastText's names in brackets, and its defaults for word vectors."""

    objective: Literal["skipgram", "cbow", "labels"] = setting(
        "skipgram", "a word predicts its neighbours; they predict it (cbow); a line predicts its labels"
    )
    loss: Literal["ns", "hs", "softmax", "ova"] = setting(
        "ns", "negative sampling; hierarchical softmax; softmax; one against all, for several labels a line"
    )
    dimension: int = setting(100, "numbers in a vector (dim)", least=1, most=10_000)
    epochs: int = setting(5, "how often the text is gone through (epoch)", least=1)
    rate: float = setting(0.05, "learning rate at the beginning; it falls to 0 (lr)", above=0)
    window: int = setting(5, "farthest neighbour that a word predicts (ws)", least=1, most=1000)
    negatives: int = setting(5, "of negative sampling, for each target (neg)", least=0, most=1000)
    power: float = setting(0.75, "negatives are drawn by their counts to this power", least=0, most=1)
    min_count: int = setting(5, "words that come less often have no row of their own (minCount)", least=1)
    min_label_count: int = setting(1, "labels that come less often are left out (minCountLabel)", least=1)
    subsample: float = setting(1e-4, "share of the text above which a word is often skipped (t)", above=0)
    shortest: int = setting(3, "characters of the shortest n-gram (minn)", least=1, most=100)
    longest: int = setting(6, "characters of the longest n-gram; 0: words only (maxn)", least=0, most=100)
    word_ngrams: int = setting(1, "words of the longest word n-gram, for labels (wordNgrams)", least=1, most=100)
    buckets: int = setting(2_000_000, "rows that n-grams are hashed into (bucket)", least=1, most=2_000_000_000)
    unseen: Literal["zero", "skipped"] = setting(
        "zero", "an n-gram that training has not seen counts as 0; or not at all, as in pruned .ftz files"
    )
    tokens: Literal["words", "characters", "bpe", "unigram"] = setting(
        "words", "cut at white space; Chinese characters one by one; or subwords, learned from the text"
    )
    pieces: int = setting(8000, "subwords in the vocabulary, where vectors.tokens is bpe or unigram", least=1)
    balance: bool = setting(False, "rare labels count as much as frequent ones")
    pretrained: str | None = setting(None, "file of vectors to begin with: .vec, .bin, word2vec or GloVe")
    threads: int | None = setting(None, "none: one a core; 1: the same result every time", least=1, most=1024)
    seed: int = setting(1, "of the first vectors and of all draws", least=0)


@dataclass(frozen=True)
class SearchSettings:
    """How translations are looked for."""

    method: Literal["beam", "sample"] = setting("beam", "the most probable that a beam finds; or drawn at random")
    beam: int = setting(4, "hypotheses kept side by side; 1 is greedy", least=1, most=1000)
    length_penalty: float = setting(0.6, "alpha of the length penalty; larger prefers longer", least=0, most=100)
    penalty: Literal["paper", "plain"] = setting("paper", "((5 + length) / 6) ** alpha, or length ** alpha")
    coverage_penalty: float = setting(0.0, "beta of the penalty for source words not looked at", least=0, most=100)
    stop: Literal["exact", "usual", "likely"] = setting(
        "exact", "when nothing open can win; when `beam` have ended; or when they have and none open is better so far"
    )
    groups: int = setting(1, "of beams that are kept apart (diverse beams)", least=1)
    diversity: float = setting(0.5, "taken from a token for each group that chose it before", least=0)
    temperature: float = setting(1.0, "of sampling; below 1 sharper", above=0, most=100)
    threshold: float = setting(0.0, "no label less probable than this is given (model.kind=fasttext)", least=0, most=1)
    top_k: int | None = setting(None, "draw among so many most probable tokens", least=1)
    top_p: float | None = setting(None, "draw among the fewest tokens with this share of probability", above=0, most=1)
    min_p: float | None = setting(None, "draw among tokens with this share of the best one's", above=0, most=1)
    seed: int = setting(1, "for drawing samples; a sentence draws the same in any company", least=0)
    min_length: int = setting(0, "fewest tokens of a translation", least=0)
    max_length: int | None = setting(None, "most tokens of a translation, its end counted as one", least=1)
    min_ratio: float = setting(0.0, "fewest tokens for each of the source", least=0, most=100)
    max_ratio: float | None = setting(None, "most tokens for each of the source", above=0, most=100)
    extra: int = setting(50, "most tokens of a translation beyond those of the source", least=0)
    forced_end: bool = setting(False, "at its limit a translation is given an end that costs nothing (Hugging Face)")
    no_repeat: int = setting(0, "no sequence of so many tokens comes twice; 0: it may", least=0)
    repetition_penalty: float = setting(1.0, "divides the hope of tokens written before", least=1, most=100)
    mbr: Literal["none", "chrf", "bleu"] = setting("none", "take the candidate most like the others, by this measure")
    candidates: int = setting(16, "samples that search.mbr chooses from; of a beam it takes all", least=2, most=1000)
    engine: Literal["auto", "plain", "ctranslate2"] = setting(
        "auto", "auto: the fast one where it knows the model; plain: the one to read; ctranslate2: an extra"
    )
    precision: Literal["auto", "float32", "bfloat16", "float16", "int16", "int8", "int8_float32"] = setting(
        "auto", "auto: float32, on a GPU bfloat16; whole numbers are ctranslate2's"
    )
    split: bool = setting(True, "translate the sentences of a line one by one, and those too long in pieces")
    tokens: int = setting(5120, "slots of a decoding batch, beams included", least=1)
    aligner: str | None = setting(None, 'head that links words, such as "4.2 reads"; training finds the best one')


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
    vectors: VectorSettings = field(default_factory=VectorSettings)
