"""Which words of a translation come from which words of its source, read from one head of the attention.

A head looks at a source token when the decoder writes a target token, or when it has just read it; which head does it
best, and when, is found on validation text (aligner.py). Links of tokens become links of words (text/words.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.core.layout import lay_out
from transduce.core.rows import Rows
from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import BEGIN, END, PAD
from transduce.decoding.batches import batches
from transduce.errors import SettingsError
from transduce.settings.sections import Settings

_FORM = re.compile(r"(\d+)\.(\d+|mean) (writes|reads)")


class Aligner(NamedTuple):
    """A head that aligns. Layers and heads are counted from 1, as everywhere that people see them."""

    layer: int
    head: int | None  # None: the mean of all
    reads: bool  # it looks when the target token is read, not when it is written

    def __str__(self) -> str:
        return f"{self.layer}.{self.head or 'mean'} {'reads' if self.reads else 'writes'}"

    @staticmethod
    def parse(text: str) -> Aligner:
        """`4.2 reads`, `6.mean writes`"""
        found = _FORM.fullmatch(text)
        if found is None:
            raise SettingsError(f'search.aligner={text!r} must be a layer, a head and when, such as "4.2 reads"')
        layer, head, when = found.groups()
        return Aligner(int(layer), None if head == "mean" else int(head), when == "reads")


def aligner_of(settings: Settings) -> Aligner:
    """The head that links words: the one that training found, else all of the last layer together."""
    m, chosen = settings.model, settings.search.aligner
    layers, heads = (m.decoder_layers or m.layers, m.heads) if m.kind == "transformer" else (1, 1)
    if chosen is None:
        return Aligner(layers, None, reads=False)
    found = Aligner.parse(chosen)
    if not 1 <= found.layer <= layers or not 1 <= (found.head or 1) <= heads:
        raise SettingsError(f'search.aligner="{found}": the model has layers 1 to {layers}, heads 1 to {heads}')
    return found


def source_positions(cross: list[Tensor], source: Rows, layer: int) -> Tensor:
    """(H + 1, R, T): where each head of a layer looks most at every step, and last the mean of them. The end of a
    sentence is not looked at: it is where heads look that have nothing to say."""
    weights = cross[layer].transpose(0, 1)  # (H, R, T, S)
    weights = torch.cat([weights, weights.mean(0, keepdim=True)])
    nothing = (source.tokens == END) | (source.tokens == PAD)
    return weights.masked_fill(nothing.unsqueeze(1), -1.0).argmax(-1)


@torch.inference_mode()
def align(
    model: Seq2Seq, sources: list[list[int]], targets: list[list[int]], aligner: Aligner, slots: int, device: str
) -> list[list[int]]:
    """For each token of each target, the place of the source token it comes from."""
    model.eval()
    results: list[list[int]] = [[] for _ in sources]
    sizes = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
    for batch in batches([i for i, target in enumerate(targets) if target], sizes, slots):
        source = lay_out([[[*sources[i], END]] for i in batch]).to(device)
        maps = model.attention(source, lay_out([[[BEGIN, *targets[i]]] for i in batch]).to(device))
        heads = source_positions(maps.cross, source, aligner.layer - 1)
        looked = heads[-1 if aligner.head is None else aligner.head - 1, :, int(aligner.reads) :].tolist()
        for i, places in zip(batch, looked, strict=True):
            results[i] = places[: len(targets[i])]
    return results
