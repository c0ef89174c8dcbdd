"""A Transformer as a folder of Hugging Face's, which loads there without network.

With norms after its layers it is a MarianMTModel, with norms before them a PegasusForConditionalGeneration; both with
MarianTokenizer's files. Their sin/cos table has all sines first. Where ours has sines and cosines in turns, the places
of the residual stream are put into that order, in every weight that reads or writes it: the same model, renumbered.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.files import strict_json
from transduce.formats.hugging_face_in import CONFIG, EMBEDDINGS, GENERATION, SHARED, layer_names
from transduce.formats.hugging_face_weights import WEIGHTS
from transduce.models.load import Loaded
from transduce.models.weights import tensor_bytes
from transduce.nn.positions import halves_table
from transduce.settings.sections import ModelSettings, SearchSettings, Settings
from transduce.text.special import BEGIN, END, PAD, UNKNOWN

WRITES = ("output", "outer")  # modules whose outputs go into the residual stream; others read it
TOKENIZER = "tokenizer_config.json"
TYPICAL = 15  # tokens of a translation: for that length the two penalties are made to weigh one token more alike


def why_not(settings: Settings) -> str | None:
    """What the format does that keeps a model from going out, as words that follow "the format ..."; None: nothing."""
    m, t = settings.model, settings.text
    before = m.norm == "before"
    reasons = {
        "has Transformers only": m.kind != "transformer",
        "has the scaled dot score only": m.score != "scaled",
        "shares the model's width among heads": {m.d_k or m.d_model // m.heads, m.d_v or m.d_model // m.heads}
        != {m.d_model / m.heads},
        "has biases in every projection": not m.attention_bias,
        "has the paper's sin/cos positions only": m.positions not in ("sinusoid", "halves"),
        "has no norm of the embeddings": m.embedding_norm,
        "has a final norm where the norm comes before, and none where it comes after": m.final_norm
        not in (None, before),
        "scales embeddings or nothing": m.scale == "projection",
        "has norms with an epsilon of 1e-5": m.eps != 1e-5,
        "has no model with two vocabularies and norms before the layers (ctranslate2 and onnx have; or train with "
        "model.norm=after)": before and not (t.joint or t.same_ids),
        "cuts text with SentencePiece": t.tokenizer not in ("bpe", "unigram"),
        "knows no marks of case (text.case=marks)": t.case == "marks",
        "cannot lower-case text": t.lowercase,
        "ends every source with </s> (model.source_end)": not m.source_end,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def files(loaded: Loaded) -> dict[str, bytes]:
    """The files of the folder by name."""
    settings, shared = loaded.settings, loaded.settings.text.joint or loaded.settings.text.same_ids
    sides = loaded.tokenizers.files()
    source, target = [*sides.values()][0], [*sides.values()][-1]
    vocabularies = [side.pieces(range(side.size)) for side in (loaded.tokenizers.source, loaded.tokenizers.target)]
    numbered = [{_their_name(token): i for i, token in enumerate(tokens)} for tokens in vocabularies]
    sizes = (len(vocabularies[0]), len(vocabularies[1]))
    written = {
        CONFIG: _json(_config(settings, sizes, shared)),
        GENERATION: _json(_generation(settings)),
        TOKENIZER: _json({"tokenizer_class": "MarianTokenizer", "separate_vocabs": not shared}),
        "source.spm": source,
        "target.spm": target,
        "vocab.json": _json(numbered[0]),
        WEIGHTS: tensor_bytes(_weights(loaded, shared), {"format": "pt"}),
    }
    return written if shared else {**written, "target_vocab.json": _json(numbered[1])}


def _their_name(token: str) -> str:
    """The mark of a language stands before the text there, and has no space."""
    return token.removeprefix("▁") if token.startswith("▁>>") and token.endswith("<<") else token


def _config(settings: Settings, sizes: tuple[int, int], shared: bool) -> dict[str, Any]:
    m = settings.model
    kind, name = ("pegasus", "PegasusForConditionalGeneration") if m.norm == "before" else ("marian", "MarianMTModel")
    sides = {"attention_heads": m.heads, "ffn_dim": m.d_ff}
    layers = {"encoder": m.layers, "decoder": m.decoder_layers or m.layers}
    return {
        "model_type": kind,
        "architectures": [name],
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
        "pad_token_id": PAD,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "decoder_start_token_id": BEGIN,
        "forced_eos_token_id": END if settings.search.forced_end else None,
    }


def _generation(settings: Settings) -> dict[str, Any]:
    """As near to our search as `generate` comes: its penalty is a power of the length, and where ours is exact it
    stops earlier (`never` would go on to the last position: it knows no limit of a sentence)."""
    s = settings.search
    return {
        "num_beams": s.beam,
        "length_penalty": nearest_power(s),
        "early_stopping": s.stop == "usual" and s.beam > 1,
        "max_length": settings.model.max_positions,
        "bad_words_ids": [[PAD], [UNKNOWN], [BEGIN]],
        "pad_token_id": PAD,
        "eos_token_id": END,
        "decoder_start_token_id": BEGIN,
        **({"forced_eos_token_id": END} if s.forced_end else {}),
        **({"no_repeat_ngram_size": s.no_repeat} if s.no_repeat else {}),
        **({"min_length": s.min_length + 1} if s.min_length else {}),  # what a translation begins with counts there
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
        return Order(every if m.positions == "halves" else torch.cat([every[0::2], every[1::2]]))

    def read(self, weight: Tensor) -> Tensor:
        """A weight whose columns read the stream."""
        return weight[:, self.places].contiguous()

    def written(self, weight: Tensor) -> Tensor:
        """A weight whose rows write it, or a bias or norm of it."""
        return weight[self.places].contiguous()


def _weights(loaded: Loaded, shared: bool) -> dict[str, Tensor]:
    model, m = loaded.model, loaded.settings.model
    order, ours = Order.of(m), {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    theirs: dict[str, Tensor] = {}
    for name, other in layer_names(m).items():
        weight, bias = ours[f"{name}.weight"], ours[f"{name}.bias"]
        writes = name.endswith(WRITES) or name.endswith("norm")
        theirs[f"{other}.weight"] = order.written(weight) if writes else order.read(weight)
        theirs[f"{other}.bias"] = order.written(bias) if writes else bias.clone()
    if m.norm == "before":
        for stack in ("encoder", "decoder"):
            for part in ("weight", "bias"):
                theirs[f"model.{stack}.layer_norm.{part}"] = order.written(ours[f"{stack}_norm.{part}"])
    tables = [order.read(ours[f"{side}.tokens.weight"]) for side in ("source", "target")]
    if shared and m.tie_source:
        theirs[SHARED] = tables[1]
    else:
        theirs |= dict(zip(EMBEDDINGS, tables, strict=True))
    if not m.tie_output:
        theirs["lm_head.weight"] = order.read(ours["projection.weight"])
    bias = ours.get("projection.bias")
    theirs["final_logits_bias"] = torch.zeros(1, len(tables[1])) if bias is None else bias.unsqueeze(0).clone()
    for stack in ("encoder", "decoder"):
        theirs[f"model.{stack}.embed_positions.weight"] = halves_table(m.max_positions, m.d_model)
    return theirs


def _json(content: dict[str, Any]) -> bytes:
    return strict_json.dumps(content, indent=1).encode()


class Copy:
    """Hugging Face's library with such a folder."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, logging  # noqa: PLC0415  (not needed to write)

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        with warnings.catch_warnings(action="ignore"):  # it recommends another package
            self.model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
            self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.forced = self.model.generation_config.forced_eos_token_id is not None

    @torch.inference_mode()
    def translate(self, line: str, beam: int, most: int) -> str:
        rows, most = self.tokenizer([line], return_tensors="pt"), most + self.forced
        out = self.model.generate(**rows, num_beams=beam, do_sample=False, max_new_tokens=most, max_length=None)
        return str(self.tokenizer.decode(out[0], skip_special_tokens=True, use_source_tokenizer=False))

    @torch.inference_mode()
    def log_probabilities(self, source: list[int], target: list[int]) -> np.ndarray:
        """Of each token of a target, and of its END."""
        rows, before = torch.tensor([[*source, END]]), torch.tensor([[BEGIN, *target]])
        logits = self.model(input_ids=rows, decoder_input_ids=before).logits[0]
        return logits.log_softmax(-1)[range(len(target) + 1), [*target, END]].numpy()
