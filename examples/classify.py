"""Classification, the third use: is a review positive or negative?

    python examples/classify.py           about a minute on two cores

The reviews are made here. "not" and "hardly" turn a judgement round, so that no single word decides. The same by
commands, with the labels before each text: transduce train runs/mine --task classify --source reviews.txt
"""

from __future__ import annotations

import random
from pathlib import Path

from transduce.cli import main as command

GOOD = ("good", "wonderful", "charming", "clever", "lovely")
BAD = ("bad", "dull", "awful", "boring", "clumsy")


def review(rng: random.Random) -> str:
    """A text with its label before it."""
    positive, turned = rng.random() < 0.5, rng.random() < 0.4
    word = rng.choice(GOOD if positive else BAD)
    turn = rng.choice(("not ", "hardly ")) if turned else ""
    what, when = rng.choice(("film", "book", "play", "song")), rng.choice(("yesterday", "again", "at last", "today"))
    label = "positive" if positive != turned else "negative"
    return f"__label__{label} the {what} that we saw {when} was {turn}{word}"


def main(run: str = "runs/classify", steps: int = 300) -> None:
    rng, folder = random.Random(1), Path(run).parent
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 3000), ("test", 300)):
        (folder / f"reviews.{name}").write_text("".join(f"{review(rng)}\n" for _ in range(count)), encoding="utf-8")
    training = f"--training.steps {steps} --training.validate_every {max(1, steps // 3)} --optimizer.warmup 50"
    words = (
        f"train {run} --task classify --source {folder}/reviews.train --preset tiny --text.tokenizer words {training}"
    )
    command(words.split())
    command(f"evaluate {run} --source {folder}/reviews.test".split())


if __name__ == "__main__":
    main()
