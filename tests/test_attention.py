"""Attention: the formula, the fused kernel and PyTorch agree; what must not matter does not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from transduce.core.attention import MultiHeadAttention, attend, attend_fused
from transduce.core.masks import AttentionMask, causal_mask, segment_mask
from transduce.core.positions import sinusoid_table

R, H, T, S, K, V = 2, 3, 4, 5, 6, 7


def random_qkv() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(R, H, T, K), torch.randn(R, H, S, K), torch.randn(R, H, S, V)


def random_mask() -> Tensor:
    mask = torch.rand(R, 1, T, S, generator=torch.Generator().manual_seed(2)) < 0.6
    mask[0, 0, 1] = False  # a query that may look at nothing
    mask[0, 0, 2] = True
    return mask


def test_the_formula_as_a_loop() -> None:
    q, k, v = random_qkv()
    mask = random_mask()
    summary, weights = attend(q, k, v, mask)
    for r in range(R):
        for h in range(H):
            for t in range(T):
                seen = [s for s in range(S) if mask[r, 0, t, s]]
                e = [math.exp(float(q[r, h, t] @ k[r, h, s]) / math.sqrt(K)) for s in seen]
                a = [x / sum(e) for x in e]
                expected = sum((a[i] * v[r, h, s] for i, s in enumerate(seen)), start=torch.zeros(V))
                torch.testing.assert_close(summary[r, h, t], expected, atol=1e-5, rtol=1e-5)
                torch.testing.assert_close(weights[r, h, t][seen], torch.tensor(a), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("masked", [True, False])
def test_plain_and_fused_agree(masked: bool) -> None:
    q, k, v = (x.requires_grad_() for x in random_qkv())
    mask = random_mask() if masked else None
    plain, fused = attend(q, k, v, mask).summary, attend_fused(q, k, v, mask)
    torch.testing.assert_close(plain, fused, atol=1e-6, rtol=1e-5)
    for a, b in zip(
        torch.autograd.grad(plain.sum(), (q, k, v)), torch.autograd.grad(fused.sum(), (q, k, v)), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_nothing_to_look_at_gives_zeros() -> None:
    q, k, v = random_qkv()
    for summary in (attend(q, k, v, random_mask()).summary, attend_fused(q, k, v, random_mask())):
        assert torch.equal(summary[0, :, 1], torch.zeros(H, V))


def test_masked_keys_and_values_change_nothing_to_the_bit() -> None:
    q, k, v = random_qkv()
    mask = torch.ones(R, 1, T, S, dtype=torch.bool)
    mask[..., -2:] = False
    before = attend(q, k, v, mask)
    k[:, :, -2:], v[:, :, -2:] = 1e4, -1e4
    after = attend(q, k, v, mask)
    assert torch.equal(before.summary, after.summary)
    torch.testing.assert_close(after.weights.sum(-1), torch.ones(R, H, T))


def test_dropout_acts_on_the_weights_only_in_training() -> None:
    attention = MultiHeadAttention(8, 2, 4, 4, bias=True, dropout=0.5)
    x = torch.randn(1, 6, 8)
    context = attention.keys_values(x)
    assert torch.equal(attention.eval()(x, context, None), attention(x, context, None))
    attention.train()
    assert not torch.equal(attention(x, context, None), attention(x, context, None))
    assert not torch.equal(attention(x, context, None, []), attention(x, context, None, []))


@pytest.mark.parametrize("bias", [True, False])
def test_pytorch_agrees(bias: bool) -> None:
    d_model = H * K
    ours = MultiHeadAttention(d_model, H, K, K, bias=bias, dropout=0.0)
    theirs = nn.MultiheadAttention(d_model, H, bias=bias, batch_first=True)
    parts = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.data = torch.cat([part.weight for part in parts]).detach()
    theirs.out_proj.weight.data = ours.output.weight.data
    if bias:
        for part in (*parts, ours.output):
            nn.init.normal_(part.bias)
        theirs.in_proj_bias.data = torch.cat([part.bias for part in parts]).detach()
        theirs.out_proj.bias.data = ours.output.bias.data
    x, context = torch.randn(R, T, d_model), torch.randn(R, S, d_model)
    padding = torch.tensor([[False] * S, [False] * 3 + [True] * 2])
    expected, weights = theirs(x, context, context, key_padding_mask=padding, average_attn_weights=False)
    maps: list[Tensor] = []
    may_look = AttentionMask(~padding[:, None, None])
    plain = ours(x, ours.keys_values(context), may_look, maps)
    fused = ours(x, ours.keys_values(context), may_look)
    torch.testing.assert_close(plain, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fused, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(maps[0], weights, atol=1e-5, rtol=1e-5)


def test_masks() -> None:
    queries, keys = torch.tensor([[1, 1, 2, 0]]), torch.tensor([[1, 2, 2, 0, 0]])
    expected = [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]
    assert segment_mask(queries, keys)[0, 0].int().tolist() == expected
    assert causal_mask(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_sinusoids_are_the_papers() -> None:
    table = sinusoid_table(50, 12)
    for pos, i in ((0, 0), (3, 1), (49, 5)):
        angle = pos / 10000 ** (2 * i / 12)
        torch.testing.assert_close(table[pos, 2 * i].item(), math.sin(angle), atol=1e-6, rtol=0)
        torch.testing.assert_close(table[pos, 2 * i + 1].item(), math.cos(angle), atol=1e-6, rtol=0)


def test_a_shift_is_a_rotation_and_the_product_depends_on_the_distance_alone() -> None:
    table, k = sinusoid_table(60, 16).double(), 7
    for i in range(8):
        w = 10000 ** (-2 * i / 16) * k
        rotation = torch.tensor([[math.cos(w), math.sin(w)], [-math.sin(w), math.cos(w)]], dtype=torch.float64)
        pair = slice(2 * i, 2 * i + 2)
        torch.testing.assert_close(table[:50, pair] @ rotation.T, table[k : 50 + k, pair], atol=1e-5, rtol=0)
    products = (table[:50] * table[k : 50 + k]).sum(-1)
    torch.testing.assert_close(products, products[:1].expand(50), atol=1e-5, rtol=0)
    assert (table[0] @ table[0]) > (table[0] @ table[5]) > (table[0] @ table[40])
