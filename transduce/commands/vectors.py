"""transduce vectors: train word vectors, and ask them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from transduce.commands import Flags, Hidden, Output
from transduce.errors import DataError, SettingsError
from transduce.files.output import check_output, write_lines
from transduce.files.run_folder import CONFIG, RunFolder
from transduce.report import SILENT
from transduce.settings import config_file
from transduce.settings.compose import compose


def vectors_train(
    run: Path,
    *,
    source: list[str],
    objective: Literal["skipgram", "cbow"] | None = None,
    threads: int | None = None,
    settings: Flags = None,
    report: Hidden = SILENT,
) -> None:
    """Train word vectors on text, as fastText does: with n-grams, so that words nobody has seen have vectors too.

    Example: transduce vectors train runs/words --source text.txt --vectors.epochs 5

    Chinese: transduce vectors train runs/zh --source text.zh --vectors.tokens characters
    subwords: transduce vectors train runs/pieces --source text.zh --vectors.tokens unigram --vectors.pieces 16000

    An interrupted run goes on with the same command. Every setting of the section vectors is a flag; `transduce
    settings` lists them.

    Parameters
    ----------
    run
        Folder to make; continued if it was interrupted.
    source
        Text, one sentence or paragraph a line (.gz also); the flag again for several files.
    objective
        skipgram: a word predicts its neighbours. cbow: they predict it; faster, often worse for rare words.
    threads
        As many as there are cores if not given; 1 gives the same result every time.
    """
    from transduce.fasttext.fit import fit
    from transduce.fasttext.labelled import plain_lines

    flags: dict[str, Any] = {section: dict(keys) for section, keys in (settings or {}).items()}
    for section in flags:
        if section != "vectors":
            raise SettingsError(f"--{section}.{next(iter(flags[section]))}: word vectors take the section vectors only")
    own = {"objective": objective, "threads": threads}
    flags.setdefault("vectors", {}).update({key: value for key, value in own.items() if value is not None})
    if RunFolder(run).checkpoints():
        wanted = compose(flags, base=config_file.read_whole(run / CONFIG))
    else:
        kind: dict[str, dict[str, Any]] = {"model": {"kind": "fasttext"}, "data": {"source": source}}
        wanted = compose(kind, flags)
    if wanted.vectors.objective == "labels":
        raise SettingsError("a classifier is trained with: transduce train RUN --preset fasttext --task classify")
    fit(run, wanted, plain_lines(source), report)


def vectors_nearest(model: Path, *words: str, count: int = 10) -> Iterator[str]:
    """The words nearest to some words; without any, those of standard input, one a line.

    Example: transduce vectors nearest runs/words kitchen

    Parameters
    ----------
    model
        Model folder, or a file: .bin, .ftz, .vec, word2vec, GloVe.
    words
        Words to look up.
    count
        Neighbours of each.
    """
    import sys

    from transduce.data.lines import decode_lines
    from transduce.fasttext.word_vectors import load_vectors

    vectors = load_vectors(model)
    if not words and sys.stdin is None:
        raise DataError("standard input is closed; give a word")
    for word in words or (line.strip() for line in decode_lines(sys.stdin.buffer, "standard input")):
        near = vectors.nearest(word, count)
        yield f"{word}: " + ", ".join(f"{one.word} {one.similarity:.3f}" for one in near)


def vectors_analogies(
    model: Path, *words: str, file: Path | None = None, count: int = 5, among: int = 30_000
) -> Iterator[str]:
    """What is to C as B is to A; or how many questions of a file are answered so.

    Example: transduce vectors analogies runs/words paris france rome

    Parameters
    ----------
    model
        Model folder, or a file: .bin, .ftz, .vec, word2vec, GloVe.
    words
        Three words A B C.
    file
        Questions "a b c d", one a line, as questions-words.txt has them; counts the right answers. A word is looked up
        as it stands there, and only if it is not known so, in small letters and with a capital.
    count
        Answers to three words.
    among
        With a file: the most frequent words, among which the answer is looked for.
    """
    from transduce.fasttext.judged import analogies
    from transduce.fasttext.word_vectors import load_vectors

    if (file is None) == (len(words) == 0) or len(words) not in (0, 3):
        raise SettingsError("give three words, such as: paris france rome; or --file with questions")
    vectors = load_vectors(model)
    if file is None:
        a, b, c = words
        yield from (f"{one.word} {one.similarity:.3f}" for one in vectors.analogies(a, b, c, count))
        return
    found = analogies(vectors, file, among)
    share = found.right / found.asked if found.asked else 0.0
    asked = f"{found.asked:,} questions whose words are known ({found.questions:,} in all)"
    yield f"{share:.1%} right: {found.right:,} of {asked}"


def vectors_similarity(model: Path, *words: str, file: Path | None = None) -> Iterator[str]:
    """How similar two words are (cosine); or how well that agrees with people on a file of pairs.

    Example: transduce vectors similarity runs/words tea coffee

    Parameters
    ----------
    model
        Model folder, or a file: .bin, .ftz, .vec, word2vec, GloVe.
    words
        Two words.
    file
        Pairs "word word number", one a line, as WordSim-353 and SimLex-999 have them; gives Spearman's correlation. A
        word is looked up as it stands there, and only if it is not known so, in small letters and with a capital.
    """
    from transduce.fasttext.judged import similarities
    from transduce.fasttext.word_vectors import load_vectors

    if (file is None) == (len(words) == 0) or len(words) not in (0, 2):
        raise SettingsError("give two words, such as: tea coffee; or --file with pairs")
    vectors = load_vectors(model)
    if file is None:
        yield f"{vectors.similarity(*words):.4f}"
        return
    found = similarities(vectors, file)
    known = f"both words are known in {found.known:,}"
    yield f"Spearman's correlation {found.correlation:.4f} on {found.pairs:,} pairs; {known}"
    if found.known > found.listed:
        yield f"(of {found.known - found.listed:,} pairs a word was not in the text, and is spelled by its n-grams)"


def vectors_export(model: Path, output: Path, *, force: bool = False, report: Hidden = SILENT) -> None:
    """Write vectors for other programs: .vec (text, as fastText, gensim and word2vec read it) or fastText's .bin.

    Example: transduce vectors export runs/words words.vec

    Parameters
    ----------
    model
        Model folder, or a file of vectors.
    output
        File to write; its ending says what: .vec or .txt, .bin, .ftz (quantised, a tenth of the size).
    force
        Replace the output if it is there already.
    """
    from transduce.fasttext.bin_file import write_fasttext
    from transduce.fasttext.text_files import vec_lines
    from transduce.fasttext.word_vectors import load_vectors

    check_output(output, [model], force)
    if output.suffix not in (".vec", ".txt", ".bin", ".ftz"):
        raise SettingsError(f"cannot write {output}: end its name in .vec, .txt, .bin or .ftz")
    vectors = load_vectors(model)
    if output.suffix in (".vec", ".txt"):
        write_lines(output, vec_lines(vectors.words, vectors.vectors, vectors.dimension))
    elif vectors.network is None:
        raise SettingsError(f"{model} holds vectors only, no model: {output.suffix} needs one; write .vec instead")
    else:
        write_fasttext(vectors.network, output, small=output.suffix == ".ftz")
    report.say(f"wrote {output}, {output.stat().st_size / 1e6:.1f} MB: {vectors!r}")


def vectors_page(
    model: Path, *, words: int = 2000, output: Output = None, force: bool = False, report: Hidden = SILENT
) -> None:
    """Draw a map of the most frequent words on one page with a search; it opens in any browser, without network.

    Example: transduce vectors page runs/words -o words.html

    Parameters
    ----------
    model
        Model folder, or a file of vectors.
    words
        How many of the most frequent.
    output
        HTML file; words.html if not given.
    force
        Replace the output if it is there already.
    """
    from transduce.fasttext.word_vectors import load_vectors
    from transduce.inspect.word_map import write_word_map

    path = output or Path("words.html")
    check_output(path, [model], force)
    report.say(f"wrote {write_word_map(load_vectors(model), words, path)}")


def plot_huffman(
    *, words: int = 24, source: str | None = None, output: Output = None, force: bool = False, report: Hidden = SILENT
) -> None:
    """Draw the tree of hierarchical softmax over the most frequent words of a text.

    Example: transduce plot huffman --words 24 -o huffman.svg

    Parameters
    ----------
    words
        How many words.
    source
        Text; the English side of the bundled corpus if not given.
    output
        PNG or SVG file; huffman.png if not given.
    force
        Replace the output if it is there already.
    """
    from transduce.bundled.corpus import bundled
    from transduce.data.lines import read_lines
    from transduce.fasttext.cuts import cut_words
    from transduce.fasttext.dictionary import count
    from transduce.fasttext.huffman import huffman
    from transduce.inspect.plots import huffman_tree

    if not 2 <= words <= 200:
        raise SettingsError(f"--words {words} must be between 2 and 200")
    path = output or Path("huffman.png")
    check_output(path, [source] if source else [], force)
    lines = (pair.target for pair in bundled().train) if source is None else read_lines(source)
    found = count((((), line) for line in lines), cut_words, 1, 1)
    kept = [i for i, word in enumerate(found.words) if word != "</s>"][:words]
    tree = huffman(found.counts[kept])
    ways = [[right for _, right in reversed(tree.way(leaf))] for leaf in range(len(kept))]
    names, counts = [found.words[i] for i in kept], found.counts[kept].tolist()
    report.say(f"wrote {huffman_tree(names, counts, ways, path)}")


VECTORS: dict[str, Callable[..., Any]] = {
    "train": vectors_train,
    "nearest": vectors_nearest,
    "analogies": vectors_analogies,
    "similarity": vectors_similarity,
    "export": vectors_export,
    "page": vectors_page,
}
