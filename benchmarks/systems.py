"""The systems that are compared: ours, HF MarianMTModel and torch.nn.Transformer, of one size, on one text.

Peers get what serves them best and is honest: length-sorted batches that already lie on the device, bfloat16, fused
AdamW, SDPA without cuDNN (which plans anew for every shape), the loss compiled together with the model.
Ours is the updater itself, which does everything a run does between two validations but look at the loss.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from common import sentence_lengths
from torch import Tensor, nn

from transduce.core import transformer
from transduce.data.batches import Batch, Batches
from transduce.data.store import Side
from transduce.fast.recorded import RecordedGradients
from transduce.models.device import prepare_device
from transduce.settings.compose import compose
from transduce.training.state import RunState
from transduce.training.updater import Updater

PAD = 0


@dataclass(frozen=True)
class Size:
    """Of a model and its batches."""

    layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    vocabulary: int = 32_000
    tokens: int = 25_600  # slots of a batch on each side
    length: float = 25  # mean tokens of a sentence
    dropout: float = 0.1
    pairs: int = 30_000
    longest: int = 127  # slots of the longest sentence

    def flops(self) -> float:
        """Of forward and backward for one target token (and the source token beside it): 6 for every weight that is
        multiplied with, and what attention does over a sentence."""
        d, inner = self.d_model, self.d_ff
        encoder = self.layers * (4 * d * d + 2 * d * inner)
        decoder = self.layers * (8 * d * d + 2 * d * inner)  # its memory's keys and values are made per source token
        attention = 3 * self.layers * 2 * d * self.length
        return 6 * (encoder + decoder + d * self.vocabulary + attention)

    @property
    def weights(self) -> int:
        d = self.d_model
        return self.layers * (12 * d * d + 4 * d * self.d_ff) + d * self.vocabulary


SIZES = {
    "tiny": Size(2, 128, 256, 4, 1_000, tokens=1024, length=12, pairs=5_000),  # the preset, on its corpus' lengths
    "2M": Size(2, 128, 512, 4, 8_000),
    "10M": Size(4, 256, 1024, 4, 10_000),
    "base": Size(),
    "big": Size(d_model=1024, d_ff=4096, heads=16, dropout=0.3),
}


def ours(size: Size, device: str, fast: bool = True, layout: str | None = None) -> Callable[[], int]:
    """The updater on text that lies in its store."""
    prepare_device(device)
    model = {"layers": size.layers, "d_model": size.d_model, "d_ff": size.d_ff, "heads": size.heads}
    settings = compose(
        {
            "model": {**model, "dropout": size.dropout},
            "batch": {"tokens": size.tokens, "layout": layout or ("packed" if device == "cuda" else "buckets")},
            "training": {"label_smoothing": 0.1, "fast": fast},
        },
    )
    torch.manual_seed(0)
    built = transformer.build(settings.model, size.vocabulary, size.vocabulary)
    batches = Batches(_Text(size), settings.batch, seed=1, device=device)
    return Step(Updater(built, settings, device, batches.packed), batches, size)


class Step:
    """One update of ours; and what else can be asked of it."""

    def __init__(self, updater: Updater, batches: Batches, size: Size) -> None:
        self.updater, self.batches, self.size, self.state = updater, batches, size, RunState()
        self.every = self._batches()

    def _batches(self) -> Iterator[Batch]:
        return (batch for epoch in itertools.count() for batch in self.batches.epoch(epoch))

    def __call__(self) -> int:
        return self.updater.update([next(self.every)], self.state).tokens

    def uncounted(self) -> int:
        """Bytes of the optimizer where it was made after a graph was recorded, whose room stays reserved beside it."""
        if not isinstance(self.updater.gradients, RecordedGradients):
            return 0
        state = self.updater.optimizer.state[self.updater.flat.weights].values()
        return sum(value.numel() * value.element_size() for value in state)

    def length(self, mean: float) -> None:
        """Go on with sentences of another length, in batches of the same shape."""
        old = self.batches
        text = _Text(replace(self.size, length=mean, pairs=int(self.size.pairs * self.size.length / mean)))
        self.batches = Batches(text, old.settings, seed=1, device=self.updater.device)
        self.every = self._batches()

    def profile(self, steps: int) -> dict[str, tuple[float, float]]:
        """Milliseconds of the GPU and number of launches in an update, by kernel."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(steps):
                self()
            torch.cuda.synchronize()
        return {e.key: (e.self_device_time_total / steps / 1e3, e.count / steps) for e in seen.key_averages()}


class _Text:
    """A store of random tokens."""

    folder = SimpleNamespace(name="random")

    def __init__(self, size: Size) -> None:
        rng = np.random.default_rng(1)

        def side(lengths: np.ndarray) -> Side:
            ids = rng.integers(4, size.vocabulary, lengths.sum(), dtype=np.uint16)
            return Side(ids, lengths.cumsum() - lengths, lengths.astype(np.int32))

        lengths = sentence_lengths(size.pairs, size.length, size.longest)
        self.source, self.target = self.sides = tuple(side(one) for one in lengths)
        self.longest = int(max(side.lengths.max() for side in self.sides))

    def __len__(self) -> int:
        return len(self.source.lengths)

    def places(self, pairs: np.ndarray, epoch: int) -> np.ndarray:
        return pairs

    def release(self) -> None:
        pass


