"""Somebody else agrees: with the same weights PyTorch's and Hugging Face's modules give our numbers and our gradients.

Each test writes down which weight of ours is which of theirs, one table a peer; the table copies the weights there and
compares the gradients that come back, and a weight of either side that the table forgets is an error.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from conftest import SMALL, SOURCE_WORDS, TARGET_WORDS, small_model, source_rows, target_rows
from torch import Tensor, nn

from transduce.core.attention import MultiHeadAttention
from transduce.core.masks import AttentionMask, causal_mask, segment_mask
from transduce.core.positions import sinusoid_table
from transduce.core.rows import Rows
from transduce.core.seq2seq import Memory
from transduce.core.special import BEGIN, END, PAD
from transduce.core.transformer import Transformer

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
POSITIONS = 37
EPS = 3e-3  # so large that a norm which ignores it is seen
SOURCE, TARGET = source_rows([5, 6, 7, 8, 9], [10, 11]), target_rows([5, 6, 7], [8, 9, 10, 11, 12, 13])

precisions = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float64", "float32"])
stacks = pytest.mark.parametrize(
    ("norm", "final_norm", "activation"),
    [("after", False, "relu"), ("after", True, "swish"), ("before", True, "gelu"), ("before", False, "relu")],
)


class Twin(NamedTuple):
    """Weights (or inputs) of ours that, one below the other, are one of theirs."""

    ours: list[Tensor]
    theirs: Tensor


def twins(ours: nn.Module, theirs: nn.Module) -> list[Twin]:
    """Of two modules that call their weights the same, such as linear maps, norms and embeddings."""
    other = dict(theirs.named_parameters())
    return [Twin([weight], other[name]) for name, weight in ours.named_parameters()]


def give_weights(ours: nn.Module, theirs: nn.Module, table: list[Twin]) -> None:
    """Copy ours into theirs; the table must name all weights of both."""
    for module, named in ((ours, [w for twin in table for w in twin.ours]), (theirs, [twin.theirs for twin in table])):
        forgotten = [name for name, weight in module.named_parameters() if all(weight is not w for w in named)]
        assert not forgotten
    with torch.no_grad():
        for twin in table:
            twin.theirs.copy_(torch.cat(twin.ours))


def agree(found: Tensor, expected: Tensor) -> None:
    """Up to rounding, which is measured against the largest number."""
    largest = max(1.0, expected.detach().abs().max().item())
    torch.testing.assert_close(found, expected, atol=TOLERANCE[expected.dtype] * largest, rtol=0.0)


def gradients(outputs: list[Tensor], wanted: list[Tensor]) -> list[Tensor]:
    """Of a sum to which every number contributes differently: a plain one has no gradient behind softmax or norm."""
    flat = torch.cat([output.flatten() for output in outputs])
    shares = torch.randn(flat.shape, generator=torch.Generator().manual_seed(3), dtype=flat.dtype)
    return list(torch.autograd.grad(flat @ shares, wanted, allow_unused=True, materialize_grads=True))


def agree_both_ways(found: list[Tensor], expected: list[Tensor], table: list[Twin]) -> None:
    """Forwards in the outputs, which leave padding out; backwards in the table, where padding must have no effect."""
    for mine, other in zip(found, expected, strict=True):
        agree(mine, other)
    trained = [twin for twin in table if twin.theirs.requires_grad]
    mine = iter(gradients(found, [weight for twin in trained for weight in twin.ours]))
    for twin, other in zip(trained, gradients(expected, [twin.theirs for twin in trained]), strict=True):
        together = torch.cat([next(mine) for _ in twin.ours])
        agree(together, other.view_as(together))


def random_input(length: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(2, length, SMALL.d_model, dtype=dtype, requires_grad=True)


# ---- PyTorch


def later_ones(length: int) -> Tensor:
    """The causal mask as PyTorch wants it, True = may not look; written out, for ours is under test here."""
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def attention_twins(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> list[Twin]:
    projections = (ours.query, ours.key, ours.value)
    table = [Twin([p.weight for p in projections], theirs.in_proj_weight), *twins(ours.output, theirs.out_proj)]
    if theirs.in_proj_bias is not None:
        table.append(Twin([p.bias for p in projections], theirs.in_proj_bias))
    return table


@precisions
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("look", [True, False], ids=["with weights", "summary only"])
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_multihead_attention(kind: str, look: bool, bias: bool, dtype: torch.dtype) -> None:
    """Asked for its weights, each side takes its plain path, otherwise its fused one."""
    torch.manual_seed(1)
    ours = MultiHeadAttention(24, 3, d_k=8, d_v=8, bias=bias, dropout=0.0).to(dtype).eval()
    theirs = nn.MultiheadAttention(24, 3, bias=bias, batch_first=True, dtype=dtype).eval()
    table = attention_twins(ours, theirs)
    give_weights(ours, theirs, table)
    queries = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 0, 0]])  # padding may also lie in between
    keys = torch.tensor([[0, 1, 0, 1, 1, 1], [1, 1, 1, 1, 0, 0]]) if kind == "cross" else queries
    x = random_input(7, dtype)
    context = random_input(6, dtype) if kind == "cross" else x
    mask = segment_mask(queries, keys)
    may_look = AttentionMask(mask & causal_mask(7) if kind == "causal" else mask)

    maps: list[Tensor] | None = [] if look else None
    if kind == "cross":
        summary = ours(x, ours.keys_values(context), may_look, maps)
    else:
        summary, _ = ours.over_itself(x, None, may_look, maps)
    expected, weights = theirs(
        *(x, context, context),
        key_padding_mask=keys == 0,
        attn_mask=later_ones(7) if kind == "causal" else None,
        need_weights=look,
        average_attn_weights=False,
    )

    def real(parts: list[Tensor]) -> list[Tensor]:
        summary, *weights = parts
        return [summary[queries != 0], *(w.transpose(1, 2)[queries != 0] for w in weights)]

    inputs = [Twin([x], x), Twin([context], context)]
    agree_both_ways(real([summary, *(maps or [])]), real([expected, *([weights] if look else [])]), [*inputs, *table])


class Given(nn.Module):
    """Stands in for an embedding: what it would give is there already, and can be asked for its gradient."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.x = x

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.x


