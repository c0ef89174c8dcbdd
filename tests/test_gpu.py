"""On a real GPU, what no interpreter can show: races between threads, recorded graphs, resuming. `make test-gpu` runs it.

The programs that compare kernels with their plain twins through Triton's interpreter are run here as they stand, on the
GPU's own numbers. Beside them each kernel is run again and again on rows of the size that training has: a result that
differs from the one before is a race.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import bundled_pairs, quick_settings, small_model
from test_engine import SEARCHES, fast, lively, requests
from test_kernels import PROGRAMS

from transduce.core.attention import attend
from transduce.core.masks import causal_mask, segment_mask
from transduce.data.batches import Batches
from transduce.data.build import build_store
from transduce.data.corpus import ListCorpus
from transduce.decoding.batches import PlainEngine
from transduce.engine.refill import RefillEngine
from transduce.fast import kernels
from transduce.fast.recorded import RecordedGradients
from transduce.models.kinds import new_model
from transduce.models.weights import read_tensors
from transduce.text.tokenizers import Tokenizers
from transduce.training.gradients import PlainGradients
from transduce.training.setup import fit
from transduce.training.updater import Updater

pytestmark = pytest.mark.gpu

TESTS = Path(__file__).parent
AGAIN = 20  # times that a kernel must give the same bits
RECORDED_SEARCHES = ("greedy", "beam", "usual stop", "likely stop", "forced end")


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"whole"}))  # the whole of it is recorded below
def test_a_kernel_equals_its_plain_twin_on_the_gpu(name: str) -> None:
    """In a process of its own, without the interpreter; every tensor is made on the GPU."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "0"}
    whole = f"import torch\ntorch.set_default_device('cuda')\n{PROGRAMS[name]}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", whole], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("slots", "causal"), [(128, True), (128, False), (320, True), (320, False)])
def test_attention_is_the_same_every_time(slots: int, causal: bool, dtype: torch.dtype) -> None:
    """Rows of 128 slots are one block of keys in bfloat16; longer ones are several, whose sums are written and read
    again by the same threads: without a barrier they would differ from time to time."""
    kernels.load()
    R, H, K = 48, 8, 64  # noqa: N806  (as everywhere)
    torch.manual_seed(0)
    packed = torch.randn(R, slots, 3 * H * K, device="cuda", dtype=dtype, requires_grad=True)
    ids = torch.arange(slots, device="cuda").expand(R, -1) // 23 + 1
    back = torch.randn(R, slots, H * K, device="cuda", dtype=dtype)

    def run() -> list[torch.Tensor]:
        out, _ = torch.ops.transduce.segment_attention([packed], H, K, ids, ids, causal)
        return [out.detach(), *torch.autograd.grad(out, packed, back)]

    first = run()
    for _ in range(AGAIN):
        for one, other in zip(first, run(), strict=True):
            assert torch.equal(one, other)
    double = packed.detach().double().requires_grad_()
    q, k, v = (x.unflatten(2, (H, K)).transpose(1, 2) for x in double.chunk(3, -1))
    mask = segment_mask(ids, ids)
    mask = mask & causal_mask(slots).to(mask.device) if causal else mask
    plain = attend(q, k, v, mask).summary.transpose(1, 2).flatten(2)
    exact = [plain.detach(), *torch.autograd.grad(plain, double, back.double())]
    bound = 1e-5 if dtype == torch.float32 else 1e-2
    for ours, right in zip(first, exact, strict=True):
        assert float((ours.double() - right).norm() / right.norm()) < bound


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Updater, list]]:
    """Makes an updater on the GPU and some batches for it."""
    pairs = bundled_pairs(400)
    settings = quick_settings(
        model={"dropout": 0.0, "d_model": 64, "d_ff": 128, "heads": 4},
        batch={"tokens": 2048, "layout": "packed"},
        training={"device": "cuda", "precision": "float32"},
    )
    tokenizers = Tokenizers.train(pairs, settings.text)
    store = build_store(ListCorpus(pairs), tokenizers, settings.data, tmp_path_factory.mktemp("store"))

    def make(**training: object) -> tuple[Updater, list]:
        chosen = quick_settings(
            model={"dropout": 0.0, "d_model": 64, "d_ff": 128, "heads": 4},
            batch={"tokens": 2048, "layout": "packed"},
            training={"device": "cuda", "precision": "float32", **training},
        )
        torch.manual_seed(0)
        model = new_model(chosen.model, tokenizers.source.size, tokenizers.target.size)
        batches = Batches(store, chosen.batch, seed=1, device="cuda")
        return Updater(model, chosen, "cuda", packed=True), list(batches.epoch(0))

    return make