def padded(size: Size, device: str) -> Iterator[tuple[Tensor, Tensor, Tensor, int]]:
    """Length-sorted batches in random order, without end: source, target read, target to write, target tokens."""
    source, target = sentence_lengths(size.pairs, size.length, size.longest)
    order = np.lexsort((source, target))
    rng = np.random.default_rng(1)
    batches = []
    begin = 0
    while begin < len(order):
        end, widest = begin, 0
        while end < len(order):
            new = max(widest, source[order[end]] + 1, target[order[end]] + 1)
            if new * (end - begin + 1) > size.tokens:
                break
            end, widest = end + 1, new
        batches.append(order[begin:end])
        begin = end
    made = []
    for i in rng.permutation(len(batches))[: max(12, len(batches) // 4)]:
        pairs = batches[i]

        def rows(lengths: np.ndarray, pairs: np.ndarray = pairs) -> Tensor:
            wide = int(lengths[pairs].max()) + 1
            ids = rng.integers(4, size.vocabulary, (len(pairs), wide))
            ids[np.arange(wide)[None, :] > lengths[pairs][:, None]] = PAD
            return torch.from_numpy(ids).to(device)

        out = rows(target)
        made.append((rows(source), out.roll(1, 1), out, int(target[pairs].sum() + len(pairs))))
    return itertools.cycle(made)


def _updates(
    size: Size, device: str, model: nn.Module, loss: Callable[..., Tensor], compiled: bool
) -> Callable[[], int]:
    """One update after the other of a peer."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    loss = torch.compile(loss, dynamic=True) if compiled else loss
    batches = padded(size, device)

    def step() -> int:
        source, target_in, target_out, count = next(batches)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            value = loss(source, target_in, target_out)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return count

    return step


def pytorch(size: Size, device: str, compiled: bool) -> Callable[[], int]:
    """torch.nn.Transformer with tied embeddings and label smoothing around it."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            n, d = size.layers, size.d_model
            self.tokens = nn.Embedding(size.vocabulary, d)
            self.core = nn.Transformer(d, size.heads, n, n, size.d_ff, size.dropout, batch_first=True)
            self.register_buffer("positions", torch.randn(256, d))

        def embed(self, x: Tensor) -> Tensor:
            x = self.tokens(x) * size.d_model**0.5 + self.positions[: x.size(1)]
            return F.dropout(x, size.dropout, self.training)

        def loss(self, source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
            length = target_in.size(1)
            later = torch.ones(length, length, dtype=torch.bool, device=source.device).triu(1)
            padding = source == PAD
            hidden = self.core(
                self.embed(source),
                self.embed(target_in),
                tgt_mask=later,
                src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
                tgt_is_causal=True,
            )
            logits = F.linear(hidden, self.tokens.weight)
            return F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD, label_smoothing=0.1)

    model = Model().to(device).train()
    return _updates(size, device, model, model.loss, compiled)


def marian(size: Size, device: str, compiled: bool) -> Callable[[], int]:
    """HF MarianMTModel."""
    from transformers import MarianConfig, MarianMTModel

    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.manual_seed(0)
    sides = {"layers": size.layers, "attention_heads": size.heads, "ffn_dim": size.d_ff}
    config = MarianConfig(
        vocab_size=size.vocabulary,
        d_model=size.d_model,
        **{f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sides.items()},
        max_position_embeddings=256,
        dropout=size.dropout,
        activation_dropout=0.0,
        attention_dropout=0.0,
        pad_token_id=PAD,
        eos_token_id=3,
        decoder_start_token_id=2,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        attn_implementation="sdpa",
        use_cache=False,
    )
    model = MarianMTModel(config).to(device).train()

    def loss(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        mask = (source != PAD).long()
        logits = model(source, attention_mask=mask, decoder_input_ids=target_in, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD, label_smoothing=0.1)

    return _updates(size, device, model, loss, compiled)


def make(system: str, size: Size, device: str) -> Callable[[], int]:
    """A system by its name below."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    kind, *options = SYSTEMS[system]
    return {"ours": ours, "pytorch": pytorch, "marian": marian}[kind](size, device, *options)


SYSTEMS: dict[str, tuple] = {
    "transduce": ("ours",),
    "torch.nn.Transformer, compiled": ("pytorch", True),
    "torch.nn.Transformer": ("pytorch", False),
    "HF MarianMTModel, compiled": ("marian", True),
    "HF MarianMTModel": ("marian", False),
    "transduce, plain, packed": ("ours", False, "packed"),
    "transduce, plain, one a row": ("ours", False, "buckets"),
}