def stack_model(norm: str, final_norm: bool, activation: str, dtype: torch.dtype) -> Transformer:
    options = {"norm": norm, "final_norm": final_norm, "activation": activation, "eps": EPS}
    return small_model(d_k=None, d_v=None, **options).to(dtype)


def pytorch_layer(kind: type[nn.Module], norm: str, activation: str, dtype: torch.dtype) -> nn.Module:
    return kind(
        *(SMALL.d_model, SMALL.heads, SMALL.d_ff, 0.0),
        activation={"relu": F.relu, "gelu": F.gelu, "swish": F.silu}[activation],
        layer_norm_eps=EPS,
        batch_first=True,
        norm_first=norm == "before",
        dtype=dtype,
    )


def final_norm_of_pytorch(wanted: bool, dtype: torch.dtype) -> nn.LayerNorm | None:
    return nn.LayerNorm(SMALL.d_model, EPS, dtype=dtype) if wanted else None


def pytorch_twins(ours: nn.ModuleList, theirs: nn.ModuleList) -> list[Twin]:
    """Of the layers of an encoder or a decoder; PyTorch numbers the norms in their order."""
    table: list[Twin] = []
    for a, b in zip(ours, theirs, strict=True):
        residuals = [a.self_residual, a.feed_forward_residual]
        table += attention_twins(a.self_attention, b.self_attn)
        if hasattr(a, "cross_attention"):
            residuals.insert(1, a.cross_residual)
            table += attention_twins(a.cross_attention, b.multihead_attn)
        for number, residual in enumerate(residuals, start=1):
            table += twins(residual.norm, getattr(b, f"norm{number}"))
        table += twins(a.feed_forward.inner, b.linear1) + twins(a.feed_forward.outer, b.linear2)
    return table


@precisions
@stacks
def test_pytorch_encoder(norm: str, final_norm: bool, activation: str, dtype: torch.dtype) -> None:
    ours = stack_model(norm, final_norm, activation, dtype)
    layer = pytorch_layer(nn.TransformerEncoderLayer, norm, activation, dtype)
    last = final_norm_of_pytorch(final_norm, dtype)
    theirs = nn.TransformerEncoder(layer, SMALL.layers, last, enable_nested_tensor=False).eval()
    table = pytorch_twins(ours.encoder, theirs.layers) + (twins(ours.encoder_norm, last) if last else [])
    give_weights(nn.ModuleList([ours.encoder, ours.encoder_norm]), theirs, table)

    x = random_input(SOURCE.tokens.size(1), dtype)
    ours.source = Given(x)
    found = ours.encode(SOURCE).states
    expected = theirs(x, src_key_padding_mask=SOURCE.segments == 0)
    real = SOURCE.segments != 0
    agree_both_ways([found[real]], [expected[real]], [Twin([x], x), *table])


