"""fastText's files, .vec, word2vec and GloVe, in and out; the fastText program and gensim, where they are installed."""

from __future__ import annotations

import importlib
import struct
from pathlib import Path

import numpy as np
import pytest
from test_vectors import topics, trained

import transduce
from transduce.errors import DataError, ModelError, SettingsError
from transduce.fasttext.bin_file import is_fasttext_file, pruned, read_fasttext, write_fasttext
from transduce.fasttext.network import Network
from transduce.fasttext.quantise import quantise
from transduce.fasttext.text_files import read_table, vec_lines
from transduce.fasttext.word_vectors import load_vectors, of_network

LABELS = {"objective": "labels", "loss": "softmax", "epochs": 5, "rate": 0.5, "longest": 3, "word_ngrams": 2}


def peer(name: str):  # type: ignore[no-untyped-def]
    return pytest.importorskip(name, reason=f"{name} is not installed: benchmarks/vectors.py compares with it")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return trained(topics(400), tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return trained(topics(400), tmp_path_factory.mktemp("labels"), **LABELS)


@pytest.mark.parametrize("loss", ["ns", "hs", "softmax", "ova"])
def test_out_and_in_again_is_the_same_model(loss: str, tmp_path: Path) -> None:
    network = trained(topics(200), tmp_path / "text", **{**LABELS, "loss": loss})
    write_fasttext(network, tmp_path / "x.bin")
    assert is_fasttext_file(tmp_path / "x.bin")
    again = read_fasttext(tmp_path / "x.bin")
    assert again.dictionary.words == network.dictionary.words
    assert again.dictionary.labels == network.dictionary.labels
    for line in ("the goal of the teams", "unknown words only", "bread"):
        p, q = (n.probabilities(n.rows_of_line(line)) for n in (network, again))
        np.testing.assert_allclose(p, q, atol=1e-6)


def test_word_vectors_out_and_in_again(words: Network, tmp_path: Path) -> None:
    write_fasttext(words, tmp_path / "x.bin")
    again = load_vectors(tmp_path / "x.bin")
    for word in ("bread", "violins", "文字"):
        np.testing.assert_allclose(again[word], words.vector(word), atol=1e-6)


def test_a_quantised_file_is_small_and_says_nearly_the_same(labels: Network, tmp_path: Path) -> None:
    write_fasttext(labels, tmp_path / "x.bin")
    write_fasttext(labels, tmp_path / "x.ftz", small=True)
    small = read_fasttext(tmp_path / "x.ftz")
    assert small.settings.unseen == "skipped"
    lines = [line for _, line in topics(50, seed=4)]
    said = [[n.probabilities(n.rows_of_line(line)).argmax() for line in lines] for n in (labels, small)]
    assert said[0] == said[1]


def test_pruning_keeps_the_longest_rows_and_the_end_of_a_line(labels: Network) -> None:
    few = pruned(labels, 40)
    assert len(few.E) == 40
    assert "</s>" in few.dictionary.ids
    best = few.probabilities(few.rows_of_line("cheese and soup")).argmax()
    assert few.dictionary.labels[int(best)] == "food"


def test_product_quantisation_comes_close() -> None:
    matrix = np.random.default_rng(0).standard_normal((3000, 7)).astype(np.float32)
    for with_norms in (True, False):
        error = np.linalg.norm(quantise(matrix, with_norms).decode() - matrix) / np.linalg.norm(matrix)
        assert error < 0.15
    with pytest.raises(SettingsError, match="at least 256"):
        quantise(matrix[:100])


def test_vec_word2vec_and_glove_are_read(words: Network, tmp_path: Path) -> None:
    vectors = of_network(words)
    lines = list(vec_lines(vectors.words, vectors.vectors, vectors.dimension))
    (tmp_path / "x.vec").write_text("\n".join(lines) + "\n")
    (tmp_path / "glove.txt").write_text("\n".join(lines[1:]) + "\n")
    with open(tmp_path / "w2v.bin", "wb") as stream:
        stream.write(f"{len(vectors)} {vectors.dimension}\n".encode())
        for word in vectors.words:
            stream.write(word.encode() + b" " + vectors[word].astype("<f4").tobytes() + b"\n")
    for name in ("x.vec", "glove.txt", "w2v.bin"):
        again = transduce.vectors(tmp_path / name)
        assert list(again.words) == list(vectors.words)
        np.testing.assert_allclose(again.vectors, vectors.vectors, rtol=1e-4, atol=1e-6)


def say_the_same(ours: Network, theirs, seed: int) -> None:  # type: ignore[no-untyped-def]
    for _, line in topics(30, seed):
        probability, label = theirs.f.predict(line + "\n", 1, 0.0, "strict")[0]
        p = ours.probabilities(ours.rows_of_line(line))
        assert label == f"__label__{ours.dictionary.labels[int(p.argmax())]}"
        assert probability == pytest.approx(float(p.max()), abs=1e-4)  # fastText adds 1e-5 before its logarithm


def test_the_fasttext_program_reads_ours_and_says_the_same(labels: Network, words: Network, tmp_path: Path) -> None:
    fasttext = peer("fasttext")
    write_fasttext(words, tmp_path / "w.bin")
    theirs = fasttext.load_model(str(tmp_path / "w.bin"))
    for word in ("bread", "violins", "文字", "</s>"):
        np.testing.assert_allclose(theirs.get_word_vector(word), words.vector(word), atol=1e-6)
    near = [word for _, word in theirs.get_nearest_neighbors("bread", k=3)]
    assert near == [one.word for one in of_network(words).nearest("bread", 3)]
    for name, small in (("l.bin", False), ("l.ftz", True)):
        write_fasttext(labels, tmp_path / name, small)
        theirs, ours = fasttext.load_model(str(tmp_path / name)), read_fasttext(tmp_path / name)
        say_the_same(ours, theirs, seed=5)


def test_its_files_are_read_by_us(tmp_path: Path) -> None:
    fasttext = peer("fasttext")
    text = tmp_path / "text"
    text.write_text("".join(f"__label__{given[0]} {line}\n" for given, line in topics(400)))
    theirs = fasttext.train_supervised(str(text), epoch=5, lr=0.5, wordNgrams=2, bucket=3000, minn=2, maxn=4, dim=12)
    theirs.save_model(str(tmp_path / "x.bin"))
    ours = read_fasttext(tmp_path / "x.bin")
    np.testing.assert_allclose(ours.vector("breads"), theirs.get_word_vector("breads"), atol=1e-6)
    say_the_same(ours, theirs, seed=6)
    theirs.quantize(input=str(text), qnorm=True, cutoff=400)
    theirs.save_model(str(tmp_path / "x.ftz"))
    small = read_fasttext(tmp_path / "x.ftz")
    np.testing.assert_allclose(small.vector("breads"), theirs.get_word_vector("breads"), atol=1e-5)
    say_the_same(small, theirs, seed=7)


def test_gensim_reads_our_vec(words: Network, tmp_path: Path) -> None:
    peer("gensim")
    vectors = of_network(words)
    path = tmp_path / "x.vec"
    path.write_text("\n".join(vec_lines(vectors.words, vectors.vectors, vectors.dimension)) + "\n")
    theirs = importlib.import_module("gensim.models").KeyedVectors.load_word2vec_format(str(path))
    np.testing.assert_allclose(theirs["bread"], vectors["bread"], rtol=1e-4, atol=1e-6)


# ---- bad files


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "no file of vectors"),
        ("word\n", "no file of vectors"),
        ("2 3\na 1 2 3\n", "cut short"),
        ("1 3\na 1 2 3\nb 1 2 3\n", "altered"),
        ("1 3\na 1 2\n", "expected a word and 3 numbers"),
        ("1 3\na 1 2 x\n", "expected a word and 3 numbers"),
        ("1 3\na 1 2 nan\n", r"infinite or none \(NaN\)"),
        ("99999999999 99999999999\na 1\n", "no file of vectors"),
    ],
)
def test_bad_vec_files_get_a_sentence(content: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "x.vec").write_text(content)
    with pytest.raises(DataError, match=complaint):
        read_table(tmp_path / "x.vec")


def test_a_binary_file_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"1000000000 300\nword \0\1\2\3")
    with pytest.raises(DataError, match="too small"):
        read_table(tmp_path / "x.bin")


def test_bad_fasttext_files_get_a_sentence(labels: Network, tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write_fasttext(labels, path)
    whole = path.read_bytes()
    for size in (4, 8, 60, 70, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match="no model of fastText, or damaged"):
            read_fasttext(path)
    lying = bytearray(whole)
    lying[64:68] = struct.pack("<i", 2**31 - 1)  # number of entries
    path.write_bytes(bytes(lying))
    with pytest.raises(ModelError, match="cannot have"):
        read_fasttext(path)
    path.write_bytes(whole[:-4] + struct.pack("<f", float("nan")))
    with pytest.raises(ModelError, match="NaN"):
        read_fasttext(path)
    with pytest.raises(DataError, match="there is no file or folder"):
        load_vectors(tmp_path / "none")
