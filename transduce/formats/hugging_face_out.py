"""A Transformer as a folder of Hugging Face's, which loads there without network.

With norms after its layers it is a MarianMTModel, with norms before them a PegasusForConditionalGeneration; both with
MarianTokenizer's files. Their sin/cos table has all sines first. Where ours has sines and cosines in turns, the places
of the residual stream are put into that order, in every weight that reads or writes it: the same model, renumbered.
What came from there as M2M100, NLLB, mBART or BART goes back as such, with the numbers that its tokens had.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.core.positions import halves_table
from transduce.core.special import END
from transduce.errors import ModelError
from transduce.files import strict_json
from transduce.formats.hugging_face_in import (
    CONFIG,
    EMBEDDINGS,
    GENERATION,
    KINDS,
    OFFSET,
    SHARED,
    STACKS,
    layer_names,
    outer_norms,
)
from transduce.formats.hugging_face_text_out import TextOut, text_of_bytes, text_of_many, text_of_two
from transduce.formats.hugging_face_weights import WEIGHTS
from transduce.models.load import Loaded
from transduce.models.weights import tensor_bytes
from transduce.settings.sections import ModelSettings, SearchSettings, Settings
from transduce.text.normalise import normalise

WRITES = ("output", "outer")  # modules whose outputs go into the residual stream; others read it
TEXTS = {"marian": text_of_two, "pegasus": text_of_two, "bart": text_of_bytes}
CLASSES = {
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
    "m2m_100": "M2M100ForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
}
TYPICAL = 15  # tokens of a translation: for that length the two penalties are made to weigh one token more alike


def why_not(settings: Settings) -> str | None:
    """What the format does that keeps a model from going out, as words that follow "the format ..."; None: nothing."""
    m, t = settings.model, settings.text
    kind = kind_of(m)
    marian = kind in ("marian", "pegasus")
    shared = t.joint or t.same_ids
    reasons = {
        "has Transformers only": m.kind != "transformer",
        "has the scaled dot score only": m.score != "scaled",
        "shares the model's width among heads": {m.d_k or m.d_model // m.heads, m.d_v or m.d_model // m.heads}
        != {m.d_model / m.heads},
        "has biases in every projection": not m.attention_bias,
        "has the paper's sin/cos positions, and others only as M2M100, mBART and BART have them": kind is None,
        "has a final norm where the norm comes before, and none where it comes after": m.final_norm
        not in (None, m.norm == "before"),
        "scales embeddings or nothing": m.scale == "projection",
        "has norms with an epsilon of 1e-5": m.eps != 1e-5,
        "has no model with two vocabularies and norms before the layers (ctranslate2 and onnx have; or train with "
        "model.norm=after)": m.norm == "before" and not shared,
        "has one table of embeddings in models of this kind": not marian and not (shared and m.tie_source),
        "cuts text with SentencePiece": kind != "bart" and t.tokenizer not in ("bpe", "unigram"),
        "cuts text by bytes in models of this kind": kind == "bart" and t.tokenizer != "bytes",
        "knows no marks of case (text.case=marks)": t.case == "marks",
        "cannot lower-case text": t.lowercase,
        "ends every source with </s> (model.source_end)": not m.source_end and t.mark_place == "before",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def kind_of(m: ModelSettings) -> str | None:
    """The kind of model that this is there, by what all of a kind have in common."""
    positions = "halves" if m.positions == "sinusoid" else m.positions
    looks = (m.norm, positions, m.embedding_norm)
    return next(
        (name for name, kind in KINDS.items() if (kind.norm, kind.positions, kind.embedding_norm) == looks), None
    )


def text_of(loaded: Loaded) -> TextOut:
    """Its tokenizer as the class of its kind has it."""
    return TEXTS.get(kind_of(loaded.settings.model) or "", text_of_many)(loaded)


def files(loaded: Loaded, text: TextOut) -> dict[str, bytes]:
    """The files of the folder by name."""
    settings = loaded.settings
    kind = kind_of(settings.model)
    assert kind is not None
    return {
        CONFIG: _json(_config(settings, kind, text)),
        GENERATION: _json(_generation(settings, text)),
        WEIGHTS: tensor_bytes(_weights(loaded, kind, text), {"format": "pt"}),
        **text.files,
    }


def _config(settings: Settings, kind: str, text: TextOut) -> dict[str, Any]:
    m, shared = settings.model, settings.text.joint or settings.text.same_ids
    sizes = [len(rows) for rows in text.rows]
    sides = {"attention_heads": m.heads, "ffn_dim": m.d_ff}
    layers = {"encoder": m.layers, "decoder": m.decoder_layers or m.layers}
    return {
        "model_type": kind,
        "architectures": [CLASSES[kind]],
        "vocab_size": sizes[0],
        **({} if shared else {"decoder_vocab_size": sizes[1]}),
        "d_model": m.d_model,
        **{f"{stack}_layers": count for stack, count in layers.items()},
        **{f"{stack}_{key}": value for stack in layers for key, value in sides.items()},
        "activation_function": m.activation,
        "dropout": m.dropout,
        "attention_dropout": m.attention_dropout,
        "activation_dropout": m.feed_forward_dropout,
        "max_position_embeddings": m.max_positions,
        "scale_embedding": m.scale == "embedding",
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": m.tie_output,
        **_special(text),
        "bos_token_id": text.special.begin if kind in ("marian", "pegasus") else 0,
        "forced_eos_token_id": text.special.end if settings.search.forced_end else None,
    }


def _special(text: TextOut) -> dict[str, Any]:
    pad, _, begin, end = text.special
    return {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": begin}


def _generation(settings: Settings, text: TextOut) -> dict[str, Any]:
    """As near to our search as `generate` comes: its penalty is a power of the length, and where ours is exact it
    stops earlier (`never` would go on to the last position: it knows no limit of a sentence)."""
    s, special = settings.search, text.special
    begin = 1 if text.first is None else 2  # tokens that a translation begins with, which their min_length counts
    never = {*text.unwritten, special.pad, special.unknown, special.begin} - {special.end}
    return {
        "num_beams": s.beam,
        "length_penalty": nearest_power(s),
        "early_stopping": s.stop == "usual" and s.beam > 1,
        "max_length": settings.model.max_positions,
        "bad_words_ids": [[i] for i in sorted(i for i in never if i is not None)],
        **_special(text),
        **({} if text.first is None else {"forced_bos_token_id": text.first}),
        **({"forced_eos_token_id": special.end} if s.forced_end else {}),
        **({"no_repeat_ngram_size": s.no_repeat} if s.no_repeat else {}),
        **({"min_length": begin + s.min_length} if s.min_length else {}),
    }


def nearest_power(s: SearchSettings) -> float:
    """The alpha of length ** alpha, as others have it, that is nearest to the length penalty here."""
    return s.length_penalty * (TYPICAL / (5 + TYPICAL) if s.penalty == "paper" else 1.0)


class Order(NamedTuple):
    """The order of places in the residual stream: new place -> old place."""

    places: Tensor

    @staticmethod
    def of(m: ModelSettings) -> Order:
        every = torch.arange(m.d_model)
        return Order(torch.cat([every[0::2], every[1::2]]) if m.positions == "sinusoid" else every)

    def read(self, weight: Tensor) -> Tensor:
        """A weight whose columns read the stream."""
        return weight[:, self.places].contiguous()

    def written(self, weight: Tensor) -> Tensor:
        """A weight whose rows write it, or a bias or norm of it."""
        return weight[self.places].contiguous()


def _weights(loaded: Loaded, kind: str, text: TextOut) -> dict[str, Tensor]:
    model, m = loaded.model, loaded.settings.model
    order, ours = Order.of(m), {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    theirs: dict[str, Tensor] = {}
    for name, other in {**layer_names(m), **outer_norms(m)}.items():
        weight, bias = ours[f"{name}.weight"], ours[f"{name}.bias"]
        writes = name.endswith(WRITES) or name.endswith("norm")
        theirs[f"{other}.weight"] = order.written(weight) if writes else order.read(weight)
        theirs[f"{other}.bias"] = order.written(bias) if writes else bias.clone()
    both = zip(("source", "target"), text.rows, strict=True)
    tables = [order.read(ours[f"{side}.tokens.weight"][rows]) for side, rows in both]
    if m.tie_source:
        theirs[SHARED] = tables[1]
    else:
        theirs |= dict(zip(EMBEDDINGS, tables, strict=True))
    if not m.tie_output:
        theirs["lm_head.weight"] = order.read(ours["projection.weight"][text.rows[1]])
    bias = ours.get("projection.bias", torch.zeros(len(ours["target.tokens.weight"])))[text.rows[1]]
    if KINDS[kind].has_bias:
        theirs["final_logits_bias"] = bias.unsqueeze(0)
    elif bias.any() or text.special.begin == len(bias) - 1:
        raise ModelError(
            "this model cannot go out to huggingface, where one of its kind has no bias of the projection, and begins "
            "with </s>: training has parted these here; what is trained with --training.freeze source,projection, or "
            "with --training.lora_rank 16, can go out"
        )
    for stack, side in STACKS.items():
        name = f"model.{stack}.embed_positions.weight"
        if m.positions == "learned":
            table = ours[f"{side}.positions.table.weight"]
            theirs[name] = torch.cat([table.new_zeros(OFFSET, m.d_model), table])
        elif kind in ("marian", "pegasus"):
            theirs[name] = halves_table(m.max_positions, m.d_model)
    return theirs


def _json(content: dict[str, Any]) -> bytes:
    return strict_json.dumps(content, indent=1).encode()


class Copy:
    """Hugging Face's library with such a folder. `settings`: of the model that it was made of."""

    def __init__(self, folder: Path, settings: Settings, text: TextOut) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, logging  # noqa: PLC0415  (not needed to write)

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        with warnings.catch_warnings(action="ignore"):  # it recommends another package
            self.model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
            self.tokenizer = AutoTokenizer.from_pretrained(folder)
        kind = kind_of(settings.model)
        self.numbers = [{row: i for i, row in enumerate(rows)} for rows in text.rows]  # theirs by ours
        self.special, self.source_end = text.special, settings.model.source_end
        self.first = [] if text.first is None else [text.first]
        if kind in ("m2m_100", "mbart"):
            self.tokenizer.src_lang = settings.text.source_language
        self.own = {"use_source_tokenizer": False} if kind in ("marian", "pegasus") else {}
        self.forced = self.model.generation_config.forced_eos_token_id is not None

    @torch.inference_mode()
    def translate(self, line: str, beam: int, most: int) -> str:
        rows, most = self.tokenizer([line], return_tensors="pt"), most + self.forced + len(self.first)
        out = self.model.generate(**rows, num_beams=beam, do_sample=False, max_new_tokens=most, max_length=None)
        return normalise(str(self.tokenizer.decode(out[0], skip_special_tokens=True, **self.own)))

    @torch.inference_mode()
    def log_probabilities(self, source: list[int], target: list[int]) -> np.ndarray:
        """Those of each token of a target, and of its END."""
        _, _, begin, end = self.special
        rows = [self._number(0, i) for i in source] + [end] * self.source_end
        written = [self._number(1, i) for i in target]
        before = [begin, *written]
        logits = self.model(input_ids=torch.tensor([rows]), decoder_input_ids=torch.tensor([before])).logits[0]
        return logits.log_softmax(-1)[range(len(before)), [*written, end]].numpy()

    def _number(self, side: int, ours: int) -> int:
        return self.special.end if ours == END else self.numbers[side][ours]
