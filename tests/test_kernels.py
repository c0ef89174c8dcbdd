"""Our Triton kernels against their plain twins, on a CPU through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

ATTENTION = """
import torch
from transduce.fast import kernels
from transduce.core.attention import attend
from transduce.fast.kernels.segment_attention import parts
from transduce.core.masks import causal_mask, segment_mask

kernels.load()
torch.manual_seed(0)


def segments(rows, slots):
    found = torch.zeros(rows, slots, dtype=torch.int64)
    for r in range(rows):
        slot, number = 0, 1
        while (length := int(torch.randint(3, 30, ()))) + slot <= slots - 2:  # some slots stay empty
            found[r, slot : slot + length] = number
            slot, number = slot + length, number + 1
    return found


def check(R, H, T, S, K, V, causal, packed, of_queries, of_keys):
    q, k, v = (x.unflatten(2, (H, -1)).transpose(1, 2) for x in parts(packed, H * K))
    mask = segment_mask(of_queries, of_keys)
    mask = mask & causal_mask(T) if causal else mask
    plain = attend(q, k, v, mask).summary.transpose(1, 2).flatten(2)
    ours, _ = torch.ops.transduce.segment_attention(packed, H, K, of_queries, of_keys, causal)
    torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)
    assert torch.equal(ours[of_queries == 0], torch.zeros_like(ours[of_queries == 0]))
    back = torch.randn_like(plain)
    for mine, theirs in zip(torch.autograd.grad(ours, packed, back), torch.autograd.grad(plain, packed, back)):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


for R, H, T, K, V, causal in ((2, 3, 21, 16, 16, True), (2, 2, 70, 24, 12, False), (1, 2, 150, 16, 16, True)):
    ids = segments(R, T)
    check(R, H, T, T, K, V, causal, [torch.randn(R, T, H * (2 * K + V), requires_grad=True)], ids, ids)
R, H, T, S, K, V = 2, 2, 37, 90, 24, 12  # queries from one side, keys and values from the other
sides = [torch.randn(R, T, H * K, requires_grad=True), torch.randn(R, S, H * (K + V), requires_grad=True)]
check(R, H, T, S, K, V, False, sides, segments(R, T), segments(R, S))
"""
NORM = """
import torch
import torch.nn.functional as F
from transduce.fast import kernels

kernels.load()
torch.manual_seed(0)
D, seed = 24, torch.tensor([5])
x, written = (torch.randn(3, 7, D, requires_grad=True) for _ in range(2))
weight, bias = (torch.randn(D, requires_grad=True) for _ in range(2))
everything = (x, written, weight, bias)


def check(ours, plain):
    torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)
    back = torch.randn_like(plain)
    for mine, theirs in zip(torch.autograd.grad(ours, everything, back), torch.autograd.grad(plain, everything, back)):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-3)


check(torch.ops.transduce.residual_norm(*everything, seed, 0.0, 1e-5)[0], F.layer_norm(x + written, (D,), weight, bias))

# Which numbers are dropped shows in a norm over ones: kept ones come out above the mean, dropped ones below it.
ones, flat = torch.ones(3, 7, D), (torch.ones(D), torch.zeros(D))
shown = torch.ops.transduce.residual_norm(torch.zeros(3, 7, D), ones, *flat, seed, 0.3, 1e-5)[0]
kept = (shown > 0).float()
assert 0.6 < kept.mean() < 0.8
check(
    torch.ops.transduce.residual_norm(*everything, seed, 0.3, 1e-5)[0],
    F.layer_norm(x + written * kept / 0.7, (D,), weight, bias),
)
other = torch.ops.transduce.residual_norm(torch.zeros(3, 7, D), ones, *flat, seed + 1, 0.3, 1e-5)[0]
assert not torch.equal(shown, other)
"""
# The whole of the fast path but for the GPU: model and loss compiled as one graph, all operators of ours in their place.
WHOLE = """
import torch
from transduce.settings.sections import ModelSettings
from transduce.core.layout import lay_out, shifted
from transduce.core import transformer
from transduce.fast import kernels
from transduce.core.flat import FlatWeights
from transduce.fast.modules import make_fast
from transduce.fast.recorded import RecordedGradients
from transduce.fast.working_copy import working_copy

