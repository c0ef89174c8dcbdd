"""The fast path computes what the plain one does; whatever can be checked of it without a GPU is checked here."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import bundled_pairs, quick_settings, small_model, source_rows, target_rows
from torch import Tensor

from transduce.adapt.lora import attach
from transduce.core import loss as losses
from transduce.core import optimizers
from transduce.core.attention import MultiHeadAttention
from transduce.core.dropout import Dropout
from transduce.core.flat import FlatWeights
from transduce.core.layers import FeedForward
from transduce.core.optimizers import final_weights, make_optimizer, orthogonal
from transduce.core.precision import Affine, LayerNorm, Linear, linear_together
from transduce.core.special import BEGIN, END, PAD, UNKNOWN
from transduce.data.batches import Batch, Batches
from transduce.data.build import build_store
from transduce.data.corpus import ListCorpus
from transduce.errors import UserError
from transduce.fast import kernels, projected_loss
from transduce.fast.kernels.feed_forward import FeedForwardInOne
from transduce.fast.modules import FusedFeedForward, OrderedEmbedding, SegmentAttention, fits_kernel, make_fast
from transduce.fast.recorded import RecordedGradients
from transduce.fast.working_copy import working_copy
from transduce.models.device import prepare_device
from transduce.models.kinds import new_model
from transduce.models.weights import read_tensors, weights_of
from transduce.settings.sections import OptimizerSettings, Settings, TrainingSettings
from transduce.text.tokenizers import Tokenizers
from transduce.training.gradients import PlainGradients
from transduce.training.setup import fit
from transduce.training.state import RunState
from transduce.training.updater import Updater

A, B, C, X, Y, Z = [4, 5, 6], [7, 8], [9, 4, 4, 5], [5, 6], [8, 9, 10, 4], [6]


def a_batch() -> Batch:
    source, target_in = source_rows(A, B, C), target_rows(X, Y, Z)
    target_out = target_in.tokens.roll(-1, 1)
    target_out = torch.where(target_in.segments == 0, PAD, torch.where(target_out <= BEGIN, END, target_out))
    return Batch(source, target_in, target_out, None, int((target_out != PAD).sum()))  # type: ignore[arg-type]


# ---- loss


@pytest.mark.parametrize("bias", [True, False])
def test_the_projected_loss_equals_the_plain_one(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projected_loss, "SLICE", 13 * 5)  # five tokens a slice, so that there are several
    torch.manual_seed(1)
    projection = Linear(6, 13, bias=bias)
    states = torch.randn(3, 4, 6, requires_grad=True)
    targets = torch.randint(4, 13, (3, 4))
    targets[0, 2:] = PAD
    targets[1, 0] = UNKNOWN  # which no search may write, and no model is to learn
    plain = losses.cross_entropy(projection(states), targets, 0.1)
    sliced = projected_loss.projected_cross_entropy(states, projection, targets, 0.1)
    torch.testing.assert_close(sliced, plain.total)
    assert int(plain.tokens) == 9
    inputs = [states, *projection.parameters()]
    for mine, theirs in zip(
        torch.autograd.grad(sliced / 7, inputs), torch.autograd.grad(plain.total / 7, inputs), strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


# ---- gradients


def test_fast_gradients_equal_plain_ones() -> None:
    """The function that a GPU compiles and records, run here as it stands."""
    model, batch = small_model().train(), a_batch()
    flat = FlatWeights(model)
    plain = PlainGradients(model, 0.1, flat)
    total = plain.add(batch, 1 / batch.tokens)
    expected = flat.gradient.clone()
    plain.clear()
    assert not flat.gradient.any()

    fast = RecordedGradients(working_copy(model, flat), flat, 0.1, accumulate=1)
    fast._places = [*batch.source, *batch.target_in, batch.target_out]
    fast._share = torch.tensor(1 / batch.tokens)
    found, fresh = fast._run(fast._loss)
    torch.testing.assert_close(found, total)
    torch.testing.assert_close(fresh, expected, atol=1e-6, rtol=1e-4)


def test_the_compiled_loss_equals_the_plain_one() -> None:
    """One graph without a break, by the compiler that the GPU path uses."""
    model, batch = small_model().train(), a_batch()
    flat = FlatWeights(model)
    fast = RecordedGradients(working_copy(model, flat), flat, 0.1, accumulate=1)
    compiled = torch.compile(fast._loss, dynamic=False, fullgraph=True, backend="aot_eager")
    given = batch.source, batch.target_in, batch.target_out, torch.tensor(0.5)
    for one, two in zip(compiled(*given), fast._loss(*given), strict=True):
        torch.testing.assert_close(one, two)


def test_weights_are_cast_once_and_keep_their_digits() -> None:
    """In bfloat16 the fast path reads a cast of the weights; its gradients are those of the plain path."""
    model, batch = small_model().train(), a_batch()
    model.activation_dtype = torch.bfloat16
    flat = FlatWeights(model)
    fast = RecordedGradients(working_copy(model, flat), flat, 0.1, accumulate=1)
    fast._places = [*batch.source, *batch.target_in, batch.target_out]
    fast._share = torch.tensor(1 / batch.tokens)
    for _ in range(2):  # an update of the weights is seen
        fresh = fast._run(fast._loss)[1]
        plain = PlainGradients(model, 0.1, flat)
        plain.add(batch, 1 / batch.tokens)
        expected = flat.gradient.clone()
        assert fresh.dtype == torch.float32
        assert (fresh - expected).norm() / expected.norm() < 1e-2
        with torch.no_grad():
            flat.weights.mul_(1.5)
    kinds = {name: weight.dtype for name, weight in fast.working.model.named_parameters()}
    assert kinds["encoder.0.feed_forward.inner.weight"] == torch.bfloat16
    assert kinds["projection.weight" if "projection.weight" in kinds else "source.tokens.weight"] == torch.float32
    assert model.encoder[0].feed_forward.inner.weight.dtype == torch.float32


def test_what_is_frozen_is_cast_when_training_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with adapters that goes on reads its weights after the copy was made."""
    model = small_model()
    attach(model, TrainingSettings(start="x", lora_rank=2, lora_parts="query"))
    model.activation_dtype = torch.bfloat16
    flat = FlatWeights(model)
    fast = RecordedGradients(working_copy(model, flat), flat, 0.1, accumulate=1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight))

    class Recorded(Exception):
        pass

    def stop(_: object) -> None:
        raise Recorded

    monkeypatch.setattr(fast, "_try_to_record", stop)
    with pytest.raises(Recorded):
        fast.add(a_batch(), 1.0)
    held, read = model.encoder[0].self_attention.key.weight, fast.working.model.encoder[0].self_attention.key.weight
    assert read.dtype == torch.bfloat16
    assert torch.equal(read, held.bfloat16())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_recording_is_played_with_each_batch(accumulate: int) -> None:
    """All but the GPU: the recording is a stub that runs the function."""
    model, batch = small_model().train(), a_batch()
    flat = FlatWeights(model)
    fast, plain = (RecordedGradients(working_copy(model, flat), flat, 0.1, accumulate) for _ in range(2))
    numbers = [*batch.source, *batch.target_in, batch.target_out]
    plain._places, plain._share = numbers, torch.tensor(0.25)
    expected = plain._run(plain._loss)[1]

    class Stub:
        def replay(self) -> None:
            fast._total, fresh = fast._run(fast._loss)
            fast._fresh.copy_(fresh)

    fast._places = [torch.zeros_like(x) for x in numbers]
    fast._share, fast._fresh = torch.tensor(0.0), torch.zeros_like(flat.weights)
    fast._graph = Stub()  # type: ignore[assignment]
    for _ in range(accumulate):
        fast.add(batch, 0.25)
    torch.testing.assert_close(flat.gradient, accumulate * expected, atol=1e-6, rtol=1e-4)
    fast.clear()
    assert flat.weights.grad is None


