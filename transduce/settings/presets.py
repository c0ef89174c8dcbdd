"""Named starting points. A preset is settings that a file or a flag may still change."""

from __future__ import annotations

from typing import NamedTuple

from transduce.errors import SettingsError, did_you_mean
from transduce.settings.sections import Overrides


class Preset(NamedTuple):
    summary: str
    settings: Overrides
    remarks: tuple[str, ...] = ()  # what a list of settings does not tell


# What the bundled corpus wants, so that models of different kinds can be compared on it.
SMALL_TEXT: Overrides = {
    "text": {"vocabulary": 1000},
    "batch": {"tokens": 1024},
    "optimizer": {"schedule": "cosine", "rate": 3e-3, "warmup": 200, "clip": 1.0},
    "training": {"steps": 900, "validate_every": 300, "log_every": 20},
}
RECURRENT = {"kind": "rnn", "layers": 1, "d_model": 192, "cell": "gru", "max_positions": 256}
# The four teaching implementations of the lecture notes. Nothing is shared there but by the last one. The vocabulary is
# one that the bundled corpus has words for; for other text raise it.
APART = {"tie_output": False, "tie_source": False}
NOTES: Overrides = {"text": {"vocabulary": 1000, "joint": False}, "batch": {"tokens": 4096}}

AUTO = "auto"
PRESETS: dict[str, Preset] = {
    AUTO: Preset(
        "Chosen by a look at the text, the machine and the time; what is trained with where nothing else is said.",
        {},
        ("Nothing is settled before training begins; it then tells every choice with its reason.",),
    ),
    "tiny": Preset(
        "About 0.8 million weights: learns the bundled corpus in two and a half minutes on two cores.",
        {
            "model": {"layers": 2, "d_model": 128, "d_ff": 256, "heads": 4, "max_positions": 256},
            **SMALL_TEXT,
        },
    ),
    "small": Preset(
        "About 3 million weights: tens of thousands of sentence pairs in half an hour on two cores.",
        {
            "model": {"layers": 2, "d_model": 192, "d_ff": 768, "heads": 4, "norm": "before", "dropout": 0.15},
            "text": {"vocabulary": 4000},
            "batch": {"tokens": 1024},
            "optimizer": {"schedule": "cosine", "rate": 2e-3, "warmup": 800, "clip": 1.0},
            "training": {"steps": 4000, "validate_every": 500},
        },
    ),
    "paper-base": Preset(
        "The paper's base model: 6+6 layers, d_model 512, about 63 million weights with 37,000 tokens.",
        {
            "text": {"vocabulary": 37_000},
            "batch": {"tokens": 25_000},
        },
    ),
    "paper-big": Preset(
        "The paper's big model: d_model 1024, 16 heads, dropout 0.3, about 214 million weights with 37,000 tokens.",
        {
            "model": {"d_model": 1024, "d_ff": 4096, "heads": 16, "dropout": 0.3},
            "text": {"vocabulary": 37_000},
            "batch": {"tokens": 25_000},
            "training": {"steps": 300_000, "average": 20},
        },
    ),
    "fasttext": Preset(
        "fastText's classifier: bags of words and pairs of words, trained in seconds; with --task classify.",
        {
            "model": {"kind": "fasttext", "tie_output": False, "tie_source": False},
            "text": {"joint": False, "target_tokenizer": "labels"},
            "vectors": {
                **{"objective": "labels", "loss": "softmax", "epochs": 10, "rate": 0.5},
                **{"min_count": 1, "longest": 0, "word_ngrams": 2, "power": 0.5},
            },
        },
        ("Only the sections vectors and data are read.",),
    ),
    "rnn": Preset(
        "GRU encoder and decoder without attention, about 0.6 million weights: for the bundled corpus, beside tiny.",
        {"model": {**RECURRENT, "attention": False}, **SMALL_TEXT},
        (
            "A recurrent network instead of the Transformer; heads, d_ff, norms and positions do nothing here.",
            "The encoder's last state u is all that the decoder knows of the source.",
        ),
    ),
    "rnn-attention": Preset(
        "GRU encoder and decoder with additive attention, about 0.8 million weights: for the bundled corpus.",
        {"model": {**RECURRENT, "attention": True, "score": "additive"}, **SMALL_TEXT},
        (
            "A recurrent network instead of the Transformer; heads, d_ff, norms and positions do nothing here.",
            "Before each word the decoder looks at all states of the encoder: c_t goes into the cell beside the word.",
        ),
    ),
    "notes-tutorial": Preset(
        "The first implementation of the lecture notes: free d_k and d_v, no embedding scale, nothing shared.",
        {**NOTES, "model": {**APART, "d_k": 64, "d_v": 64, "scale": "none", "max_positions": 5000}},
        (
            "The notes write the feed-forward layer as two 1x1 convolutions, which is the same arithmetic.",
            "Their slips are not repeated: the decoder embeds the target with its own table, its encoder-decoder "
            "attention has weights of its own, and dropout on the positions is applied.",
        ),
    ),
    "notes-annotated": Preset(
        "The second: embeddings times sqrt(d_model), eps 1e-6, dropout inside the feed-forward layer, output bias.",
        {
            **NOTES,
            "model": {
                **APART,
                "max_positions": 5000,
                "eps": 1e-6,
                "output_bias": True,
                "feed_forward_dropout": 0.1,
                "attention_dropout": 0.1,
            },
        },
        (
            "The notes divide by the unbiased standard deviation plus eps in their layer norm; here it is the paper's.",
            "Log-softmax at the output is part of the loss and of the search, not of the model.",
        ),
    ),
    "notes-seq2seq": Preset(
        "The third: 3+3 layers of width 256, learned positions for at most 100 tokens, output bias.",
        {
            **NOTES,
            "model": {
                **APART,
                "layers": 3,
                "d_model": 256,
                "d_ff": 512,
                "positions": "learned",
                "max_positions": 100,
                "output_bias": True,
                "attention_dropout": 0.1,
                "feed_forward_dropout": 0.1,
            },
            "data": {"max_tokens": 100},
        },
        ("The embedding is scaled by sqrt(d_model), which the notes leave open for this one.",),
    ),
    "notes-pytorch": Preset(
        "The fourth: no biases in attention, norm after the embedding, everything shared, scale at the projection.",
        {
            "text": {"vocabulary": 1000},
            "batch": {"tokens": 4096},
            "model": {
                "d_k": 64,
                "d_v": 64,
                "attention_bias": False,
                "embedding_norm": True,
                "eps": 1e-6,
                "scale": "projection",
                "max_positions": 200,
                "attention_dropout": 0.1,
            },
            "data": {"max_tokens": 200},
        },
        ("The notes' translator forgets the scale of the projection that training used; here both use it.",),
    ),
}


def find(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise SettingsError(f"unknown preset {name}{did_you_mean(name, PRESETS)}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]
