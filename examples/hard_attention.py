"""Hard attention learns to copy the marked word.

    python examples/hard_attention.py

Of seven random words one is marked; the answer is that word. The model looks at one word only and must find out which.
Picking has no gradient, so it is trained in the two ways of transduce/core/hard.py: by the score-function estimator
(with a baseline), and straight through. At test time it takes the arg max.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.core.hard import Baseline, Chosen, Selection, attend_hard, reinforced
from transduce.core.scores import Additive

WORDS, LENGTH, WIDTH = 20, 7, 32


def sentences(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Words (count, LENGTH), which of them is marked (one-hot), and the marked word."""
    words = torch.randint(WORDS, (count, LENGTH))
    place = torch.randint(LENGTH, (count, 1))
    return words, F.one_hot(place.squeeze(1), LENGTH), words.gather(1, place).squeeze(1)


class Copier(nn.Module):
    """A learned query, keys that show word and mark, values that show the word, and a guess from what was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(WORDS, WIDTH)
        self.mark = nn.Embedding(2, WIDTH)
        self.query = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.score = Additive(WIDTH, WIDTH)
        self.guess = nn.Linear(WIDTH, WORDS)

    def look(self, words: Tensor, marks: Tensor, selection: Selection) -> Chosen:
        values = self.word(words)
        keys = values + self.mark(marks)
        query = self.query.expand(len(words), -1, -1)
        return attend_hard(query, keys, values, None, selection, self.score)

    def forward(self, words: Tensor, marks: Tensor, selection: Selection) -> tuple[Tensor, Tensor]:
        """Logits over words, and the log-probability of the pick."""
        seen = self.look(words, marks, selection)
        return self.guess(seen.summary.squeeze(1)), seen.log_probability.squeeze(1)


@torch.no_grad()
def accuracy(model: Copier) -> float:
    words, marks, wanted = sentences(1000)
    logits, _ = model(words, marks, "arg_max")
    return float((logits.argmax(1) == wanted).float().mean())


def train(selection: Selection, steps: int = 600) -> tuple[float, float]:
    """Accuracy before and after."""
    model, before = learned(selection, steps)
    return before, accuracy(model)


def learned(selection: Selection, steps: int, seed: int = 1) -> tuple[Copier, float]:
    """The trained model, and its accuracy before."""
    torch.manual_seed(seed)
    model, baseline = Copier(), Baseline()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    before = accuracy(model)
    for _ in range(steps):
        words, marks, wanted = sentences(128)
        logits, log_probability = model(words, marks, selection)
        loss = F.cross_entropy(logits, wanted, reduction="none")
        objective = loss.mean()
        if selection == "sample":  # the picks get no gradient from the loss: reward those that made it small
            objective = objective + reinforced(-loss, log_probability, baseline)
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    return model, before


if __name__ == "__main__":
    for name, selection in (("score-function estimator", "sample"), ("straight through", "straight_through")):
        before, after = train(selection)
        print(f"{name:26} accuracy before {before:6.1%}, after {after:6.1%}")
