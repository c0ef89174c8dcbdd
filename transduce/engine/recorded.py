"""A search of a fixed number of sentences side by side, whose steps are recorded once as a CUDA graph and then played.

Everything has its place in memory and keeps it: caches of fixed capacity, and the tables of `Slots`. Each sentence is
at its own step, so that one that is done can leave and another take its place while the rest go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.core.hypotheses import IMPOSSIBLE, Penalty
from transduce.core.search import Stop
from transduce.core.special import BEGIN
from transduce.engine.recorded_encoder import RecordedEncoder
from transduce.engine.recorded_parts import embedded, inner, joined
from transduce.engine.walk_back import of_lengths
from transduce.engine.weights import Heads, Layer, Norm
from transduce.fast.kernels.choose import Slots, choose
from transduce.fast.kernels.decode_attention import look_at_memory, look_back, put_memory

REHEARSALS = 2  # runs before a recording, in which kernels are compiled and libraries choose their ways
ARRIVING = (1, 8, 64, 256, 512, 1024, 2048)  # sentences whose arrival together is recorded too
MOST_ARRIVALS = 48  # such recordings
# Sentences that begin are a table of int32, so that all that is said of them comes to the GPU in one go. Its columns:
# how much of the source is read, the limit of the target, the place; then the source with END, and behind it anything.
SOURCE, MOST, PLACE, TOKENS = range(4)


class Shape(NamedTuple):
    """What a recording is made for."""

    sentences: int  # R
    beams: int  # B
    steps: int  # T, capacity for targets
    sources: int  # S, capacity for sources
    wanted: int  # hypotheses a sentence
    needed: int  # that must have ended
    penalty: Penalty
    stop: Stop
    ended_first: bool


class RecordedSearch:
    """R sentences that are searched side by side."""

    def __init__(self, encoder: RecordedEncoder, shape: Shape, device: str) -> None:
        self.encoder = encoder
        self.weights = encoder.model.weights
        self.shape = shape
        self.device = device
        self.slots = _empty_slots(shape, device)
        self.penalties = torch.from_numpy(of_lengths(shape.penalty, shape.steps + 1)).to(device)
        self.past = self._caches(self.weights.self_heads, shape.steps * shape.beams)
        self.memory = self._caches(self.weights.cross_heads, shape.sources)
        # what is played leaves nothing there that is read later, so all recordings work in the same memory
        self._workspace = torch.cuda.graph_pool_handle() if device == "cuda" else None
        self._step = self._recorded(self._run)
        self._arrivals: dict[tuple[int, int], tuple[Tensor, Callable[[], None]]] = {}

    def step(self) -> None:
        """All sentences that are active, one token further."""
        self._step()

    def put(self, new: Tensor, places: Tensor) -> None:
        """New sentences (n, TOKENS + S) into these places (n), which are written into their table. They are put by a
        recording if one fits, the last of them several times if need be: it comes to the same."""
        new[:, PLACE] = places
        arriving, width = new[:, TOKENS:].shape
        count = next(size for size in ARRIVING if arriving <= size)
        size = count, min(self.shape.sources, recorded_width(width))
        too_many = size not in self._arrivals and len(self._arrivals) >= MOST_ARRIVALS
        if self.device != "cuda" or too_many:
            self._arrive(new)
            return
        if size not in self._arrivals:
            own = torch.zeros(count, TOKENS + size[1], dtype=torch.int32, device=self.device)
            _fill(own, new)
            self._arrivals[size] = (own, self._recorded(lambda: self._arrive(own)))
        own, arrive = self._arrivals[size]
        _fill(own, new)
        arrive()

    # ---- what is recorded --------------------------------------------------------------------------------------

    def _recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        """The same work, played from a recording; itself, where nothing can be recorded."""
        if self.device != "cuda":
            return work
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(REHEARSALS):
                work()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._workspace):
            work()
        return graph.replay

    def _arrive(self, new: Tensor) -> None:
        """Encode, project what the decoder looks at, and begin."""
        slots = self.slots
        source, most, at = new[:, :TOKENS].t().contiguous().unbind()
        places = at.long()
        states = self.encoder.states(new[:, TOKENS:], source)
        for layer, (keys, values) in zip(self.weights.layers, self.memory, strict=True):
            put_memory(F.linear(states, *layer.cross_keys_values), keys, values, at, source)
        first = slots.scores[:1].clone().fill_(IMPOSSIBLE).index_fill_(1, places.new_zeros(1), 0.0)  # only one begins
        count = len(places)
        slots.scores.index_copy_(0, places, first.expand(count, -1))
        slots.finished.index_fill_(0, places, IMPOSSIBLE)
        slots.tokens.index_fill_(0, places, BEGIN)
        for table, value in ((slots.ended, 0), (slots.length, 0), (slots.active, 1)):
            table.index_fill_(0, places, value)
        slots.most.index_copy_(0, places, most)
        slots.source.index_copy_(0, places, source)

    def _run(self) -> None:
        """One step."""
        w, penalty = self.weights, self.shape.penalty
        x = embedded(w.embedding, self.slots.tokens, self.slots.length, w.dtype)
        h = w.layers[0].self_norm(x) if w.norm_before else x
        for i, layer in enumerate(w.layers):
            after = w.layers[i + 1].self_norm if i + 1 < len(w.layers) else w.final_norm
            x, h = self._layer(i, layer, x, h, after if w.norm_before else layer.norm)
        if not w.norm_before and w.final_norm is not None:
            h = w.final_norm(h)
        logits = _project(h * w.projection_scale if w.projection_scale != 1 else h, w.projection.weight)
        how = (penalty.alpha, penalty.plain, self.shape.stop, penalty.forced_end)
        choose(logits, w.projection.bias, self.slots, *how)

    def _layer(self, i: int, layer: Layer, x: Tensor, h: Tensor, after: Norm | None) -> tuple[Tensor, Tensor]:
        """x (R * B, D) and what the layer reads of it, h, through the layer; `after`: the norm behind it."""
        w, slots, before = self.weights, self.slots, self.weights.norm_before
        qkv = F.linear(h, *layer.self_qkv)
        read = look_back(qkv, *self.past[i], slots.ancestors, slots.length, slots.active, w.self_heads.scale)
        x, h = joined(x, F.linear(read, *layer.self_output), layer.cross_norm if before else layer.self_norm, before)

        q = F.linear(h, *layer.cross_query)
        read = look_at_memory(q, *self.memory[i], slots.source, slots.active, self.shape.beams, w.cross_heads.scale)
        x, h = joined(x, F.linear(read, *layer.cross_output), layer.norm if before else layer.cross_norm, before)

        h = inner(h, layer.inner, w.activation)
        return joined(x, F.linear(h, *layer.outer), after, before)

    def _caches(self, heads: Heads, slots: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer."""
        shape, dtype = (self.shape.sentences, heads.number, slots), self.weights.dtype

        def empty(width: int) -> Tensor:
            return torch.zeros(*shape, width, dtype=dtype, device=self.device)

        return [(empty(heads.d_k), empty(heads.d_v)) for _ in self.weights.layers]


