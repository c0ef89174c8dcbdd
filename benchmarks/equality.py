"""Do several sentences a row train like one a row? And the fast path like the plain one?

    python benchmarks/equality.py [--device cuda] [--steps 200]

Two updaters with the same weights and no dropout get the same sentences at every step: one of them packed (on a GPU by
the fast path), the other one sentence a row by plain PyTorch. Prints how far loss and gradients are apart at the first
step, and the losses along the way.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np
import torch
from common import machine, write

from transduce.bundled.corpus import bundled
from transduce.core import transformer
from transduce.data.batches import Batches
from transduce.data.build import build_store
from transduce.data.corpus import ListCorpus
from transduce.models.device import prepare_device
from transduce.settings.compose import compose
from transduce.settings.sections import DataSettings, Settings
from transduce.text.tokenizers import Tokenizers
from transduce.training.state import RunState
from transduce.training.updater import Updater


def updater(device: str, layout: str, fast: bool, precision: str) -> tuple[Updater, Batches]:
    """On the bundled corpus; the paper's layers in a small size."""
    settings: Settings = compose(
        {
            "model": {"layers": 2, "d_model": 64, "d_ff": 128, "heads": 4, "dropout": 0.0},
            "text": {"vocabulary": 1000},
            "batch": {"tokens": 1024, "layout": layout},
            "optimizer": {"schedule": "constant", "rate": 1e-3, "warmup": 50},
            "training": {"fast": fast, "precision": precision},
        }
    )
    text = ListCorpus([(pair.source, pair.target) for pair in bundled(train=10_000).train])
    tokenizers = Tokenizers.train(text, settings.text)
    built = build_store(text, tokenizers, DataSettings(), Path(tempfile.gettempdir()) / "equality")
    torch.manual_seed(0)
    model = transformer.build(settings.model, tokenizers.source.size, tokenizers.target.size)
    batches = Batches(built, settings.batch, seed=1, device=device)
    return Updater(model, settings, device, batches.packed), batches


def compare(device: str, precision: str, steps: int) -> dict[str, float]:
    """Packed and fast against one a row and plain, on the same sentences."""
    (packed, batches), (apart, rows_apart) = (
        updater(device, layout, layout == "packed", precision) for layout in ("packed", "buckets")
    )
    reference, _ = updater(device, "buckets", False, "float32")
    states = RunState(), RunState()
    every = (batch for epoch in itertools.count() for batch in batches.epoch(epoch))
    facts: dict[str, float] = {}
    losses = []
    for number, batch in zip(range(steps), every, strict=False):
        plan = np.column_stack([batch.pairs, np.arange(len(batch.pairs))])
        one_a_row = rows_apart.assemble(plan).to(device)
        if number == 0:
            found = {}
            for name, one, rows in (
                ("packed", packed, batch),
                ("apart", apart, one_a_row),
                ("exact", reference, one_a_row),
            ):
                one.model.train()
                found[name] = float(one.gradients.add(rows, 1 / batch.tokens)), one.flat.gradient.clone()
                one.gradients.clear()
            for name in ("packed", "apart"):
                loss, gradient = found[name]
                facts[f"loss, {name}"] = abs(loss / found["exact"][0] - 1)
                facts[f"gradient, {name}"] = float((gradient - found["exact"][1]).norm() / found["exact"][1].norm())
        given = ((packed, batch, states[0]), (apart, one_a_row, states[1]))
        losses.append([float(one.update([rows], state).total) / batch.tokens for one, rows, state in given])
    both = np.array(losses)
    facts["largest difference of the losses"] = float(np.abs(both[:, 0] - both[:, 1]).max())
    print(f"\n{precision}: relative distance from one sentence a row, plain, in float32")
    for name, value in facts.items():
        print(f"  {name:36} {value:.2e}")
    for number in (0, steps // 4, steps // 2, steps - 1):
        print(f"  step {number + 1:4}: loss {both[number, 0]:.5f} packed, {both[number, 1]:.5f} one a row")
    return facts


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    words.add_argument("--steps", type=int, default=200)
    words.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = words.parse_args()
    prepare_device(given.device)
    print(" · ".join(f"{key} {value}" for key, value in machine().items()))
    precisions = ("float32", "bfloat16") if given.device == "cuda" else ("float32",)
    facts = {precision: compare(given.device, precision, given.steps) for precision in precisions}
    write(given.out, f"equality-{given.device}", facts)


if __name__ == "__main__":
    main()
