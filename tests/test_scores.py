"""ScoreFunction functions against loops written from their formulas; soft and hard selection."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from conftest import TARGET_WORDS, small_model, source_rows, target_rows
from torch import Tensor

from transduce.core.attention import MultiHeadAttention, attend, attend_fused, attention_weights
from transduce.core.hard import Baseline, attend_hard, reinforced
from transduce.core.masks import AttentionMask, causal_mask
from transduce.core.scores import Additive, Bilinear, Dot, ScaledDot, ScoreFunction, make_score
from transduce.errors import SettingsError
from transduce.settings.compose import compose

NAMES = ["additive", "dot", "scaled", "bilinear"]
D_K, D_Q, T, S = 5, 3, 4, 6


def by_loop(score: ScoreFunction, q: Tensor, k: Tensor) -> Tensor:
    """s(x, q) for one query and one key at a time, as the formulas have it."""
    found = torch.empty(len(q), len(k), dtype=q.dtype)
    for t, query in enumerate(q):
        for s, x in enumerate(k):
            if isinstance(score, Additive):
                found[t, s] = score.v.squeeze(1) @ torch.tanh(score.W @ x + score.U @ query)
            elif isinstance(score, Bilinear) and score.W is not None:
                found[t, s] = x @ score.W @ query
            elif isinstance(score, Bilinear):
                found[t, s] = (score.U @ x) @ (score.V @ query)
            else:
                found[t, s] = x @ query / (math.sqrt(len(query)) if isinstance(score, ScaledDot) else 1)
    return found


def scattered(score: ScoreFunction) -> ScoreFunction:
    """In float64, with random weights: an identity at the start would hide a transposition."""
    for weight in score.parameters():
        torch.nn.init.normal_(weight)
    return score.double()


@pytest.mark.parametrize(
    "score",
    [Additive(D_K, D_Q, inner=7), Bilinear(D_K, D_Q), Bilinear(D_K, D_Q, rank=2), Dot(), ScaledDot()],
    ids=["additive", "bilinear", "low rank", "dot", "scaled"],
)
def test_a_score_equals_a_loop(score: ScoreFunction) -> None:
    torch.manual_seed(0)
    d_q = D_Q if isinstance(score, Additive | Bilinear) else D_K
    q, k = torch.randn(T, d_q, dtype=torch.float64), torch.randn(S, D_K, dtype=torch.float64)
    score = scattered(score)
    torch.testing.assert_close(score(q, k), by_loop(score, q, k), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(("name", "rank"), [*((name, None) for name in NAMES), ("bilinear", 2)])
def test_every_head_has_its_own_weights(name: str, rank: int | None) -> None:
    torch.manual_seed(0)
    rows, heads = 2, 3
    score = scattered(make_score(name, D_K, D_K, heads, rank))
    q = torch.randn(rows, heads, T, D_K, dtype=torch.float64)
    k = torch.randn(rows, heads, S, D_K, dtype=torch.float64)
    found = score(q, k)
    for head in range(heads):
        alone = make_score(name, D_K, D_K, None, rank).double()
        alone.load_state_dict({key: weight[head] for key, weight in score.state_dict().items()})
        for row in range(rows):
            torch.testing.assert_close(found[row, head], by_loop(alone, q[row, head], k[row, head]))


def test_the_bilinear_score_begins_as_the_scaled_dot() -> None:
    q, k = torch.randn(T, D_K), torch.randn(S, D_K)
    torch.testing.assert_close(Bilinear(D_K, D_K)(q, k), ScaledDot()(q, k))
    q, k = torch.randn(50, 64), torch.randn(50, 64)
    low = Bilinear(64, 64, rank=16)(q, k)  # a part of it: no larger
    assert low.std() < ScaledDot()(q, k).std()
    assert torch.corrcoef(torch.stack([low.flatten(), ScaledDot()(q, k).flatten()]))[0, 1] > 0.3


def test_key_value_and_plain_form() -> None:
    q, x, v = torch.randn(1, T, D_K), torch.randn(1, S, D_K), torch.randn(1, S, 9)
    weights = attention_weights(q, x, None, Dot())
    torch.testing.assert_close(attend(q, x, v, None, score=Dot()).summary, weights @ v)
    torch.testing.assert_close(attend(q, x, x, None, score=Dot()).summary, weights @ x)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_distributions_and_nothing_gives_zeros(name: str) -> None:
    torch.manual_seed(1)
    q, k, v = torch.randn(2, T, D_K), torch.randn(2, S, D_K), torch.randn(2, S, 7)
    mask = torch.rand(2, T, S) < 0.6
    mask[:, 1] = True
    mask[0, 2] = False  # nothing to look at
    summary, weights = attend(q, k, v, mask, score=make_score(name, D_K, D_K))
    sums = weights.sum(-1)
    torch.testing.assert_close(sums, mask.any(-1).float())
    assert not weights[~mask].any()
    assert torch.equal(summary[0, 2], torch.zeros(7))


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_the_future_change_nothing_to_the_bit(name: str) -> None:
    torch.manual_seed(2)
    attention = MultiHeadAttention(12, 3, 4, 5, True, 0.0, name).eval()
    x, other = torch.randn(2, 5, 12), torch.randn(2, 5, 12)
    mask = causal_mask(5).unsqueeze(0).unsqueeze(0)
    for seen in range(1, 6):
        changed = torch.cat([x[:, :seen], other[:, seen:]], 1)
        for maps in ([], None):
            before, after = (
                attention.over_itself(y, None, AttentionMask(mask), maps)[0][:, :seen] for y in (x, changed)
            )
            assert torch.equal(before, after)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "additive"])
def test_fused_and_plain_agree(name: str) -> None:
    torch.manual_seed(3)
    score = make_score(name, D_K, D_K, 3, 2 if name == "bilinear" else None)
    q, k, v = torch.randn(2, 3, T, D_K), torch.randn(2, 3, S, D_K), torch.randn(2, 3, S, 7)
    mask = torch.rand(2, 1, T, S) < 0.7
    mask[..., 0] = True
    torch.testing.assert_close(attend_fused(q, k, v, mask, score=score), attend(q, k, v, mask, score=score).summary)


@pytest.mark.parametrize(("name", "rank"), [*((name, None) for name in NAMES), ("bilinear", 3)])
def test_every_score_works_in_the_transformer(name: str, rank: int | None) -> None:
    """Steps and forward agree, the weights asked for are those that are used, and every weight gets a gradient."""
    model = small_model(score=name, score_rank=rank)
    source, target = source_rows([5, 6, 7], [8, 9]), target_rows([10, 11], [12, 13])
    logits = model(source, target)
    assert logits.shape == (2, 3, TARGET_WORDS)
    memory = model.encode(source)
    state, found = model.start(memory), []
    for tokens in target.tokens.split(1, 1):
        step, state = model.step(tokens, memory, state)
        found.append(step)
    torch.testing.assert_close(torch.cat(found, 1), logits, atol=1e-5, rtol=1e-4)
    maps = model.attention(source, target)
    torch.testing.assert_close(maps.cross[0].sum(-1), torch.ones(2, 3, 3))
    logits.sum().backward()
    assert all(
        weight.grad is not None and weight.grad.any() for name, weight in model.named_parameters() if ".score." in name
    )


def test_dot_products_begin_calm() -> None:
    """Without scale the queries begin smaller by √d_k, so that the first softmax is not saturated."""
    usual, calm = (small_model(score=name).decoder[0].self_attention for name in ("scaled", "dot"))
    torch.testing.assert_close(calm.query.weight, usual.query.weight / math.sqrt(usual.d_k))
    torch.testing.assert_close(calm.key.weight, usual.key.weight)


def test_settings_of_scores_are_checked() -> None:
    with pytest.raises(
        SettingsError, match=r"model.score=dots must be one of scaled, dot, additive, bilinear, did you"
    ):
        compose({"model": {"score": "dots"}})
    with pytest.raises(SettingsError, match=r"model.score_rank=4 needs model.score=bilinear, not scaled"):
        compose({"model": {"score_rank": 4}})


# ---- hard attention


def test_hard_attention_picks_one_value() -> None:
    torch.manual_seed(4)
    q, k, v = torch.randn(2, T, D_K), torch.randn(2, S, D_K), torch.randn(2, S, 7)
    mask = torch.rand(2, T, S) < 0.6
    mask[:, 0] = True
    mask[1, 3] = False
    weights = attention_weights(q, k, mask)
    best = attend_hard(q, k, v, mask, "arg_max")
    torch.testing.assert_close(best.summary[0, 0], v[0, weights[0, 0].argmax()])
    torch.testing.assert_close(best.log_probability[0, 0], weights[0, 0].max().log())
    for selection in ("arg_max", "sample", "straight_through"):
        assert not attend_hard(q, k, v, mask, selection).summary[1, 3].any()  # nothing to look at gives zeros
    drawn = attend_hard(q, k, v, mask, "sample")
    picked = (drawn.summary[0, 0].unsqueeze(0) == v[0]).all(1).nonzero().item()
    assert mask[0, 0, picked]
    torch.testing.assert_close(drawn.log_probability[0, 0], weights[0, 0, picked].log())


def test_draws_follow_the_weights() -> None:
    torch.manual_seed(5)
    q, k = torch.randn(1, 1, 4).expand(1, 20_000, 4), torch.randn(1, 3, 4)
    drawn = attend_hard(q, k, torch.eye(3).unsqueeze(0), None, "sample")
    torch.testing.assert_close(drawn.summary[0].mean(0), drawn.weights[0, 0], atol=0.02, rtol=0)


def test_straight_through_has_the_gradient_of_soft_attention() -> None:
    torch.manual_seed(6)
    q, k, v = torch.randn(1, T, D_K, requires_grad=True), torch.randn(1, S, D_K), torch.randn(1, S, 7)
    back = torch.randn(1, T, 7)
    (through,) = torch.autograd.grad(attend_hard(q, k, v, None, "straight_through").summary, q, back)
    (soft,) = torch.autograd.grad(attend(q, k, v, None).summary, q, back)
    torch.testing.assert_close(through, soft)
    assert not attend_hard(q, k, v, None, "sample").summary.requires_grad


def test_the_score_function_estimator_is_right_on_average() -> None:
    """Against the gradient of the expected reward, which is known where there are few entries."""
    torch.manual_seed(7)
    q, k = torch.randn(1, 1, 4, requires_grad=True), torch.randn(1, 3, 4)
    rewards = torch.tensor([1.0, -2.0, 0.5])
    weights = attention_weights(q, k, None)
    (exact,) = torch.autograd.grad(-(weights[0, 0] * rewards).sum(), q)
    many = q.expand(1, 40_000, 4)
    drawn = attend_hard(many, k, torch.eye(3).unsqueeze(0), None, "sample")
    baseline = Baseline()
    baseline.value = 0.4
    loss = reinforced(drawn.summary[0] @ rewards, drawn.log_probability[0], baseline)
    (estimate,) = torch.autograd.grad(loss, q)
    torch.testing.assert_close(estimate, exact, atol=0.03, rtol=0.05)


def test_the_baseline_follows_the_rewards() -> None:
    baseline = Baseline(decay=0.5)
    assert baseline.update(4.0) == 4.0
    assert baseline.update(0.0) == 4.0
    assert baseline.update(0.0) == 2.0


@pytest.mark.parametrize("selection", ["sample", "straight_through"])
def test_hard_attention_learns_to_copy_the_marked_word(selection: str) -> None:
    path = Path(__file__).parent.parent / "examples" / "hard_attention.py"
    spec = importlib.util.spec_from_file_location("hard_attention", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    before, after = example.train(selection)
    assert before < 0.3
    assert after > 0.95
