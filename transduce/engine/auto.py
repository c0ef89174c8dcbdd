"""Which engine searches: the fastest that knows the model and the search, and says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch

from transduce.core.choose import Best
from transduce.core.ensemble import Ensemble
from transduce.core.hypotheses import Hypothesis, Request
from transduce.core.search import Roles
from transduce.core.seq2seq import Seq2Seq
from transduce.core.transformer import Transformer
from transduce.decoding.batches import FEW, Engine, PlainEngine
from transduce.engine.blas import address_of_sgemm
from transduce.engine.ctranslate2_engine import CTranslate2Engine
from transduce.engine.incremental import Incremental
from transduce.engine.weights import alike, cast_copy, decoder_weights
from transduce.errors import SettingsError
from transduce.fast import kernels
from transduce.settings.sections import SearchSettings

LARGE = 20_000_000  # weights of a model that is
FEWER_LINES = 1024  # that it has at once
MOST_BEAMS = 16  # that the recorded search follows
LARGER = 8  # batches that a GPU steps through in the time of one
FEW_TOKENS = 65536  # a vocabulary whose log-probabilities do not fill its memory then
WORTH_LOADING = FEW  # sentences from which on it pays to load compiled loops, which takes half a second
WORTH_COMPILING = 2000  # and to wait for their compilation, ten or twenty, once on a machine
MANY = 200  # of one search: who asks for fewer does not wait for a compiler


def make_engine(model: Seq2Seq, search: SearchSettings, device: str) -> Engine:
    """The engine that settings ask for."""
    engine = _engine_of(model, search, device)
    if device == "cpu" and is_large(model):
        engine.chunk = FEWER_LINES  # an interrupted command leaves whole chunks, and loses no minutes of work
    return engine


def is_large(model: Seq2Seq) -> bool:
    """Whether products take nearly all of the time on a CPU, and a thousand lines a minute or more."""
    return sum(weight.numel() for weight in model.parameters()) > LARGE


def _engine_of(model: Seq2Seq, search: SearchSettings, device: str) -> Engine:
    if search.engine == "ctranslate2":
        return CTranslate2Engine(model, search.precision, device)
    if search.engine == "plain":
        if search.precision not in ("auto", "float32"):
            raise SettingsError(f"search.precision={search.precision} needs search.engine=auto; plain is float32")
        return PlainEngine(model, device)
    dtype = choose_dtype(search.precision, device)
    if isinstance(model, Ensemble):
        each = [_incremental(one, dtype) or one for one in model.each()]
        return PlainEngine(Ensemble(each), device, f"ensemble of {len(each)}")
    incremental = _incremental(model, dtype)
    if incremental is None:
        return PlainEngine(model, device, "plain (no fast way for this model),")
    name = f"fast ({str(dtype).removeprefix('torch.')})"
    if device == "cuda" and kernels.HAS_TRITON:
        return GpuEngine(incremental, device, name)
    if device == "cpu":
        return CpuEngine(incremental, device, name)
    return PlainEngine(incremental, device, name)


def make_steps(model: Seq2Seq, device: str) -> Engine:
    """Fast steps in float32, nothing recorded: for a model that changes again, as in training."""
    incremental = _incremental(model, torch.float32)
    if incremental is None:
        return PlainEngine(model, device)
    larger = LARGER if device == "cuda" and len(model.projection.weight) <= FEW_TOKENS else 1
    return PlainEngine(incremental, device, "fast (float32)", larger)


def _incremental(model: Seq2Seq, dtype: torch.dtype) -> Incremental | None:
    """None: there is no fast way for this model."""
    weights = decoder_weights(model, dtype)
    if weights is None:
        return None
    copy = cast_copy(model, dtype)
    assert isinstance(copy, Transformer)
    return Incremental(copy, weights).eval()


def choose_dtype(precision: str, device: str) -> torch.dtype:
    """`auto` is float32, and on a GPU bfloat16 where it has that."""
    if precision == "auto":
        return torch.bfloat16 if device == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    if precision == "float16" and device != "cuda":
        raise SettingsError(f"search.precision=float16 is slow on {device}; take float32, or bfloat16")
    return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision, torch.float32)


def is_simple(roles: Roles) -> bool:
    """Greedy or beam search, and nothing else asked for."""
    return isinstance(roles.choose, Best) and not (roles.rules or roles.penalty.beta or roles.begin)


class CpuEngine(PlainEngine):
    """Greedy and beam search by compiled loops, once they pay; any other search by PyTorch alone."""

    model: Incremental
    _many = 0  # sentences of searches with many
    _look_again = WORTH_LOADING  # with so many alone, whether loops are compiled by now
    _loops: PlainEngine | None = None

    def find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        if not is_simple(roles) or not self._can_loop or not self._pays(len(requests)):
            return super().find(requests, roles, found)
        self._loops = self._loops or self._loaded(len(requests))
        return super().find(requests, roles, found) if self._loops is None else self._loops.find(requests, roles, found)

    def warm_up(self) -> None:
        if not self._can_loop:
            return
        from transduce.engine.loop_search import LoopEngine  # noqa: PLC0415  (numba takes time to load)

        self.model.eval()
        loops = LoopEngine(self.model, self.device)
        loops.find([Request([], 1)], Roles(), lambda _: None)  # compiles all that any search needs
        self._loops, self.alone = loops, max(self.alone, WORTH_LOADING)

    @cached_property
    def _can_loop(self) -> bool:
        return can_loop(self.model)

    def _pays(self, asked: int) -> bool:
        """Whether to load them. A few sentences in a chunk of a file never do, whatever was before: a command that is
        resumed there goes the same way as one that was never stopped, and so to the same digits."""
        self._many += asked if asked >= MANY else 0
        return asked >= WORTH_LOADING or self.alone >= (WORTH_LOADING if self._loops else self._look_again)

    def _loaded(self, asked: int) -> PlainEngine | None:
        """The loops, unless they would have to be compiled first and that does not pay."""
        from transduce.engine.loop_search import LoopEngine, is_compiled  # noqa: PLC0415  (numba takes time to load)

        if not is_compiled() and (asked < MANY or self._many < WORTH_COMPILING):
            self._look_again = self.alone + WORTH_COMPILING
            return None
        self.model.eval()
        return LoopEngine(self.model, self.device)


def can_loop(model: Incremental) -> bool:
    """Whether loops.py knows how its heads lie in memory and which norm comes last, and there is a product for it."""
    w = model.weights
    width = w.projection.weight.size(1)
    regular = all(
        heads.d_k == heads.d_v and heads.number * heads.d_k == width for heads in (w.self_heads, w.cross_heads)
    )
    ends = not w.norm_before or w.final_norm is not None
    return w.dtype == torch.float32 and regular and ends and alike(w.layers) and address_of_sgemm() is not None


class GpuEngine:
    """Greedy and beam search by recorded steps; any other search by steps that are only fast."""

    chunk = 65536
    takes_rules = True
    alone = 0

    def __init__(self, model: Incremental, device: str, name: str) -> None:
        from transduce.engine.refill import RefillEngine  # noqa: PLC0415  (needs Triton)

        self.name = f"{name} on {device}"
        self.model = model
        self._recorded = RefillEngine(model, device)
        self._stepwise = PlainEngine(model, device, name)

    def warm_up(self) -> None:
        """What a search records, it records for its number of sentences."""

    def find(self, requests: list[Request], roles: Roles, found: Callable[[int], None]) -> list[list[Hypothesis]]:
        engine = self._recorded if is_simple(roles) and roles.size <= MOST_BEAMS else self._stepwise
        return engine.find(requests, roles, found)
