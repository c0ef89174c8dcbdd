"""The model: its verbs agree with each other, with packing, and with torch.nn.Transformer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, TARGET_WORDS, small_model, source_rows, target_rows
from torch import nn

from transduce.core import transformer
from transduce.core.layout import lay_out
from transduce.core.special import BEGIN, END
from transduce.models.kinds import KINDS, new_model, unfilled_model
from transduce.models.weights import restore, weights_of
from transduce.settings.compose import compose
from transduce.settings.presets import find

A, B, C = [5, 6, 7, 8, 9], [10, 11], [12, 13, 14]
X, Y, Z = [5, 6, 7], [8, 9, 10, 11, 12, 13], [14]

OPTIONS = [
    {},
    {"norm": "before"},
    {"norm": "before", "final_norm": False},
    {"final_norm": True},
    {"embedding_norm": True, "scale": "projection", "eps": 1e-6},
    {"positions": "learned", "scale": "none", "max_positions": 40},
    {"attention_bias": False, "output_bias": True},
    {"tie_output": False},
    {"tie_source": True},
    {"activation": "gelu"},
    {"activation": "swish"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_steps_and_forward_agree(options: dict) -> None:
    model = small_model(**options)
    source, target = source_rows(A, B), target_rows(X, X)
    expected = model(source, target)
    memory = model.encode(source)
    state = model.start(memory)
    for t in range(target.tokens.size(1)):
        logits, state = model.step(target.tokens[:, t : t + 1], memory, state)
        torch.testing.assert_close(logits[:, 0], expected[:, t], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_several_sentences_a_row_equal_one_a_row(options: dict) -> None:
    model = small_model(**options)
    alone = model(source_rows(A, B, C), target_rows(X, Y, Z))
    source = lay_out([[[*A, END], [*B, END]], [[*C, END]]], 12)
    target = lay_out([[[BEGIN, *X], [BEGIN, *Y]], [[BEGIN, *Z]]], 14)
    packed = model(source, target)
    for r, segment, own, words in ((0, 1, 0, X), (0, 2, 1, Y), (1, 1, 2, Z)):
        here = packed[r, target.segments[r] == segment]
        torch.testing.assert_close(here, alone[own, : len(words) + 1], atol=1e-5, rtol=1e-4)


def test_packing_gives_the_same_gradients() -> None:
    from transduce.core.loss import cross_entropy

    def gradients(source: list, target: list) -> dict[str, torch.Tensor]:
        model = small_model()
        s = lay_out([[[*x, END] for x in row] for row in source])
        t = lay_out([[[BEGIN, *x] for x in row] for row in target])
        out = lay_out([[[*x, END] for x in row] for row in target]).tokens
        loss = cross_entropy(model(s, t), out, 0.1)
        (loss.total / loss.tokens).backward()
        return {name: weight.grad for name, weight in model.named_parameters()}

    one, several = gradients([[A], [B], [C]], [[X], [Y], [Z]]), gradients([[A, B], [C]], [[X, Y], [Z]])
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, several[name], atol=1e-5, rtol=1e-4, msg=name)


def test_the_future_does_not_matter() -> None:
    model = small_model()
    source = source_rows(A)
    one, other = model(source, target_rows(X)), model(source, target_rows([*X[:2], 30]))
    assert torch.equal(one[:, :3], other[:, :3])
    assert not torch.equal(one[:, 3], other[:, 3])


def test_neighbours_and_padding_do_not_matter() -> None:
    model = small_model()
    alone = model(source_rows(B), target_rows(Z))
    beside = model(source_rows(B, A), target_rows(Z, Y))
    torch.testing.assert_close(beside[:1, :2], alone, atol=1e-6, rtol=1e-5)


def test_beams_share_the_memory_of_their_sentence() -> None:
    model = small_model()
    source = source_rows(A, B)
    memory = model.encode(source)
    tokens = torch.tensor([[5, 6], [7, 8]])  # two hypotheses a sentence
    together, state = model.step(tokens, memory, model.start(memory).reorder(torch.zeros_like(tokens)))
    together, _ = model.step(tokens, memory, state.reorder(torch.tensor([[1, 0], [0, 0]])))
    doubled = memory.keep(torch.tensor([0, 0, 1, 1]))
    _, state = model.step(torch.tensor([[6], [5], [7], [7]]), doubled, model.start(doubled))
    apart, _ = model.step(tokens.view(4, 1), doubled, state)
    torch.testing.assert_close(together.flatten(0, 1), apart.flatten(0, 1), atol=1e-5, rtol=1e-4)


def test_finished_sentences_can_leave() -> None:
    model = small_model()
    memory = model.encode(source_rows(A, B))
    two = model.start(memory).reorder(torch.zeros(2, 2, dtype=torch.long))
    _, state = model.step(torch.tensor([[5, 5], [6, 7]]), memory, two)
    both, _ = model.step(torch.tensor([[7, 7], [8, 9]]), memory, state)
    last = torch.tensor([1])
    one, _ = model.step(torch.tensor([[8, 9]]), memory.keep(last), state.keep(last))
    torch.testing.assert_close(one, both[1:], atol=1e-6, rtol=1e-5)


def test_attention_maps_of_every_layer() -> None:
    model = small_model()
    source, target = source_rows(A, B), target_rows(X, Y)
    maps = model.attention(source, target)
    assert (len(maps.encoder), len(maps.decoder), len(maps.cross)) == (2, 3, 3)
    assert maps.encoder[0].shape == (2, 3, 6, 6)
    assert maps.decoder[0].shape == (2, 3, 7, 7)
    assert maps.cross[0].shape == (2, 3, 7, 6)
    torch.testing.assert_close(maps.cross[2][1].sum(-1), torch.ones(3, 7))
    assert torch.equal(maps.decoder[1].triu(1), torch.zeros_like(maps.decoder[1]))
    assert torch.equal(maps.cross[0][1, :, :, 3:], torch.zeros(3, 7, 3))  # B's padding
    torch.testing.assert_close(model(source, target, maps), model(source, target), atol=1e-5, rtol=1e-4)


def test_sharing_and_initialisation() -> None:
    tied = small_model(tie_source=True)
    assert tied.source.tokens.weight is tied.target.tokens.weight is tied.projection.weight
    apart = small_model(tie_output=False)
    assert len({id(w) for w in (apart.source.tokens.weight, apart.target.tokens.weight, apart.projection.weight)}) == 3
    model = transformer.build(SMALL, TARGET_WORDS, TARGET_WORDS)
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            bound = (6 / (weight.size(0) + weight.size(1))) ** 0.5
            assert weight.abs().max() <= bound, name
            assert weight.abs().max() > 0.8 * bound, name
        elif name.endswith("bias"):
            assert not weight.any(), name


def test_scales() -> None:
    source, target = source_rows(A), target_rows(X)
    plain, scaled = small_model(scale="none"), small_model(scale="projection")
    torch.testing.assert_close(scaled(source, target), plain(source, target) / 24**0.5)
    embedding = small_model(scale="embedding").source
    zero = torch.zeros(1, 1, dtype=torch.long)
    expected = embedding.tokens.weight[0] * 24**0.5 + embedding.positions(zero)[0, 0]
    torch.testing.assert_close(embedding(zero, zero)[0, 0], expected)


def test_dropout_is_where_it_is_said_to_be() -> None:
    for place in ("embedding_dropout", "residual_dropout", "attention_dropout", "feed_forward_dropout"):
        model = small_model(**{place: 0.5}).train()
        source, target = source_rows(A), target_rows(X)
        assert not torch.equal(model(source, target), model(source, target)), place
    model = small_model(dropout=0.5, embedding_dropout=0.0, residual_dropout=0.0).train()
    assert torch.equal(model(source, target), model(source, target))


def test_token_dropout_hides_whole_tokens() -> None:
    torch.manual_seed(1)
    embedding = small_model(dropout=0.0, token_dropout=0.4).source
    tokens, positions = torch.full((50, 20), 5), torch.zeros(50, 20, dtype=torch.int64)
    hidden = embedding.eval()(tokens, positions)[0, 0]  # what every slot holds when nothing is hidden
    x = embedding.train()(tokens, positions)
    gone = (x == embedding.positions(positions)).all(-1)
    assert 0.35 < gone.float().mean() < 0.45
    torch.testing.assert_close(x[~gone], hidden.expand_as(x[~gone]))


def test_the_papers_sizes() -> None:
    base = compose(find("paper-base").settings)
    with torch.device("meta"):
        model = transformer.build(base.model, 37_000, 37_000)
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    assert 62 < millions < 66  # the paper's table 3 says 65


@pytest.mark.parametrize("norm", ["after", "before"])
def test_pytorch_agrees(norm: str) -> None:
    """The same weights in torch.nn.Transformer, with padding, causal mask and unequal lengths; gradients too."""
    ours = small_model(norm=norm, d_k=None, d_v=None, final_norm=True)
    theirs = nn.Transformer(24, 3, 2, 3, 40, dropout=0.0, batch_first=True, norm_first=norm == "before")
    copy_into_pytorch(ours, theirs)
    source, target = source_rows(A, B), target_rows(X, Y)
    x = ours.source(source.tokens, source.positions).detach().requires_grad_()
    y = ours.target(target.tokens, target.positions)
    hidden = theirs(
        x,
        y,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(7),
        src_key_padding_mask=torch.where(source.segments == 0, float("-inf"), 0.0),
        memory_key_padding_mask=torch.where(source.segments == 0, float("-inf"), 0.0),
    )
    expected = ours.projection(hidden)
    found = ours(source, target)
    real = target.segments != 0
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-4)
    mine = ours.encoder[0].feed_forward.inner.weight
    gradient = torch.autograd.grad(found[real].square().mean(), mine)[0]
    torch.testing.assert_close(
        gradient,
        torch.autograd.grad(expected[real].square().mean(), theirs.encoder.layers[0].linear1.weight)[0],
        atol=1e-5,
        rtol=1e-4,
    )


def copy_into_pytorch(ours: transformer.Transformer, theirs: nn.Transformer) -> None:
    def attention(a, b) -> None:
        b.in_proj_weight.data = torch.cat([a.query.weight, a.key.weight, a.value.weight]).detach()
        b.in_proj_bias.data = torch.cat([a.query.bias, a.key.bias, a.value.bias]).detach()
        b.out_proj.load_state_dict(a.output.state_dict())

    for a, b in zip(ours.encoder, theirs.encoder.layers, strict=True):
        attention(a.self_attention, b.self_attn)
        norms = ((a.self_residual, b.norm1), (a.feed_forward_residual, b.norm2))
        for residual, norm in norms:
            norm.load_state_dict(residual.norm.state_dict())
        b.linear1.load_state_dict(a.feed_forward.inner.state_dict())
        b.linear2.load_state_dict(a.feed_forward.outer.state_dict())
    for a, b in zip(ours.decoder, theirs.decoder.layers, strict=True):
        attention(a.self_attention, b.self_attn)
        attention(a.cross_attention, b.multihead_attn)
        norms = ((a.self_residual, b.norm1), (a.cross_residual, b.norm2), (a.feed_forward_residual, b.norm3))
        for residual, norm in norms:
            norm.load_state_dict(residual.norm.state_dict())
        b.linear1.load_state_dict(a.feed_forward.inner.state_dict())
        b.linear2.load_state_dict(a.feed_forward.outer.state_dict())
    theirs.encoder.norm.load_state_dict(ours.encoder_norm.state_dict())
    theirs.decoder.norm.load_state_dict(ours.decoder_norm.state_dict())


@pytest.mark.parametrize("score", [{}, {"score": "bilinear", "score_rank": 2}])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_to_be_read_draws_nothing_and_becomes_the_one_that_is_read(kind: str, score: dict) -> None:
    settings = replace(SMALL, kind=kind, tie_source=False, **score)
    before = torch.get_rng_state()
    unfilled = unfilled_model(settings, 20, 30)
    assert torch.equal(torch.get_rng_state(), before)
    model = new_model(settings, 20, 30)
    assert not torch.equal(torch.get_rng_state(), before)
    restore(unfilled, weights_of(model), Path("model.safetensors"))
    for one, other in (
        (unfilled.named_parameters, model.named_parameters),
        (unfilled.named_buffers, model.named_buffers),
    ):
        assert all(torch.equal(a, b) for (_, a), (_, b) in zip(one(), other(), strict=True))