kernels.load()
for norm in ("after", "before"):
    torch.manual_seed(0)
    settings = ModelSettings(layers=1, d_model=32, d_ff=48, heads=2, dropout=0.0, norm=norm, d_v=24)
    model = transformer.build(settings, 40, 40).train()
    source = lay_out([[[5, 6, 7, 3], [8, 9, 3]], [[4, 5, 3]]], 12)
    out = lay_out([[[6, 7, 3], [9, 9, 10, 3]], [[11, 3]]], 12)
    flat = FlatWeights(model)
    fast = RecordedGradients(working_copy(model, flat), flat, 0.1, 1)
    fast._places, fast._share = [*source, *shifted(out), out.tokens], torch.tensor(0.1)
    plain_total, plain = fast._run(fast._loss)
    make_fast(fast.working.model)
    compiled = torch.compile(fast._loss, dynamic=False, fullgraph=True, backend="aot_eager")
    total, gradient = fast._run(compiled)
    torch.testing.assert_close(total, plain_total, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradient, plain, atol=1e-5, rtol=1e-3)
"""


RELU = """
import torch
from transduce.fast import kernels
from transduce.fast.kernels import relu_gradient as kernel

kernels.load()
torch.manual_seed(0)
before, kernel.PROGRAMS = kernel.PROGRAMS, 6  # several rows of tiles for each, the last not full
for rows, columns, dtype in ((70, 300, torch.float32), (33, 128, torch.bfloat16), (200, 130, torch.float32), (1, 1, torch.float32)):
    d, inner = torch.randn(rows, columns, dtype=dtype), torch.randn(rows, columns, dtype=dtype).relu()
    mine, sums = torch.ops.transduce.relu_gradient(d, inner)
    plain = torch.where(inner > 0, d, 0.0)
    assert torch.equal(mine, plain)
    torch.testing.assert_close(sums, plain.float().sum(0), atol=1e-4, rtol=1e-4)
kernel.PROGRAMS = before
"""
TABLE = """
import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from transduce.fast import kernels
from transduce.fast.modules import OrderedEmbedding

kernels.load()
torch.manual_seed(0)
for height, width, often in ((50, 24, 0), (7, 600, 250), (9, 24, 100), (3, 24, 300)):
    # Rows read once, never, and so often that whole chunks are theirs; columns in one tile and in several.
    table, rows = torch.nn.Embedding(height, width), torch.randint(height // 2, (9, 37))
    rows.flatten()[:often] = height // 2
    rows[0, 0] = height - 1
    back = torch.randn(9, 37, width)
    (plain,) = torch.autograd.grad(table(rows), table.weight, back)
    torch.testing.assert_close(torch.ops.transduce.table_gradient(back, rows, height), plain, atol=1e-5, rtol=1e-5)

# In a compiled graph it stays one operator: taken apart, it would be summed in any order.
seen = []


def look(graph, _):
    seen.extend(str(node.target) for node in graph.graph.nodes)
    return graph


table.__class__ = OrderedEmbedding
compiled = torch.compile(table, backend=aot_autograd(fw_compiler=look, decompositions=core_aten_decompositions()))
(found,) = torch.autograd.grad(compiled(rows), table.weight, back)
torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-5)
assert "transduce.table_gradient.default" in seen, seen
assert not any("put" in name and name != "output" for name in seen), seen
"""
PROGRAMS = {
    "segment_attention": ATTENTION,
    "residual_norm": NORM,
    "relu_gradient": RELU,
    "table_gradient": TABLE,
    "whole": WHOLE,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_kernel_equals_its_plain_twin(program: str, interpret: Callable[[str], None]) -> None:
    interpret(program)
