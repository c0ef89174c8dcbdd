"""Word vectors carried over into a new model: its embeddings begin with what is known of the words already."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import SPECIAL
from transduce.errors import SettingsError
from transduce.fasttext.word_vectors import WordVectors, load_vectors
from transduce.report import Report
from transduce.settings.sections import Settings
from transduce.text.tokenizers import Tokenizer, Tokenizers

SPACE = "▁"  # how tokenizers print the space before a word


class Found(NamedTuple):
    """What vectors say of the tokens of a vocabulary."""

    rows: list[int]  # tokens that have one
    vectors: NDArray[np.float32]
    words: int  # of them, those that are words of the list; others are spelled by their n-grams


def put_vectors(model: Seq2Seq, settings: Settings, tokenizers: Tokenizers, report: Report) -> None:
    """Into the embeddings of a new model, where settings name files of vectors."""
    weights, filled = dict(model.named_parameters()), set[int]()
    for side, path in _files(settings).items():
        name, tokenizer = model.embedding_of(side), getattr(tokenizers, side)
        if name is None:
            raise SettingsError(f"model.{side}_vectors={path}: this model has no embeddings of the {side}")
        vectors, table = load_vectors(Path(path)), weights[name]
        shared = not name.startswith(side)
        found = look_up(vectors, tokenizer, filled if shared else set())
        if found.rows:
            with torch.no_grad():
                table[found.rows] = fitted(torch.from_numpy(found.vectors), table)
        filled |= set(found.rows)
        spelled = len(found.rows) - found.words
        report.say(
            f"{side}: {found.words:,} of {tokenizer.size:,} tokens begin with their vectors in {path}, {spelled:,} are "
            f"spelled by n-grams, {tokenizer.size - len(found.rows):,} begin at random"
            + (f"; {vectors.dimension} numbers become {table.size(1)}" if vectors.dimension != table.size(1) else "")
        )


def with_vectors(model: Seq2Seq, settings: Settings) -> list[str | None]:
    """The names of the embeddings that begin with word vectors."""
    return [model.embedding_of(side) for side in _files(settings)]


def _files(settings: Settings) -> dict[str, str]:
    """The files of vectors that settings name, by side."""
    named = {"source": settings.model.source_vectors, "target": settings.model.target_vectors}
    return {side: path for side, path in named.items() if path is not None}


def look_up(vectors: WordVectors, tokenizer: Tokenizer, without: set[int]) -> Found:
    """The vectors of tokens: by word, in lower case if need be, or by the n-grams of a piece of a word."""
    rows, found, words = [], [], 0
    for number, piece in enumerate(tokenizer.pieces(range(tokenizer.size))):
        text = piece.replace(SPACE, "")
        if number < len(SPECIAL) or number in without or not text:
            continue
        known = next((word for word in (piece, text, text.lower()) if word in vectors), None)
        vector = vectors[known or text] if known or vectors.spells else None
        if vector is not None and vector.any():
            rows.append(number)
            found.append(vector)
            words += known is not None
    return Found(rows, np.stack(found) if found else np.zeros((0, vectors.dimension), np.float32), words)


def fitted(vectors: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Vectors as rows of a table: turned to its width (the directions in which they differ most, or all of them and
    nothing beside), and spread as its fresh rows are."""
    centred = vectors - vectors.mean(0)
    width = table.size(1)
    if vectors.size(1) != width:
        _, _, directions = torch.linalg.svd(centred, full_matrices=False)
        kept = centred @ directions[:width].T
        centred = torch.nn.functional.pad(kept, (0, width - kept.size(1)))
    return centred * (table.std() / centred.std().clamp(min=1e-12))