def test_a_machine_where_the_fast_path_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    flat = FlatWeights(model)
    fast = RecordedGradients(working_copy(model, flat), flat, 0.1, accumulate=1)
    for error, words in (
        (RuntimeError("no C compiler\nat all"), r"RuntimeError: no C compiler\); go on with --training.fast false"),
        (torch.OutOfMemoryError("CUDA out of memory"), "does not fit into the GPU's memory; raise batch.split"),
    ):

        def fail(numbers: list[Tensor], error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(fast, "_record", fail)
        with pytest.raises(UserError, match=words):
            fast.add(a_batch(), 1.0)


def test_what_a_kernel_does_not_know_stays_plain() -> None:
    for d_k, d_v, dropout, fits in ((64, 64, 0.0, True), (65, 8, 0.0, False), (8, 65, 0.0, False), (8, 8, 0.1, False)):
        assert fits_kernel(MultiHeadAttention(8, 1, d_k, d_v, dropout=dropout)) == fits
    assert not fits_kernel(MultiHeadAttention(8, 1, 8, 8, score="dot"))
    if not kernels.HAS_TRITON:
        pytest.skip("Triton is not installed")

    class Other(MultiHeadAttention):
        """What a newcomer writes."""

    plain = {name: MultiHeadAttention(8, 1, 8, 8) for name in ("known", "switch", "table")}
    model = torch.nn.ModuleDict({**plain, "other": Other(8, 1, 8, 8), "words": torch.nn.Embedding(5, 3)})
    plain["switch"].turned = True  # type: ignore[assignment]
    plain["table"].register_buffer("angles", torch.zeros(3))
    make_fast(model)
    assert type(model["known"]) is SegmentAttention
    assert type(model["words"]) is OrderedEmbedding
    assert type(model["switch"]) is type(model["table"]) is MultiHeadAttention
    assert type(model["other"]) is Other


class Adapted(Linear):
    """A weight that somebody else has a say in, as an adapter has."""

    def read(self, dtype: torch.dtype) -> Affine:
        weight, bias = super().read(dtype)
        return Affine(weight + 0.25, bias)


def test_an_adapted_weight_is_seen_by_every_product() -> None:
    """Alone, side by side with others, inside the fused feed-forward layer and inside the projected loss."""
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(8, 2, 3, 5), torch.randn(2, 4, 8)
    layer = FeedForward(8, 12, "relu", 0.0)
    merged = [copy.deepcopy(attention), copy.deepcopy(layer)]
    for part in (attention.query, attention.key, attention.value, attention.output, layer.inner, layer.outer):
        part.__class__ = Adapted
    with torch.no_grad():
        for weight in (weight for module in merged for weight in module.parameters() if weight.dim() == 2):
            weight += 0.25
    torch.testing.assert_close(attention.over_itself(x, None, None)[0], merged[0].over_itself(x, None, None)[0])
    torch.testing.assert_close(layer(x), merged[1](x))
    layer.__class__, layer.recompute = FusedFeedForward, False
    torch.testing.assert_close(layer(x), merged[1](x))
    projection, states, targets = Adapted(8, 13), torch.randn(2, 4, 8), torch.randint(1, 13, (2, 4))
    plain = losses.cross_entropy(projection(states), targets).total
    torch.testing.assert_close(projected_loss.projected_cross_entropy(states, projection, targets), plain)


def test_weights_that_lie_end_to_end_are_the_models_own() -> None:
    model = small_model()
    before = weights_of(model)
    logits = model(source_rows(A), target_rows(X))
    flat = FlatWeights(model)
    assert torch.equal(model(source_rows(A), target_rows(X)), logits)
    for name, weight in weights_of(model).items():
        assert torch.equal(weight, before[name]), name
    with torch.no_grad():
        flat.weights.add_(1.0)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.detach(), before[name] + 1.0)
        assert weight.storage_offset() % 64 == 0, name