@precisions
@stacks
def test_pytorch_decoder(norm: str, final_norm: bool, activation: str, dtype: torch.dtype) -> None:
    ours = stack_model(norm, final_norm, activation, dtype)
    layer = pytorch_layer(nn.TransformerDecoderLayer, norm, activation, dtype)
    last = final_norm_of_pytorch(final_norm, dtype)
    theirs = nn.TransformerDecoder(layer, SMALL.decoder_layers, last).eval()
    table = pytorch_twins(ours.decoder, theirs.layers) + (twins(ours.decoder_norm, last) if last else [])
    give_weights(nn.ModuleList([ours.decoder, ours.decoder_norm]), theirs, table)

    memory, x = random_input(SOURCE.tokens.size(1), dtype), random_input(TARGET.tokens.size(1), dtype)
    ours.encode = lambda source, maps=None: Memory(memory, source.segments)
    ours.target = Given(x)
    found = ours.states(SOURCE, TARGET)
    expected = theirs(
        *(x, memory),
        tgt_mask=later_ones(x.size(1)),
        tgt_key_padding_mask=TARGET.segments == 0,
        memory_key_padding_mask=SOURCE.segments == 0,
    )
    real = TARGET.segments != 0
    agree_both_ways([found[real]], [expected[real]], [Twin([x], x), Twin([memory], memory), *table])


# ---- Hugging Face


@pytest.fixture
def hugging_face() -> ModuleType:
    return pytest.importorskip("transformers", reason="Hugging Face's models are compared where they are installed")


def common_configuration(activation: str, scale: str) -> dict:
    """Our sizes and special tokens in the words that all of BART's relatives share."""
    sizes = {"attention_heads": SMALL.heads, "ffn_dim": SMALL.d_ff}
    return {
        **{f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sizes.items()},
        "encoder_layers": SMALL.layers,
        "decoder_layers": SMALL.decoder_layers,
        "d_model": SMALL.d_model,
        "max_position_embeddings": POSITIONS,
        "activation_function": activation,
        "scale_embedding": scale == "embedding",
        "pad_token_id": PAD,
        "eos_token_id": END,
        "forced_eos_token_id": END,
        "decoder_start_token_id": BEGIN,
        "attn_implementation": "eager",  # the one that gives its weights
    }


def bart_twins(ours: nn.ModuleList, theirs: nn.ModuleList) -> list[Twin]:
    """Of the layers of an encoder or a decoder; the names are those of BART and its relatives."""
    table: list[Twin] = []
    for a, b in zip(ours, theirs, strict=True):
        attentions = [(a.self_attention, b.self_attn)]
        norms = [(a.self_residual, b.self_attn_layer_norm), (a.feed_forward_residual, b.final_layer_norm)]
        if hasattr(a, "cross_attention"):
            attentions.append((a.cross_attention, b.encoder_attn))
            norms.append((a.cross_residual, b.encoder_attn_layer_norm))
        for mine, other in attentions:
            table += twins(mine.query, other.q_proj) + twins(mine.key, other.k_proj)
            table += twins(mine.value, other.v_proj) + twins(mine.output, other.out_proj)
        for residual, norm in norms:
            table += twins(residual.norm, norm)
        table += twins(a.feed_forward.inner, b.fc1) + twins(a.feed_forward.outer, b.fc2)
    return table


def outer_twins(ours: Transformer, theirs: nn.Module) -> list[Twin]:
    """Of all between the layers and the tokens; their output bias is a buffer, here trained like ours."""
    theirs.final_logits_bias.requires_grad_()
    return [
        *bart_twins(ours.encoder, theirs.model.encoder.layers),
        *bart_twins(ours.decoder, theirs.model.decoder.layers),
        *twins(ours.source.tokens, theirs.model.encoder.embed_tokens),
        *twins(ours.target.tokens, theirs.model.decoder.embed_tokens),
        Twin([ours.projection.weight], theirs.lm_head.weight),
        Twin([ours.projection.bias], theirs.final_logits_bias),
    ]


def entering(layer: nn.Module) -> list[Tensor]:
    """Fills with what the layer is given, once the model runs."""
    seen: list[Tensor] = []
    layer.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    return seen


def by_query(weights: list[Tensor], rows: Rows) -> list[Tensor]:
    """Maps (R, H, T, S) of all layers without the queries that are padding."""
    return [w.transpose(1, 2)[rows.segments != 0] for w in weights]


