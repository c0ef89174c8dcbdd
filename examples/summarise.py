"""Summarisation, the second use: a report of several sentences becomes one line.

    python examples/summarise.py          about three minutes on two cores

The reports are made here: weather in some cities, in any order, with sentences that do not matter in between. The
summary names the warmest city and what the weather there is. Nothing but the pairs says so: the model has to find out.
"""

from __future__ import annotations

import random

import transduce

CITIES = ("berlin", "paris", "rome", "oslo", "madrid", "vienna")
SKIES = ("sunny", "cloudy", "rainy", "windy", "foggy")
NUMBERS = ("ten", "twelve", "fourteen", "sixteen", "eighteen", "twenty", "twenty two", "twenty four")
FILLERS = ("the trains run on time.", "people stay at home.", "the markets are open.", "more news at eight.")


def report(rng: random.Random) -> tuple[str, str]:
    """A report and its summary."""
    cities = rng.sample(CITIES, 3)
    degrees = rng.sample(range(len(NUMBERS)), 3)
    skies = [rng.choice(SKIES) for _ in cities]
    lines = [
        f"{city} is {sky} with {NUMBERS[degree]} degrees."
        for city, sky, degree in zip(cities, skies, degrees, strict=True)
    ]
    lines.insert(rng.randint(0, 3), rng.choice(FILLERS))
    warmest = degrees.index(max(degrees))
    return " ".join(lines), f"warmest: {cities[warmest]}, {skies[warmest]}"


def main(run: str = "runs/summarise", steps: int = 700, count: int = 20_000) -> float:
    """The share of new reports that are summarised to the letter."""
    rng = random.Random(1)
    pairs = [report(rng) for _ in range(count)]
    known = set(pairs)
    held_out = [pair for pair in (report(rng) for _ in range(300)) if pair not in known]
    dev, new = held_out[:100], held_out[100:]  # the first choose the weights, the others are never seen before
    model = transduce.train(
        run,
        pairs,
        dev,
        preset="tiny",
        text={"tokenizer": "words"},
        batch={"tokens": 1024},
        training={"steps": steps, "validate_every": steps // 2},
    )
    found = model.translate(text for text, _ in new)
    right = sum(translation.text == summary for translation, (_, summary) in zip(found, new, strict=True)) / len(new)
    print(f"{new[0][0]}\n  ->  {found[0].text}\n{right:.0%} of {len(new)} new reports are summarised exactly")
    return right


if __name__ == "__main__":
    main()