# ---- precision


def test_low_precision_keeps_weights_and_sums() -> None:
    prepare_device("cpu")  # without oneDNN where it knows no bfloat16
    norm, linear = LayerNorm(8), Linear(8, 4)
    x = torch.randn(3, 8, dtype=torch.bfloat16)
    assert norm(x).dtype == linear(x).dtype == torch.bfloat16
    assert norm.weight.dtype == linear.weight.dtype == torch.float32
    exact = torch.nn.functional.layer_norm(x.double(), (8,)).to(torch.bfloat16)
    assert torch.equal(norm(x), exact)  # one rounding, at the end
    model = small_model(d_k=None, d_v=None).train()
    exact = model(source_rows(A, B), target_rows(X, Y))
    model.activation_dtype = torch.bfloat16
    rough = model(source_rows(A, B), target_rows(X, Y))
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.float(), exact, atol=0.1, rtol=0.1)
    assert model.eval()(source_rows(A), target_rows(X)).dtype == torch.float32  # only training runs low


def test_products_taken_together() -> None:
    one, two, x = Linear(5, 3), Linear(5, 4), torch.randn(2, 6, 5)
    torch.testing.assert_close(linear_together(x, one, two), torch.cat([one(x), two(x)], -1))


@pytest.mark.parametrize("recompute", [False, True])
def test_feed_forward_that_recomputes(recompute: bool) -> None:
    layer, x = FeedForward(5, 9, "relu", 0.0), torch.randn(2, 6, 5, requires_grad=True)
    inputs = [x, layer.inner.weight, layer.inner.bias, layer.outer.weight, layer.outer.bias]
    plain, fused = layer(x), FeedForwardInOne.apply(*inputs, recompute)
    torch.testing.assert_close(fused, plain)
    for mine, theirs in zip(
        torch.autograd.grad(fused.square().sum(), inputs),
        torch.autograd.grad(plain.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_dropout_by_random_bits() -> None:
    torch.manual_seed(3)
    drop, x = Dropout(0.3), torch.ones(401, 501, requires_grad=True)
    y = drop(x)
    values = y.detach().unique().tolist()
    assert values == pytest.approx([0.0, 1 / 0.7])
    assert float(y.detach().mean()) == pytest.approx(1.0, abs=0.01)
    columns = (y > 0).float().mean(0)
    assert float(columns.min()) > 0.6  # no place is dropped more often than others
    assert float(columns.max()) < 0.8
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], y.detach())
    assert torch.equal(drop.eval()(x), x)


