"""Translation, the first use: German to English on the bundled corpus.

python examples/translate.py          about a minute on two cores
"""

from __future__ import annotations

import transduce
from transduce.bundled.corpus import bundled

SENTENCES = ("ich möchte ein bier", "er bleibt zu hause, weil er müde ist", "hast du das rote fahrrad repariert?")


def main(run: str = "runs/translate", steps: int = 400) -> None:
    made = bundled(train=20_000)
    train, dev = ([(pair.source, pair.target) for pair in pairs] for pairs in (made.train, made.dev))
    model = transduce.train(run, train, dev, preset="tiny", training={"steps": steps, "validate_every": steps // 2})
    for sentence in SENTENCES:
        print(f"{sentence}  ->  {model.translate(sentence).text}")
    model.trace(SENTENCES[0]).save(f"{run}/attention.html")


if __name__ == "__main__":
    main()
