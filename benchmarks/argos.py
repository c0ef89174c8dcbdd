"""A package of ours in Argos Translate itself: does it install there, and does it write what we write?

    pip install argostranslate        # in an environment of its own: it brings spaCy and Stanza
    transduce convert runs/mine mine.argosmodel --to argos --source-language de --target-language en
    transduce translate runs/mine lines.de -o ours.en --search.beam 4
    python benchmarks/argos.py mine.argosmodel lines.de ours.en

Needs nothing of transduce. Argos splits paragraphs into sentences by a model that it downloads; here a line is a
sentence, so that nothing is downloaded. Prints how many lines are equal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("package", type=Path)
    words.add_argument("source", type=Path)
    words.add_argument("ours", type=Path)
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ARGOS_PACKAGES_DIR"] = folder
        import argostranslate
        from argostranslate import package, translate

        package.install_from_path(given.package)
        (installed,) = package.get_installed_packages()

        class OneSentence:
            def split_sentences(self, text: str) -> list[str]:
                return [text]

        languages = [translate.Language(code, code) for code in (installed.from_code, installed.to_code)]
        translation = translate.PackageTranslation(*languages, installed)
        translation.sentencizer = OneSentence()
        lines = given.source.read_text().splitlines()
        theirs = [translation.translate(line) for line in lines]
    ours = given.ours.read_text().splitlines()
    equal = sum(" ".join(a.split()) == " ".join(b.split()) for a, b in zip(theirs, ours, strict=True))
    version = getattr(argostranslate, "__version__", "?")
    print(json.dumps({"argostranslate": version, "lines": len(lines), "equal": equal, "first": theirs[:3]}, indent=1))
    for line, a, b in zip(lines, theirs, ours, strict=True):
        if " ".join(a.split()) != " ".join(b.split()):
            print(f"{line}\n  there: {a}\n  here:  {b}", file=sys.stderr)


if __name__ == "__main__":
    main()