# ---- optimizers


def _quadratic(name: str, steps: int, falls: bool = False, **more: float) -> tuple[Tensor, FlatWeights]:
    """Minimise a bowl around 3 and give the weights that are meant to be used; the rate may fall to nothing."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"encoder": torch.nn.Linear(4, 6)})
    flat = FlatWeights(model)
    settings = OptimizerSettings(name=name, **more)  # type: ignore[arg-type]
    optimizer = make_optimizer(flat, settings)
    squares = 0.0
    for number in range(1, steps + 1):
        rate = 0.1 * (1 - (number - 1) / steps) if falls else 0.1
        squares += rate**2
        flat.weights.grad = 2 * (flat.weights.detach() - 3.0)
        optimizer.param_groups[0].update(lr=rate, number=number, share=rate**2 / squares)
        optimizers.step(optimizer, torch.zeros(()))
    with final_weights(optimizer):
        final = flat.weights.detach().clone()
    return final, flat


@pytest.mark.parametrize("name", ["adam", "adamw", "schedule_free", "muon"])
def test_every_optimizer_goes_downhill(name: str) -> None:
    """Every weight comes as near as a hundredth of its way, and less than a ten-thousandth of the loss is left."""
    start, _ = _quadratic(name, 0)
    final, flat = _quadratic(name, 1000, falls=True)
    ends = flat.by_name(final)
    for weight, begin in flat.by_name(start).items():
        assert float((ends[weight] - 3.0).abs().max()) < 0.01 * float((begin - 3.0).abs().min()), weight


@pytest.mark.parametrize("name", ["adam", "adamw", "muon"])
def test_an_optimizer_takes_the_steps_of_pytorch(name: str) -> None:
    """Another bowl for every weight, other rates, and everything that can be set at a value that shows."""
    o = OptimizerSettings(name=name, beta1=0.8, beta2=0.95, eps=1e-2, weight_decay=0.3)  # type: ignore[arg-type]
    torch.manual_seed(0)
    ours = torch.nn.ModuleDict({"encoder": torch.nn.Linear(4, 6), "projection": torch.nn.Linear(6, 3)})
    theirs = copy.deepcopy(ours)
    targets = [torch.randn_like(weight) for weight in theirs.parameters()]
    flat = FlatWeights(ours)
    optimizer, others = make_optimizer(flat, o), pytorchs(theirs, o)
    for number, rate in enumerate((0.1, 0.3, 0.2, 0.05, 0.1), 1):
        for model in (ours, theirs):
            for weight, target in zip(model.parameters(), targets, strict=True):
                weight.grad = 2 * (weight.detach() - target)
        flat.weights.grad = torch.zeros_like(flat.weights)
        gradients = flat.by_name(flat.weights.grad)
        for weight_name, weight in ours.named_parameters():
            gradients[weight_name].copy_(weight.grad)
        optimizer.param_groups[0].update(lr=rate, number=number, share=1.0)
        optimizers.step(optimizer, torch.zeros(()))
        for other in others:
            other.param_groups[0]["lr"] = rate
            other.step()
        for (weight_name, mine), weight in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            turned = name == "muon" and weight_name == "encoder.weight"  # which theirs turns in bfloat16
            torch.testing.assert_close(mine, weight, atol=number * 0.01 if turned else 1e-6, rtol=1e-5)


def pytorchs(model: torch.nn.Module, o: OptimizerSettings) -> list[torch.optim.Optimizer]:
    """The same optimizer of PyTorch's own, in its plain form; Muon has matrices only, and leaves the rest to AdamW."""
    weights, betas = dict(model.named_parameters()), (o.beta1, o.beta2)
    if o.name == "adam":
        return [torch.optim.Adam(weights.values(), 0.0, betas, o.eps, o.weight_decay, foreach=False)]
    matrices = [weights.pop("encoder.weight")] if o.name == "muon" else []
    adam = torch.optim.AdamW(weights.values(), 0.0, betas, o.eps, o.weight_decay, foreach=False)
    how = {"momentum": o.beta1, "weight_decay": o.weight_decay, "adjust_lr_fn": "match_rms_adamw"}
    return [adam, *([torch.optim.Muon(matrices, 0.0, **how)] if matrices else [])]