def gradient(updater: Updater, batch: object) -> tuple[torch.Tensor, torch.Tensor]:
    total = updater.gradients.add(batch.to("cuda"), 1 / batch.tokens)  # type: ignore[attr-defined]
    found = updater.flat.gradient.clone()
    updater.gradients.clear()
    return total, found


@pytest.mark.parametrize(("precision", "bound"), [("float32", 1e-4), ("bfloat16", 3e-2)])
def test_a_recorded_graph_gives_the_plain_gradients(trained: Callable, precision: str, bound: float) -> None:
    """Of every batch that is played, not of the one that was recorded; and the same bits when it is played again."""
    fast_one, batches = trained(precision=precision)
    plain_one, _ = trained(fast=False)
    assert isinstance(fast_one.gradients, RecordedGradients)
    assert isinstance(plain_one.gradients, PlainGradients)
    for updater in (fast_one, plain_one):
        updater.model.train()
    assert len(batches) > 2
    for batch in batches:
        total, ours = gradient(fast_one, batch)
        expected, plain = gradient(plain_one, batch)
        assert float(total) == pytest.approx(float(expected), rel=bound)
        assert float((ours - plain).norm() / plain.norm()) < bound
    for _ in range(AGAIN):
        again = gradient(fast_one, batches[0])
        assert torch.equal(again[1], gradient(fast_one, batches[0])[1])


@pytest.mark.parametrize("name", RECORDED_SEARCHES)
@pytest.mark.parametrize("norm", ["before", "after"])
def test_a_recorded_search_is_the_plain_one_on_the_gpu(name: str, norm: str) -> None:
    model = lively(small_model(2, output_bias=True, norm=norm)).to("cuda")
    roles = SEARCHES[name]
    found = RefillEngine(fast(model), "cuda").find(requests(), roles, lambda _: None)
    expected = PlainEngine(model, "cuda").find(requests(), roles, lambda _: None)
    for one, two in zip(found, expected, strict=True):
        assert [(h.tokens, h.complete) for h in one] == [(h.tokens, h.complete) for h in two]
        assert [h.score for h in one] == pytest.approx([h.score for h in two], abs=1e-4)


def test_a_search_gives_the_same_bits_every_time() -> None:
    model = lively(small_model(2, output_bias=True)).to("cuda")
    engine, roles = RefillEngine(fast(model), "cuda"), SEARCHES["beam"]
    first = engine.find(requests(), roles, lambda _: None)
    for _ in range(AGAIN):
        assert engine.find(requests(), roles, lambda _: None) == first


@pytest.fixture(params=["float32", "bfloat16"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, int], dict[str, torch.Tensor]]:
    """Trains on the GPU, from the beginning or from a checkpoint, and gives the weights."""
    pairs, validation = ListCorpus(bundled_pairs(120)), ListCorpus(bundled_pairs(10, seed=2))

    def run(where: str, steps: int) -> dict[str, torch.Tensor]:
        settings = quick_settings(
            model={"dropout": 0.1},
            training={"steps": steps, "validate_every": 4, "device": "cuda", "precision": request.param},
        )
        fit(tmp_path / where, pairs, validation, settings)
        return read_tensors(tmp_path / where / f"training/step-{steps}/model.safetensors")

    return run


def test_a_run_on_the_gpu_resumes_to_the_bit(runs: Callable[[str, int], dict[str, torch.Tensor]]) -> None:
    straight = runs("straight", 12)
    runs("resumed", 4)
    resumed = runs("resumed", 12)
    for name, weight in straight.items():
        assert torch.equal(weight, resumed[name]), name
