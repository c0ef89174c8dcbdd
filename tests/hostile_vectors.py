"""fastText's files and files of vectors with something wrong in them: each loads right, or is refused in a sentence.

    python tests/hostile_vectors.py [COUNT]     1,000 if not given

tests/test_hostile_formats.py runs some of them.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
from hostile_formats import change_bytes
from test_vectors import topics, trained

from transduce.errors import UserError
from transduce.fasttext.bin_file import is_fasttext_file, read_fasttext, write_fasttext
from transduce.fasttext.text_files import vec_lines
from transduce.fasttext.word_vectors import load_vectors, of_network

MEMORY = 8 * 2**30  # bytes of address space, most of which PyTorch asks for and never touches


def originals(folder: Path) -> list[Path]:
    """One of each kind."""
    labels = {"objective": "labels", "loss": "softmax", "longest": 3, "word_ngrams": 2}
    words, lines = trained(topics(100), folder / "a"), trained(topics(300), folder / "b", **labels)
    write_fasttext(words, folder / "words.bin")
    write_fasttext(lines, folder / "labels.bin")
    write_fasttext(lines, folder / "labels.ftz", small=True)
    vectors = of_network(words)
    (folder / "x.vec").write_text("\n".join(vec_lines(vectors.words, vectors.vectors, vectors.dimension)) + "\n")
    content = f"{len(vectors)} {vectors.dimension}\n".encode()
    content += b"".join(word.encode() + b" " + vectors[word].astype("<f4").tobytes() + b"\n" for word in vectors.words)
    (folder / "w2v.bin").write_bytes(content)
    return [folder / name for name in ("words.bin", "labels.bin", "labels.ftz", "x.vec", "w2v.bin")]


def attack(count: int, seed: int, folder: Path) -> Counter[str]:
    """How they ended: `right`, `refused`, or by an exception that is none of ours."""
    random, ends = Random(seed), Counter[str]()
    for path in (files := originals(folder)) and [random.choice(files) for _ in range(count)]:
        hostile = folder / f"hostile{path.suffix}"
        hostile.write_bytes(change_bytes(path.read_bytes(), random))
        try:
            if is_fasttext_file(hostile):
                network = read_fasttext(hostile)
                if network.settings.objective == "labels":
                    p = network.probabilities(network.rows_of_line("the bread and a violin"))
                    assert np.isfinite(p).all()
            assert np.isfinite(load_vectors(hostile).vectors).all()
            ends["right"] += 1
        except UserError as error:
            ends["several lines" if "\n" in str(error) else "refused"] += 1
        except Exception as error:  # what a user must never see
            ends[f"{type(error).__name__}: {error} ({path.name})"[:200]] += 1
    return ends


def main(count: int) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        ends = attack(count, seed=1, folder=Path(folder))
    for end, number in ends.most_common():
        print(f"{number:6,}  {end}")
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    return 0 if set(ends) <= {"right", "refused"} else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
