"""Folders of other systems, with random weights and in the layout of the real ones."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from conftest import bundled_pairs

from transduce.formats.hugging_face_text import OF_MBART50
from transduce.formats.hugging_face_text_out import OF_M2M100
from transduce.model import Model
from transduce.text.byte_level import ByteLevelTokenizer
from transduce.text.tokenizers import Tokenizer

transformers = pytest.importorskip("transformers", reason="Hugging Face's models are compared with transformers")
PAIRS = bundled_pairs(400)
CODES = {"m2m_100": ["__de__", "__en__", "__zh__"], "nllb": ["deu_Latn", "eng_Latn"], "mbart": [*OF_MBART50]}
OF_M2M = [f"__{code}__" for code in next(iter(OF_M2M100))]  # all that its program knows


def sizes(d_model: int, encoder: int, decoder: int, heads: int, d_ff: int) -> dict[str, int]:
    """As config.json calls them."""
    both = {"attention_heads": heads, "ffn_dim": d_ff}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in both.items()}
    layers = {"encoder_layers": encoder, "decoder_layers": decoder}
    return {"d_model": d_model, "max_position_embeddings": 128, **layers, **sides}


SMALL = sizes(24, 2, 1, 3, 40)


def sentence_pieces(lines: list[str], size: int) -> bytes:
    """As OPUS-MT's are trained: unigram, with its own special pieces at the front."""
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=writer, vocab_size=size, model_type="unigram", minloglevel=2
    )
    return writer.getvalue()


def marian_folder(
    folder: Path, shared: bool = True, activation: str = "swish", tied: bool = True, sizes: Mapping[str, int] = SMALL
) -> Path:
    """A MarianMTModel with random weights, in the layout of OPUS-MT: end 0, unknown 1, pieces, languages, pad last."""
    folder.mkdir()
    sides = [[pair[i] for pair in PAIRS] for i in (0, 1)]
    vocabularies = []
    for name, lines, size in zip(("source", "target"), sides, (150, 120), strict=True):
        model = sentence_pieces(lines, size)
        (folder / f"{name}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        vocabularies.append([processor.id_to_piece(i) for i in range(3, size)])
    source, target = vocabularies
    listed = [sorted({*source, *target}), sorted({*source, *target})] if shared else [source, target]
    numbered = [["</s>", "<unk>", *pieces, ">>eng<<", "<pad>"] for pieces in listed]
    if not shared:  # ids of special tokens are the same in both
        numbered = [["</s>", "<unk>", "<pad>", *pieces] for pieces in listed]
    for name, tokens in zip(("vocab.json", "target_vocab.json"), numbered, strict=True):
        if shared and name != "vocab.json":
            continue
        (folder / name).write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    pad = numbered[1].index("<pad>")
    torch.manual_seed(3)
    config = transformers.MarianConfig(
        vocab_size=len(numbered[0]),
        decoder_vocab_size=len(numbered[1]),
        **sizes,
        activation_function=activation,
        scale_embedding=True,
        share_encoder_decoder_embeddings=shared,
        tie_word_embeddings=tied,
        pad_token_id=pad,
        eos_token_id=0,
        decoder_start_token_id=pad,
        forced_eos_token_id=0,
    )
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3.0)  # so that outputs are not all alike
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, 0] += 4.0  # some end before the limit
    model.generation_config.bad_words_ids = [[pad], [1]]
    model.generation_config.num_beams, model.generation_config.early_stopping = 4, True
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"separate_vocabs": not shared}))
    return folder


def many_folder(
    folder: Path,
    kind: str,
    activation: str = "relu",
    languages: int = 0,
    sizes: Mapping[str, int] = SMALL,
    codes: Sequence[str] = (),
) -> Path:
    """With random weights, in the layout of the real ones: fairseq's special tokens, pieces, languages, spare rows."""
    codes = codes or CODES[kind]
    folder.mkdir()
    writer = io.BytesIO()
    lines = iter([text for pair in PAIRS for text in pair])
    model_type = "unigram" if kind == "mbart" else "bpe"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=writer, vocab_size=200, model_type=model_type, minloglevel=2
    )
    (folder / "sentencepiece.bpe.model").write_bytes(writer.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=writer.getvalue())
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *(processor.id_to_piece(i) for i in range(3, 200))]
    if kind == "m2m_100":
        (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": list(codes)}))
    torch.manual_seed(7)
    size = len(tokens) + (languages or len(codes)) + 3
    common = {**sizes} | {"vocab_size": size, "activation_function": activation, "scale_embedding": True}
    common |= {"decoder_start_token_id": 2, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0}
    if kind == "mbart":
        model = transformers.MBartForConditionalGeneration(transformers.MBartConfig(**common))
        model.final_logits_bias.normal_()
    else:
        model = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**common))
    for weight in model.parameters():  # norms and biases that are not ones and zeros
        torch.nn.init.normal_(weight, std=0.2)
    model.eval().save_pretrained(folder)
    return folder


def many_model(folder: Path, kind: str) -> Any:
    name = "MBart" if kind == "mbart" else "M2M100"
    return getattr(transformers, f"{name}ForConditionalGeneration").from_pretrained(folder).eval()


def bart_folder(folder: Path, activation: str = "gelu", sizes: Mapping[str, int] = SMALL) -> Path:
    """With random weights, in the layout of facebook/bart-base."""
    import tokenizers

    folder.mkdir()
    made = tokenizers.ByteLevelBPETokenizer()
    lines = [text for pair in PAIRS for text in pair]
    made.train_from_iterator(
        lines, vocab_size=420, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False
    )
    made.save_model(str(folder))
    config = transformers.BartConfig(
        vocab_size=420, **sizes, activation_function=activation, forced_bos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(5)
    model = transformers.BartForConditionalGeneration(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    model.final_logits_bias.normal_()
    model.save_pretrained(folder)
    return folder


def names_of(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Tokens of source and target by the names that they have here, with their ids there."""
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    if kind in ("marian", "bart"):
        files = [folder / "vocab.json", folder / "target_vocab.json"]
        listed = [json.loads((path if path.exists() else files[0]).read_text()) for path in files]
        if kind == "bart":
            listed = [{("<language every>" if name == "<s>" else name): i for name, i in listed[0].items()}] * 2
        both = [{(f"▁{n}" if n.startswith(">>") else n): i for n, i in names.items()} for names in listed]
        return both[0], both[1]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    names = {processor.id_to_piece(i): i + 1 for i in range(3, processor.get_piece_size())}
    listed = json.loads((folder / "special_tokens_map.json").read_text())["additional_special_tokens"]
    first = processor.get_piece_size() + 1
    names |= {f"<language {code.strip('_')}>": first + i for i, code in enumerate(listed)}
    return names, names


def raw_pieces(tokenizer: Tokenizer) -> list[str]:
    """Every token by the name in its file, bytes in disguise."""
    plain: Any = getattr(tokenizer, "_tokenizer", tokenizer)
    if isinstance(plain, ByteLevelTokenizer):
        return [plain._tokenizer.id_to_token(i) for i in range(plain.size)]
    return tokenizer.pieces(range(tokenizer.size))


def limit(model: Model, source: list[int]) -> int:
    """Tokens that `generate` may write where ours may, a forced end counted."""
    return model.lengths.limit(len(source)) + model.settings.search.forced_end