def test_schedule_free_is_its_formulas() -> None:
    """Three sequences written out: z steps, x averages z with equal shares, gradients are taken between them."""
    final, flat = _quadratic("schedule_free", 4, beta1=0.9, beta2=0.98, eps=1e-9)
    torch.manual_seed(0)
    start = FlatWeights(torch.nn.ModuleDict({"encoder": torch.nn.Linear(4, 6)})).weights.detach()
    x = z = y = start
    square = torch.zeros_like(start)
    for number in range(1, 5):
        g = 2 * (y - 3.0)
        square = 0.98 * square + 0.02 * g**2
        z = z - 0.1 * g / ((square / (1 - 0.98**number)).sqrt() + 1e-9)
        x = x + (z - x) / number
        y = 0.1 * z + 0.9 * x
    torch.testing.assert_close(final, x, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(flat.weights.detach(), y, atol=1e-5, rtol=1e-5)  # and training goes on from y


def test_schedule_free_keeps_its_average_when_the_rate_is_nothing() -> None:
    """The last update of a cosine schedule."""
    _, flat = _quadratic("schedule_free", 0)
    optimizer = make_optimizer(flat, OptimizerSettings(name="schedule_free"))
    with torch.no_grad():
        flat.weights.add_(1.0)  # y apart from z
    before = flat.weights.detach().clone()
    flat.weights.grad = torch.ones_like(flat.weights)
    optimizer.param_groups[0].update(lr=0.0, number=9, share=0.0)
    optimizers.step(optimizer, torch.zeros(()))
    assert torch.equal(flat.weights.detach(), before)


def test_schedule_free_averages_the_weights_that_are_used(tmp_path: Path) -> None:
    settings = quick_settings(optimizer={"name": "schedule_free"}, training={"steps": 6, "validate_every": 2})
    fit(tmp_path / "r", ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(10, seed=2)), settings)
    last = read_tensors(tmp_path / "r/weights/last.safetensors")
    kept = read_tensors(tmp_path / "r/training/weights/step-6.safetensors")
    trained = read_tensors(tmp_path / "r/training/step-6/model.safetensors")
    name = "encoder.0.feed_forward.inner.weight"
    assert torch.equal(kept[name], last[name])
    assert not torch.equal(kept[name], trained[name])