def recorded_width(width: int) -> int:
    """To a width that is recorded: 2, 4, 6, ..., 32, 36, 40, ..., 64, 72, 80, ..."""
    step = max(2, 1 << max(0, (width - 1).bit_length() - 4))
    return -(-width // step) * step


def _fill(own: Tensor, new: Tensor) -> None:
    """New sentences into the table that a recording reads, the last one repeated."""
    own[: len(new), : new.size(1)] = new
    if len(new) < len(own):
        own[len(new) :] = own[len(new) - 1]


def _project(h: Tensor, weight: Tensor) -> Tensor:
    """Logits in float32, whatever the weights are in: the last digits decide between hypotheses."""
    if h.dtype == torch.float32 or not h.is_cuda:
        return F.linear(h, weight).float()
    alike = h if len(h) > 1 else h.repeat(4, 1)  # one row alone would be summed in another order than among others
    return torch.mm(alike, weight.t(), out_dtype=torch.float32)[: len(h)]


def _empty_slots(shape: Shape, device: str) -> Slots:
    rows, beams, steps = shape.sentences, shape.beams, shape.steps

    def zeros(*size: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(*size, dtype=dtype, device=device)

    return Slots(
        tokens=zeros(rows, beams, dtype=torch.long),
        scores=zeros(rows, beams, dtype=torch.float32),
        ancestors=zeros(rows, beams, steps, dtype=torch.uint8),
        length=zeros(rows, dtype=torch.int32),
        most=zeros(rows, dtype=torch.int32),
        source=zeros(rows, dtype=torch.int32),
        active=zeros(rows, dtype=torch.int32),
        ended=zeros(rows, dtype=torch.int32),
        finished=zeros(rows, shape.needed, dtype=torch.float32),
        history=zeros(rows, steps, beams, dtype=torch.int32),
        parents=zeros(rows, steps, beams, dtype=torch.uint8),
        end_totals=zeros(rows, steps, beams, dtype=torch.float32),
        end_parents=zeros(rows, steps, beams, dtype=torch.uint8),
    )
