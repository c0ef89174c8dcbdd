"""The same trained weights in other translators, for benchmarks/decoding.py: HF generate and CTranslate2.

Each is a function from token ids of sources to token ids of their translations, best first.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.layout import lay_out
from transduce.core.special import BEGIN, END, PAD, UNKNOWN
from transduce.core.transformer import Transformer
from transduce.formats.ctranslate2_out import convert, token_name

Sources = list[list[int]]
Translate = Callable[[Sources], list[list[int]]]


def as_hugging_face(model: Transformer) -> Any:
    """A model of Hugging Face's with the numbers of ours (sin/cos positions): Marian, or Pegasus with norms before."""
    from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

    first = model.encoder[0]
    before = first.self_residual.norm_before
    config_class, model_class = (
        (PegasusConfig, PegasusForConditionalGeneration) if before else (MarianConfig, MarianMTModel)
    )
    sides = {"attention_heads": first.self_attention.heads, "ffn_dim": first.feed_forward.inner.out_features}
    config = config_class(
        vocab_size=model.target.tokens.num_embeddings,
        d_model=model.projection.in_features,
        **{f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sides.items()},
        encoder_layers=len(model.encoder),
        decoder_layers=len(model.decoder),
        max_position_embeddings=len(model.source.positions.table),
        activation_function={F.relu: "relu", F.gelu: "gelu", F.silu: "silu"}[first.feed_forward.activation],
        scale_embedding=model.source.scale != 1,
        share_encoder_decoder_embeddings=model.source.tokens is model.target.tokens,
        tie_word_embeddings=model.projection.weight is model.target.tokens.weight,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=BEGIN,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
    )
    theirs = model_class(config).eval()
    with torch.no_grad():
        for a, b in _pairs(model, theirs):
            b.weight.copy_(a.weight)
            if getattr(b, "bias", None) is not None:
                b.bias.copy_(a.bias)
        for side, stack in ((model.source, theirs.model.encoder), (model.target, theirs.model.decoder)):
            stack.embed_positions.weight.copy_(side.positions.table)
        if before:
            for norm, stack in ((model.encoder_norm, theirs.model.encoder), (model.decoder_norm, theirs.model.decoder)):
                stack.layer_norm.load_state_dict(norm.state_dict())
        if model.projection.bias is not None:
            theirs.final_logits_bias.copy_(model.projection.bias)
    theirs.generation_config.forced_eos_token_id = None
    return theirs


def _pairs(ours: Transformer, theirs: Any) -> list[tuple[nn.Module, nn.Module]]:
    """Modules that are the same."""
    pairs = [
        (ours.source.tokens, theirs.model.encoder.embed_tokens),
        (ours.target.tokens, theirs.model.decoder.embed_tokens),
        (ours.projection, theirs.lm_head),
    ]
    layers = [*zip(ours.encoder, theirs.model.encoder.layers, strict=True)]
    for a, b in [*layers, *zip(ours.decoder, theirs.model.decoder.layers, strict=True)]:
        attentions = [(a.self_attention, b.self_attn)]
        pairs += [(a.self_residual.norm, b.self_attn_layer_norm), (a.feed_forward_residual.norm, b.final_layer_norm)]
        pairs += [(a.feed_forward.inner, b.fc1), (a.feed_forward.outer, b.fc2)]
        if hasattr(a, "cross_attention"):
            attentions.append((a.cross_attention, b.encoder_attn))
            pairs.append((a.cross_residual.norm, b.encoder_attn_layer_norm))
        for mine, other in attentions:
            pairs += [(mine.query, other.q_proj), (mine.key, other.k_proj)]
            pairs += [(mine.value, other.v_proj), (mine.output, other.out_proj)]
    return pairs


def hugging_face(
    model: Transformer, device: str, dtype: torch.dtype, batch: int, static: bool = False, **options: Any
) -> Translate:
    """`generate`, on batches of like length, longest first. `options`: num_beams, max_new_tokens, ..."""
    theirs = as_hugging_face(model).to(device, dtype)
    more = {"cache_implementation": "static"} if static else {}

    def generate(some: Sources, limit: int) -> Tensor:
        rows = lay_out([[[*ids, END]] for ids in some]).to(device)
        mask = (rows.segments != 0).long()
        options_now = {"max_new_tokens": limit, **options}
        return theirs.generate(
            rows.tokens,
            attention_mask=mask,
            do_sample=False,
            suppress_tokens=[PAD, BEGIN, UNKNOWN],
            **more,
            **options_now,
        )

    @torch.inference_mode()
    def translate(sources: Sources) -> list[list[int]]:
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        results: list[list[int]] = [[] for _ in sources]
        for begin in range(0, len(order), batch):
            some = order[begin : begin + batch]
            found = generate([sources[i] for i in some], len(sources[some[0]]) + 51).tolist()
            for i, tokens in zip(some, found, strict=True):
                tokens = tokens[1:]
                results[i] = tokens[: tokens.index(END)] if END in tokens else [t for t in tokens if t != PAD]
        return results

    return translate


def ctranslate2(model: Transformer, precision: str, batch: int, **options: Any) -> Translate:
    """`translate_batch` with a thread a core, on batches of like length. `options`: beam_size, length_penalty, ..."""
    import ctranslate2 as library

    folder = Path(tempfile.mkdtemp()) / "model"
    folder.mkdir()
    convert(model, folder)
    cores = len(os.sched_getaffinity(0))
    translator = library.Translator(str(folder), compute_type=precision, inter_threads=cores, intra_threads=1)
    never = [[token_name(PAD)], [token_name(BEGIN)]]

    def translate(sources: Sources) -> list[list[int]]:
        named = [[*map(token_name, ids), token_name(END)] for ids in sources]
        found = translator.translate_batch(
            named, max_batch_size=batch, disable_unk=True, suppress_sequences=never, max_input_length=0, **options
        )
        return [[int(token) for token in result.hypotheses[0]] for result in found]

    return translate