def agree_as_models(ours: Transformer, theirs: nn.Module, table: list[Twin]) -> None:
    """Encoder states, attention weights and logits, and all gradients down to the embeddings."""
    give_weights(ours, theirs, table)
    memory = ours.encode(SOURCE)
    maps = ours.attention(SOURCE, TARGET)
    firsts = [ours.encoder[0], theirs.model.encoder.layers[0], ours.decoder[0], theirs.model.decoder.layers[0]]
    seen = [entering(layer) for layer in firsts]
    logits = ours(SOURCE, TARGET)
    expected = theirs(
        input_ids=SOURCE.tokens,
        attention_mask=(SOURCE.segments != 0).long(),
        decoder_input_ids=TARGET.tokens,
        decoder_attention_mask=(TARGET.segments != 0).long(),
        use_cache=False,
        output_attentions=True,
    )
    real_source, real = SOURCE.segments != 0, TARGET.segments != 0
    agree(memory.states[real_source], expected.encoder_last_hidden_state[real_source])
    for found, other, rows in (
        (maps.encoder, expected.encoder_attentions, SOURCE),
        (maps.decoder, expected.decoder_attentions, TARGET),
        (maps.cross, expected.cross_attentions, TARGET),
    ):
        for mine, weights in zip(by_query(found, rows), by_query(other, rows), strict=True):
            agree(mine, weights)
    [source], [source_there], [target], [target_there] = seen
    inputs = [Twin([source], source_there), Twin([target], target_there)]
    agree_both_ways([logits[real]], [expected.logits[real]], [*inputs, *table])


@precisions
@pytest.mark.parametrize(
    ("tie_source", "tie_output", "activation", "scale"),
    [(False, True, "relu", "embedding"), (True, True, "swish", "embedding"), (False, False, "gelu", "none")],
)
def test_marian(
    hugging_face: ModuleType, tie_source: bool, tie_output: bool, activation: str, scale: str, dtype: torch.dtype
) -> None:
    """Norm after, sinusoids; theirs has another order of columns, so it is given our table."""
    options = {"tie_source": tie_source, "tie_output": tie_output, "activation": activation, "scale": scale}
    ours = small_model(d_k=None, d_v=None, output_bias=True, max_positions=POSITIONS, **options).to(dtype)
    configuration = hugging_face.MarianConfig(
        vocab_size=TARGET_WORDS if tie_source else SOURCE_WORDS,
        decoder_vocab_size=TARGET_WORDS,
        share_encoder_decoder_embeddings=tie_source,
        tie_word_embeddings=tie_output,
        **common_configuration(activation, scale),
    )
    theirs = hugging_face.MarianMTModel(configuration).to(dtype).eval()
    positions = [
        Twin([ours.source.positions.table], theirs.model.encoder.embed_positions.weight),
        Twin([ours.target.positions.table], theirs.model.decoder.embed_positions.weight),
    ]
    agree_as_models(ours, theirs, [*outer_twins(ours, theirs), *positions])


@precisions
@pytest.mark.parametrize(("activation", "scale"), [("gelu", "embedding"), ("relu", "none")])
def test_mbart(hugging_face: ModuleType, activation: str, scale: str, dtype: torch.dtype) -> None:
    """Norm before, also at the end of the stacks and on the embeddings, and learned positions."""
    options = {"embedding_norm": True, "positions": "learned", "tie_source": True, "output_bias": True}
    options |= {"norm": "before", "activation": activation, "scale": scale, "max_positions": POSITIONS}
    ours = small_model(d_k=None, d_v=None, **options).to(dtype)
    configuration = hugging_face.MBartConfig(vocab_size=TARGET_WORDS, **common_configuration(activation, scale))
    theirs = hugging_face.MBartForConditionalGeneration(configuration).to(dtype).eval()
    table = outer_twins(ours, theirs)
    for embedding, norm, stack in (
        (ours.source, ours.encoder_norm, theirs.model.encoder),
        (ours.target, ours.decoder_norm, theirs.model.decoder),
    ):
        unused = torch.zeros(2, SMALL.d_model, dtype=dtype, requires_grad=True)  # theirs begins at position 2
        table.append(Twin([unused, embedding.positions.table.weight], stack.embed_positions.weight))
        table += twins(embedding.norm, stack.layernorm_embedding) + twins(norm, stack.layer_norm)
    agree_as_models(ours, theirs, table)


def test_marians_sinusoids(hugging_face: ModuleType) -> None:
    """The same numbers as ours, all sines before all cosines."""
    configuration = hugging_face.MarianConfig(vocab_size=SOURCE_WORDS, **common_configuration("relu", "none"))
    theirs = hugging_face.MarianMTModel(configuration).model.encoder.embed_positions.weight
    ours = sinusoid_table(POSITIONS, SMALL.d_model)
    torch.testing.assert_close(torch.cat([ours[:, 0::2], ours[:, 1::2]], 1), theirs, atol=1e-6, rtol=0.0)