def test_muon_is_its_formulas() -> None:
    """Written out: the polynomial acts on the singular values, which are those of momentum that looks ahead."""
    o = OptimizerSettings(name="muon", beta1=0.8, beta2=0.95, weight_decay=0.3)
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"encoder": torch.nn.Linear(4, 6, bias=False)})
    flat = FlatWeights(model)
    optimizer, target = make_optimizer(flat, o), torch.randn(6, 4)
    place, w, momentum = flat.places[0], model["encoder"].weight.detach().clone(), torch.zeros(6, 4)
    for number, rate in enumerate((0.1, 0.3, 0.2, 0.05), 1):
        flat.weights.grad = torch.zeros_like(flat.weights)
        place.of(flat.weights.grad).copy_(2 * (w - target))
        optimizer.param_groups[0].update(lr=rate, number=number, share=1.0)
        optimizers.step(optimizer, torch.zeros(()))
        g = 2 * (w - target)
        momentum = 0.8 * momentum + 0.2 * g
        u, values, v = torch.linalg.svd(0.2 * g + 0.8 * momentum, full_matrices=False)
        values = values / values.norm()
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        w = w - rate * (0.3 * w + 0.2 * 6**0.5 * u @ values.diag() @ v)
        torch.testing.assert_close(model["encoder"].weight.detach(), w, atol=1e-5, rtol=1e-5)


def test_muon_evens_out_singular_values() -> None:
    torch.manual_seed(0)
    for rows, columns in ((8, 20), (20, 8), (9, 9)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(3, rows, columns)))
        assert float(values.min()) > 0.3
        assert float(values.max()) < 1.3


@pytest.mark.parametrize("name", ["schedule_free", "muon"])
def test_a_run_with_another_optimizer_resumes_to_the_bit(tmp_path: Path, name: str) -> None:
    pairs, validation = ListCorpus(bundled_pairs(60)), ListCorpus(bundled_pairs(10, seed=2))

    def run(where: str, steps: int) -> dict[str, Tensor]:
        settings = quick_settings(optimizer={"name": name}, training={"steps": steps, "validate_every": 3})
        fit(tmp_path / where, pairs, validation, settings)
        return read_tensors(tmp_path / where / f"training/step-{steps}/model.safetensors")

    straight = run("straight", 8)
    run("resumed", 4)
    resumed = run("resumed", 8)
    for key, weight in straight.items():
        assert torch.equal(weight, resumed[key]), key


# ---- several sentences a row


def _updater(path: Path, layout: str, settings: Settings, tokenizers: Tokenizers) -> tuple[Updater, Batches]:
    store = build_store(ListCorpus(bundled_pairs(120)), tokenizers, settings.data, path / "data")
    torch.manual_seed(0)
    model = new_model(settings.model, tokenizers.source.size, tokenizers.target.size)
    batches = Batches(store, replace(settings.batch, layout=layout, row=64), seed=1)  # type: ignore[arg-type]
    return Updater(model, settings, "cpu", batches.packed), batches


def test_packed_rows_train_like_one_sentence_a_row(tmp_path: Path) -> None:
    """Loss and gradients to 1e-5; and 200 updates on the same sentences stay together."""
    settings = quick_settings(model={"dropout": 0.0}, batch={"tokens": 256}, optimizer={"eps": 1e-6})
    tokenizers = Tokenizers.train(bundled_pairs(120), settings.text)
    (packed, batches), (apart, rows) = (_updater(tmp_path, how, settings, tokenizers) for how in ("packed", "buckets"))
    apart_losses, packed_losses, states = [], [], (RunState(), RunState())
    every = (batch for epoch in itertools.count() for batch in batches.epoch(epoch))
    for number, batch in zip(range(200), every, strict=False):
        one_a_row = rows.assemble(np.column_stack([batch.pairs, np.arange(len(batch.pairs))]))
        assert one_a_row.tokens == batch.tokens
        if number == 0:
            for updater, given in ((packed, batch), (apart, one_a_row)):
                updater.model.train()
                updater.gradients.add(given, 1 / batch.tokens)
            torch.testing.assert_close(packed.flat.gradient, apart.flat.gradient, atol=1e-5, rtol=1e-5)
            packed.gradients.clear()
            apart.gradients.clear()
        packed_losses.append(float(packed.update([batch], states[0]).total) / batch.tokens)
        apart_losses.append(float(apart.update([one_a_row], states[1]).total) / batch.tokens)
    assert packed_losses[0] == pytest.approx(apart_losses[0], rel=1e-5)
    assert packed_losses == pytest.approx(apart_losses, rel=2e-2)
    assert packed_losses[-1] < 0.7 * packed_losses[0]
