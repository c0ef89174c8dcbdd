"""What HF MarianMTModel reaches on the same text in the same time, trained with its usual recipe.

    python benchmarks/marian.py tatoeba-de-en --data data --minutes 9 --out benchmarks/results

The text, the vocabulary and the splits are those of `transduce bench`. The model is that of the published opus-mt
checkpoints (6+6 layers, d_model 512, d_ff 2048, swish, dropout 0.1), in bfloat16 with SDPA; AdamW at 5e-4 with 1,000
steps of warm-up and inverse square root decay, label smoothing 0.1, batches of about 8,192 tokens sorted by length.
Validation BLEU (greedy) is taken every minute; the best weights translate the test text with a beam of 5.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from common import machine
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import MarianConfig, MarianMTModel

from transduce.commands.bench import corpora
from transduce.core.special import BEGIN, END, PAD
from transduce.data.corpus import Corpus, Pair
from transduce.evaluate import as_papers_do, bleu
from transduce.settings.compose import compose
from transduce.settings.recipes import RECIPES, Recipe
from transduce.text.normalise import normalise
from transduce.text.tokenizers import Tokenizers

TOKENS, RATE, WARM_UP = 8192, 5e-4, 1000


def model(vocabulary: int) -> MarianMTModel:
    sides = {"layers": 6, "attention_heads": 8, "ffn_dim": 2048}
    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=512,
        **{f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sides.items()},
        max_position_embeddings=512,
        dropout=0.1,
        activation_dropout=0.0,
        attention_dropout=0.0,
        activation_function="swish",
        pad_token_id=PAD,
        eos_token_id=END,
        forced_eos_token_id=None,
        decoder_start_token_id=BEGIN,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        attn_implementation="sdpa",
    )
    return MarianMTModel(config)


def padded(rows: list[list[int]], device: str) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD).to(device)


def batches(sources: list[list[int]], targets: list[list[int]], rng: np.random.Generator) -> list[np.ndarray]:
    """Of pairs sorted by length within pools, in random order."""
    longest = np.array([max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)])
    order = rng.permutation(len(longest))
    found = []
    for pool in np.array_split(order, max(1, len(order) // 20_000)):
        pool = pool[np.argsort(longest[pool], kind="stable")]
        begin = 0
        while begin < len(pool):
            end = begin + 1
            while end < len(pool) and longest[pool[end]] * (end - begin + 1) <= TOKENS:
                end += 1
            found.append(pool[begin:end])
            begin = end
    return [found[i] for i in rng.permutation(len(found))]


def translate(net: MarianMTModel, tokenizers: Tokenizers, texts: list[str], beams: int, device: str) -> list[str]:
    net.eval()
    sources = [[*ids, END] for ids in tokenizers.source.encode(texts)]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    answers = [""] * len(texts)
    for begin in range(0, len(order), 128):
        some = order[begin : begin + 128]
        rows = padded([sources[i] for i in some], device)
        limit = rows.size(1) + 50
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            out = net.generate(
                rows, attention_mask=(rows != PAD).long(), num_beams=beams, max_new_tokens=limit, do_sample=False
            )
        for i, ids in zip(some, out.tolist(), strict=True):
            answers[i] = tokenizers.target.decode([x for x in ids if x not in (PAD, BEGIN, END)])
    net.train()
    return answers


def _normalised(corpus: Corpus) -> list[Pair]:
    return [Pair(normalise(pair.source), normalise(pair.target), pair.line) for pair in corpus]


class Learner:
    """A model on its way, and the best weights so far."""

    def __init__(self, task: Recipe, given: argparse.Namespace) -> None:
        self.tokenize = "zh" if task.target == "zh" else "13a"  # of BLEU
        self.given, self.began = given, time.monotonic()
        self.train, self.valid, self.test = (_normalised(corpus) for corpus in corpora(task, given.data))
        self.tokenizers = Tokenizers.train(self.train, compose(task.settings).text)
        self.sources = [[*ids, END] for ids in self.tokenizers.source.encode([pair.source for pair in self.train])]
        self.targets = self.tokenizers.target.encode([pair.target for pair in self.train])
        torch.manual_seed(given.seed)
        self.net = model(self.tokenizers.target.size).to(given.device).train()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), RATE, (0.9, 0.98), fused=True)
        self.best, self.best_bleu = copy.deepcopy(self.net.state_dict()), -1.0
        self.curve: list[list[float]] = []
        self.steps = self.tokens = 0

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def learn(self) -> None:
        """Until the time is over."""
        rng, checked = np.random.default_rng(self.given.seed), self.seconds()
        while self.seconds() < 60 * self.given.minutes:
            for pairs in batches(self.sources, self.targets, rng):
                self.update(pairs)
                if self.seconds() - checked > self.given.every:
                    self.validate()
                    checked = self.seconds()
                if self.seconds() >= 60 * self.given.minutes:
                    break
        self.validate()

    def update(self, pairs: np.ndarray) -> None:
        device = self.given.device
        source = padded([self.sources[i] for i in pairs], device)
        target_in = padded([[BEGIN, *self.targets[i]] for i in pairs], device)
        target_out = padded([[*self.targets[i], END] for i in pairs], device).flatten()
        self.steps += 1
        self.tokens += sum(len(self.targets[i]) + 1 for i in pairs)
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * min(self.steps / WARM_UP, (WARM_UP / self.steps) ** 0.5)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = self.net(source, attention_mask=(source != PAD).long(), decoder_input_ids=target_in).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), target_out, ignore_index=PAD, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def validate(self) -> None:
        some = self.valid[:500]
        found = translate(self.net, self.tokenizers, [pair.source for pair in some], 1, self.given.device)
        score = bleu(found, [pair.target for pair in some], self.tokenize)
        self.curve.append([self.steps, round(self.seconds(), 1), score])
        print(f"step {self.steps:,}, {self.seconds():.0f} s, validation BLEU {score:.1f}", flush=True)
        if score > self.best_bleu:
            self.best, self.best_bleu = copy.deepcopy(self.net.state_dict()), score

    def result(self) -> dict:
        """Scores of the best weights on the test text, with how they came about."""
        seconds = self.seconds()
        self.net.load_state_dict(self.best)
        found = translate(self.net, self.tokenizers, [pair.source for pair in self.test], 5, self.given.device)
        scored = as_papers_do(found, [pair.target for pair in self.test], self.tokenize)
        return {
            **machine(),
            "seed": self.given.seed,
            "scores": {f"{name}, beam 5": one.score for name, one in scored.items()},
            "signatures": {name: one.signature for name, one in scored.items()},
            "validation BLEU": self.best_bleu,
            "steps": self.steps,
            "seconds in all, text to model": round(seconds, 1),
            "target tokens": self.tokens,
            "curve": self.curve,
        }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("task", choices=RECIPES)
    words.add_argument("--backwards", action="store_true", help="from the target language to the source language")
    words.add_argument("--data", type=Path, default=Path("data"))
    words.add_argument("--minutes", type=float, default=9.0, help="of training, validation included")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    words.add_argument("--every", type=float, default=60.0, help="seconds between validations")
    words.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = words.parse_args()
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every shape
    recipe, name = RECIPES[given.task], given.task
    if given.backwards:
        recipe, name = replace(recipe, source=recipe.target, target=recipe.source), f"{name}-backwards"
    learner = Learner(recipe, given)
    learner.learn()
    backwards = " --backwards" if given.backwards else ""
    command = f"python benchmarks/marian.py {given.task}{backwards} --minutes {given.minutes:g} --seed {given.seed}"
    result = {"task": name, "system": "HF MarianMTModel", "command": command, **learner.result()}
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"marian-{name}-{given.seed}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps({key: result[key] for key in ("task", "scores", "validation BLEU", "steps")}))


if __name__ == "__main__":
    main()
