"""Pictures of the ideas: positions, masks, schedules, label smoothing, and why scores are scaled.

Each is drawn from the code that training uses, so that a picture cannot say something else.
"""

from __future__ import annotations

from pathlib import Path

import torch

from transduce.core.attention import attention_weights
from transduce.core.loss import cross_entropy
from transduce.core.masks import causal_mask, segment_mask
from transduce.core.positions import sinusoid_table
from transduce.core.schedule import Decay, learning_rate
from transduce.core.scores import Dot, ScaledDot, ScoreFunction
from transduce.inspect.plots import BLUE, COLOURS, GREEN, ORANGE, figure, save
from transduce.settings.compose import compose
from transduce.settings.sections import OptimizerSettings


def positions(output: Path, length: int = 100, d_model: int = 128) -> Path:
    """The sinusoid table; and PE(pos) · PE(pos + k), which depends on k alone and falls with it."""
    table = sinusoid_table(length, d_model)
    made = figure(11, 4.2, f"Positions by sine and cosine, d_model = {d_model}")
    left, right = made.subplots(1, 2)
    image = left.imshow(table.numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    left.set(xlabel="dimension (sine on even, cosine on odd)", ylabel="position")
    made.colorbar(image, ax=left, label="value")
    products = table @ table.T  # (positions, positions)
    for begin, colour, mark in ((0, BLUE, "-"), (length // 4, ORANGE, "--"), (length // 2, GREEN, ":")):
        k = range(length - begin)
        right.plot(k, products[begin, begin:].tolist(), mark, color=colour, label=f"pos = {begin}")
    right.set(xlabel="distance k", ylabel="PE(pos) · PE(pos + k)")
    right.set_title("the same for every pos: the curves lie on each other", fontsize=10)
    right.legend(frameon=False)
    right.grid(alpha=0.3)
    return save(made, output)


def masks(output: Path) -> Path:
    """Who may look at whom: one sentence with padding, several in a row, and both for the decoder."""
    one = torch.tensor([[1, 1, 1, 1, 1, 0, 0]])
    several = torch.tensor([[1, 1, 1, 2, 2, 2, 2]])
    causal = causal_mask(7)
    panels = {
        "encoder, one sentence\nand padding": segment_mask(one, one),
        "decoder, one sentence\nand padding": segment_mask(one, one) & causal,
        "encoder, two sentences\nin a row": segment_mask(several, several),
        "decoder, two sentences\nin a row": segment_mask(several, several) & causal,
    }
    made = figure(11, 3.4, "Masks: blue may be looked at")
    for axis, (title, mask) in zip(made.subplots(1, 4), panels.items(), strict=True):
        axis.imshow(mask[0, 0].numpy(), cmap="Blues", vmin=0, vmax=1.4)
        axis.set_title(title, fontsize=10)
        axis.set(xlabel="key", ylabel="query", xticks=range(7), yticks=range(7))
        axis.set_xticks([x - 0.5 for x in range(1, 7)], minor=True)
        axis.set_yticks([x - 0.5 for x in range(1, 7)], minor=True)
        axis.grid(which="minor", color="white", linewidth=1.5)
        axis.tick_params(which="minor", length=0)
    return save(made, output)


def schedules(output: Path, steps: int = 20_000, warmup: int = 4000) -> Path:
    """The paper's learning rate for some widths and warm-ups; and the other schedules."""
    made = figure(11, 4, "Learning rate schedules")
    left, right = made.subplots(1, 2)
    at = range(1, steps + 1, max(1, steps // 400))
    for (width, rise), colour in zip(((512, warmup), (512, 2 * warmup), (256, warmup)), COLOURS, strict=False):
        settings = OptimizerSettings(warmup=rise)
        rates = [learning_rate(step, settings, width, steps) for step in at]
        left.plot(at, rates, color=colour, label=f"d_model {width}, warm-up {rise:,}")
    left.set_title("noam: d_model^-0.5 · min(step^-0.5, step · warm-up^-1.5)", fontsize=10)
    names, marks, decay = (
        ("inverse_sqrt", "cosine", "constant", "wsd"),
        ("-", "--", ":", "-."),
        Decay(3 * steps // 4, steps),
    )
    for name, colour, mark in zip(names, COLOURS, marks, strict=False):
        settings = compose({"optimizer": {"schedule": name, "rate": 1e-3, "warmup": warmup}}).optimizer
        rates = [learning_rate(step, settings, 512, steps, decay) for step in at]
        right.plot(at, rates, mark, color=colour, label=name)
    right.set_title("the others, highest rate 0.001", fontsize=10)
    for axis in (left, right):
        axis.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    return save(made, output)


def smoothing(output: Path, epsilon: float = 0.1, vocabulary: int = 8) -> Path:
    """What label smoothing wants; and what it makes of the loss as the right token becomes certain."""
    made = figure(10, 4, f"Label smoothing, ε = {epsilon:g}")
    left, right = made.subplots(1, 2)
    tokens = range(vocabulary)
    wanted = [1 - epsilon + epsilon / vocabulary if i == 2 else epsilon / vocabulary for i in tokens]
    left.bar([i - 0.2 for i in tokens], [float(i == 2) for i in tokens], 0.4, color=ORANGE, label="one-hot")
    left.bar([i + 0.2 for i in tokens], wanted, 0.4, color=BLUE, label="smoothed")
    left.set(xlabel="token of the vocabulary", ylabel="wanted probability")
    p = torch.linspace(0.02, 0.999, 300)
    others = ((1 - p) / (vocabulary - 1)).unsqueeze(1).expand(-1, vocabulary - 1)
    logits = torch.cat([others, p.unsqueeze(1)], 1).log().unsqueeze(1)  # (300, 1, vocabulary); the last one is right
    wanted_token = torch.full((1, 1), vocabulary - 1)
    losses = {
        e: [float(cross_entropy(row.unsqueeze(0), wanted_token, e).total) for row in logits] for e in (0.0, epsilon)
    }
    right.plot(p.tolist(), losses[0.0], "--", color=ORANGE, label="one-hot")
    right.plot(p.tolist(), losses[epsilon], color=BLUE, label="smoothed: certainty costs")
    right.set(xlabel="probability of the right token", ylabel="loss (nats)", ylim=(0, 3))
    for axis in (left, right):
        axis.legend(frameon=False)
        axis.grid(alpha=0.3)
    return save(made, output)


def saturation(output: Path, keys: int = 32, trials: int = 200) -> Path:
    """Why dot products are scaled: in many dimensions softmax picks one key, and its gradient dies."""
    widths = [2**power for power in range(1, 11)]
    chance = torch.Generator().manual_seed(0)  # of our own: a picture must not disturb a run
    made = figure(10, 4, f"Softmax over {keys} random keys")
    left, right = made.subplots(1, 2)
    for name, score, colour, mark in (("dot", Dot(), ORANGE, "s--"), ("scaled dot", ScaledDot(), BLUE, "o-")):
        points = [_peak_and_gradient(score, width, keys, trials, chance) for width in widths]
        left.plot(widths, [peak for peak, _ in points], mark, color=colour, label=name)
        right.plot(widths, [gradient for _, gradient in points], mark, color=colour, label=name)
    left.set(ylabel="largest weight (mean)", ylim=(0, 1.02))
    right.set(ylabel="size of the softmax's gradient (mean)", yscale="log")
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_xticks(widths, [str(width) for width in widths], fontsize=8)
        axis.set_xlabel("dimension D of query and key")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    return save(made, output)


def _peak_and_gradient(
    score: ScoreFunction, width: int, keys: int, trials: int, chance: torch.Generator
) -> tuple[float, float]:
    """The largest weight of softmax(score), and the norm of its Jacobian diag(a) - a aᵀ."""
    q, k = (torch.randn(trials, count, width, generator=chance) for count in (1, keys))
    weights = attention_weights(q, k, None, score)
    a = weights.squeeze(1)
    jacobian = torch.diag_embed(a) - a.unsqueeze(2) * a.unsqueeze(1)
    return float(a.amax(1).mean()), float(jacobian.flatten(1).norm(dim=1).mean())
