"""Word vectors and fastText's classifier: the kernels against their plain twins, losses against autograd, learning,
determinism, resuming."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Notes

from transduce.errors import DataError, ModelError, SettingsError, Stopped
from transduce.fasttext import plain, training
from transduce.fasttext.cuts import cut_characters, cut_words
from transduce.fasttext.dictionary import count, laid_out
from transduce.fasttext.encode import spans
from transduce.fasttext.fit import Source, fit, network_for, read_source
from transduce.fasttext.folder import load
from transduce.fasttext.huffman import huffman
from transduce.fasttext.judged import spearman
from transduce.fasttext.kernels.hashing import hash_words, ngram_table
from transduce.fasttext.kernels.learning import below, share
from transduce.fasttext.network import Network, negative_table
from transduce.fasttext.ngrams import END_OF_LINE, character_buckets, fnv1a, word_buckets
from transduce.fasttext.word_vectors import load_vectors, of_network
from transduce.settings.compose import compose
from transduce.settings.sections import VectorSettings
from transduce.signals import Signals

WORDS = ["a", "tea", "kitchen", "Größe", "文字", "naïve", "😀", "</s>", "it's", "ü"]


def settings(**given: object) -> VectorSettings:
    usual = {"dimension": 10, "min_count": 1, "threads": 1, "buckets": 500, "epochs": 2}
    return compose({"vectors": {**usual, **given}}).vectors


def topics(lines: int, seed: int = 0) -> list[tuple[list[str], str]]:
    """Lines of three topics, each with words of its own among common ones."""
    draw = random.Random(seed)
    own = {"food": "bread cheese soup salt", "sport": "ball goal team race", "music": "song violin choir tune"}
    common = ["the", "a", "of", "with", "and", "some", "very"]
    made = []
    for _ in range(lines):
        topic = draw.choice(list(own))
        words = draw.choices(own[topic].split(), k=3) + draw.choices(common, k=4)
        draw.shuffle(words)
        made.append(([topic], " ".join(words)))
    return made


def trained(lines: list[tuple[list[str], str]], folder: Path, **given: object) -> Network:
    s = settings(**given)
    source = read_source(s, lambda: lines, folder)
    network = network_for(s, source)
    training.train(network, source.text)
    return network


# ---- n-grams


def test_the_hash_is_fnv1a() -> None:
    assert (fnv1a(b""), fnv1a(b"a"), fnv1a(b"foobar")) == (0x811C9DC5, 0xE40C292C, 0xBF9CF968)


def test_the_kernels_hash_as_the_plain_functions_do() -> None:
    letters, starts = laid_out([word.encode() for word in WORDS])
    signed = [fnv1a(word.encode()) for word in WORDS]
    assert hash_words(letters, starts).tolist() == [h - 2**32 if h >= 2**31 else h for h in signed]
    marked = [b"" if word == "</s>" else f"<{word}>".encode() for word in WORDS]
    offsets, found = ngram_table(*laid_out(marked), 2, 5, 997)
    for i, word in enumerate(WORDS):
        assert found[offsets[i] : offsets[i + 1]].tolist() == character_buckets(word, 2, 5, 997), word


def test_word_ngrams_of_the_kernel_are_the_plain_ones(tmp_path: Path) -> None:
    lines = [(["x"], " ".join(WORDS[:7])), (["y"], "tea a")]
    s = settings(objective="labels", loss="softmax", longest=0, word_ngrams=3, buckets=997)
    network = network_for(s, read_source(s, lambda: lines, tmp_path))
    words = [*WORDS[:7], "</s>"]
    rows = network.rows_of_ngrams(words)
    assert [int(network.buckets[row - len(network.dictionary.words)]) for row in rows] == word_buckets(words, 3, 997)


# ---- hierarchical softmax


def independent_lengths(counts: list[int]) -> list[int]:
    """Code lengths by the textbook's heap of subtrees."""
    heap = [(n, i, [i]) for i, n in enumerate(counts)]
    heapq.heapify(heap)
    lengths, fresh = [0] * len(counts), itertools.count(len(counts))
    while len(heap) > 1:
        (a, _, left), (b, _, right) = heapq.heappop(heap), heapq.heappop(heap)
        for leaf in left + right:
            lengths[leaf] += 1
        heapq.heappush(heap, (a + b, next(fresh), left + right))
    return lengths


@pytest.mark.parametrize("leaves", [2, 3, 17, 735])
def test_huffman_code_lengths_are_those_of_the_textbook(leaves: int) -> None:
    draw = np.random.default_rng(leaves)
    counts = np.sort(draw.choice(10**6, leaves, replace=False) + 1)[::-1].astype(np.int64)
    tree = huffman(counts)
    ours, theirs = np.diff(tree.starts), independent_lengths(counts.tolist())
    assert (ours * counts).sum() == (np.array(theirs) * counts).sum()  # where sums tie, lengths may be swapped
    assert sorted(ours.tolist()) == sorted(theirs)
    assert {node for leaf in range(leaves) for node, _ in tree.way(leaf)} == set(range(leaves - 1))


def test_probabilities_of_the_tree_sum_to_one() -> None:
    draw = np.random.default_rng(0)
    tree = huffman(np.sort(draw.integers(1, 1000, 735))[::-1].astype(np.int64))
    h, U = (draw.standard_normal(shape).astype(np.float32) for shape in (20, (734, 20)))
    assert abs(plain.probabilities(h, U, "hs", tree).astype(np.float64).sum() - 1) < 1e-6


# ---- losses


def autograd(loss: str, h: np.ndarray, U: np.ndarray, target: int, others: list[int], tree) -> tuple:  # type: ignore[no-untyped-def, type-arg]
    """The loss as PyTorch has it, and its gradients."""
    a, b = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (h, U))
    scores = b @ a
    if loss == "softmax":
        value = torch.nn.functional.cross_entropy(scores[None], torch.tensor([target]))
    elif loss == "hs":
        turns = [(n, 1.0 if right else -1.0) for n, right in tree.way(target)]
        value = -sum(torch.nn.functional.logsigmoid(sign * scores[n]) for n, sign in turns)
    else:
        truth = torch.zeros(len(U), dtype=torch.float64)
        truth[target] = 1
        asked = list(range(len(U))) if loss == "ova" else [target, *others]
        value = torch.nn.functional.binary_cross_entropy_with_logits(scores[asked], truth[asked], reduction="sum")
    value.backward()
    return float(value.detach()), a.grad.numpy(), b.grad.numpy()


@pytest.mark.parametrize("loss", ["ns", "hs", "softmax", "ova"])
def test_an_update_is_a_step_down_the_gradient(loss: str) -> None:
    draw = np.random.default_rng(1)
    tree = huffman(np.array([9, 7, 4, 2, 1, 1], np.int64))
    h = draw.standard_normal(5).astype(np.float32)
    U = draw.standard_normal((6, 5)).astype(np.float32)[: 5 if loss == "hs" else 6]
    target, others, rate = 3, [0, 5], 0.1
    wanted = autograd(loss, h, U, target, others, tree)
    before = U.copy()
    steps = {
        "ns": lambda: plain.negative_sampling(h, U, target, np.array(others, np.int32), rate),
        "hs": lambda: plain.hierarchical_softmax(h, U, target, tree, rate),
        "softmax": lambda: plain.softmax(h, U, target, rate),
        "ova": lambda: plain.one_against_all(h, U, np.array([target], np.int32), rate),
    }
    value, g = steps[loss]()
    assert value == pytest.approx(wanted[0], rel=1e-5)
    np.testing.assert_allclose(g, -rate * wanted[1], atol=1e-6)
    np.testing.assert_allclose(U - before, -rate * wanted[2], atol=1e-6)


def test_negative_sampling_has_the_analytic_gradient_on_average() -> None:
    """E[∂/∂h] = (σ(u_t·h) - 1) u_t + k Σ_w p(w | w ≠ t) σ(u_w·h) u_w."""
    draw = np.random.default_rng(2)
    counts, target, k = np.array([50, 20, 10, 5], np.int64), 1, 3
    h, U = (draw.standard_normal(shape).astype(np.float32) for shape in (4, (4, 4)))
    table = negative_table(counts, 0.75)
    share = counts**0.75 / (counts**0.75).sum()
    share[target] = 0
    share /= share.sum()
    p = plain.sigmoid(U @ h)
    wanted = (1 - p[target]) * U[target] - k * (share * p) @ U
    state = np.array([7], np.uint64)
    total = np.zeros(4)
    rounds = 20_000
    for _ in range(rounds):
        rows = []
        while len(rows) < k:
            row = int(table[below(state, len(table))])
            rows += [] if row == target else [row]
        total += plain.negative_sampling(h, U.copy(), target, np.array(rows, np.int32), 1e-3)[1] / 1e-3
    np.testing.assert_allclose(total / rounds, wanted, atol=0.02)


# ---- the kernels against the plain twin


def by_hand(network: Network, text, s: VectorSettings) -> Network:  # type: ignore[no-untyped-def]
    """What `training.train` does for labels, with the functions of plain.py, line by line."""
    E, U = network.E.copy(), network.U.copy()
    twin = Network(s, network.dictionary, E, U, network.buckets)
    stretches = list(spans(text.starts, training.STRETCH))
    total = s.epochs * len(stretches)
    for number in range(total):
        first, last = stretches[number % len(stretches)]
        rates = [s.rate * (1 - (number + part) / total) for part in (0, 1)]
        state = np.array([training._mixed(s.seed, number)], np.uint64)
        for line in range(first, last):
            rate = np.float32(rates[0] + (rates[1] - rates[0]) * (line - first) / (last - first))
            words = [twin.dictionary.words[i] for i in text.ids[text.starts[line] : text.starts[line + 1]]]
            rows = np.concatenate([twin.rows_of_word(word) for word in words] + [twin.rows_of_ngrams(words)])
            some = text.label_ids[text.label_starts[line] : text.label_starts[line + 1]]
            h = E[rows].mean(0)
            if s.loss == "ova":
                _, g = plain.one_against_all(h, U, some, rate)
            else:
                target = int(some[below(state, len(some))])
                if s.loss == "softmax":
                    _, g = plain.softmax(h, U, target, rate)
                elif s.loss == "hs":
                    _, g = plain.hierarchical_softmax(h, U, target, twin.tree, rate)
                else:
                    table, drawn = twin.out.table, []
                    while len(drawn) < s.negatives:
                        row = int(table[below(state, len(table))])
                        drawn += [] if row == target else [row]
                    _, g = plain.negative_sampling(h, U, target, np.array(drawn, np.int32), rate)
            np.add.at(E, rows, g / len(rows))
    return twin


def test_skipgram_is_fasttexts_which_sums_the_rows_of_a_word_for_each_neighbour(tmp_path: Path) -> None:
    """To 2e-5: here they are summed once a word, and their mean follows."""
    s = settings(objective="skipgram", loss="hs", epochs=1, rate=0.5, subsample=1.0, shortest=3, longest=4)
    source = read_source(s, lambda: topics(60), tmp_path)
    network = network_for(s, source)
    E, U, text = network.E.copy(), network.U.copy(), source.text
    twin = Network(s, network.dictionary, E, U, network.buckets)
    (first, last), *_ = spans(text.starts, training.STRETCH)
    state = np.array([training._mixed(s.seed, 0)], np.uint64)
    for number in range(first, last):
        rate = np.float32(s.rate * (1 - (number - first) / (last - first)))
        line = [int(i) for i in text.ids[text.starts[number] : text.starts[number + 1]] if share(state) <= 1]
        for centre, word in enumerate(line):
            reach = 1 + below(state, s.window)
            rows = twin.rows_of_word(twin.dictionary.words[word])
            for other in line[max(0, centre - reach) : centre] + line[centre + 1 : centre + reach + 1]:
                _, g = plain.hierarchical_softmax(E[rows].mean(0), U, other, twin.tree, rate)
                np.add.at(E, rows, g)
    training.train(network, text)
    assert len(list(spans(text.starts, training.STRETCH))) == 1
    assert np.abs(network.E - new_rows(s, source)).max() > 0.1  # it has learned something
    np.testing.assert_allclose(network.E, E, atol=2e-5)
    np.testing.assert_allclose(network.U, U, atol=2e-5)


def test_a_threads_own_rows_change_nothing_where_it_is_alone(tmp_path: Path) -> None:
    """Copies of the first rows, merged now and then, learn what the rows themselves would."""
    s = settings(objective="skipgram", loss="ns", epochs=1, rate=0.1, subsample=1.0, threads=1)
    source = read_source(s, lambda: topics(1200), tmp_path)
    plainly, by_copies = network_for(s, source), network_for(s, source)
    work = training.Work(by_copies, source.text)
    assert len(by_copies.U) > 8
    assert source.text.starts[-1] > 2000
    work.out, work.merged_every = work.out._replace(own=by_copies.U[:8]), 500
    for number in range(work.total):
        work.do(number)
    training.train(plainly, source.text)
    assert np.abs(plainly.U).max() > 0.1
    np.testing.assert_allclose(by_copies.E, plainly.E, atol=2e-5)
    np.testing.assert_allclose(by_copies.U, plainly.U, atol=2e-5)


@pytest.mark.parametrize(
    ("threads", "words", "a_line", "own"),
    [(1, 3000, 10, 0), (2, 3000, 10, 1024), (4, 3000, 10, 512), (4, 3000, 3000, 0), (8, 3000, 10, 0), (2, 500, 10, 0)],
)
def test_a_few_threads_have_rows_of_their_own(threads: int, words: int, a_line: int, own: int, tmp_path: Path) -> None:
    """Not where they would be merged too seldom: each adds what it has learned without the others."""
    s = settings(objective="skipgram", loss="ns", threads=threads, min_count=1)
    lines = [([], " ".join(f"w{i}" for i in range(at, at + a_line))) for at in range(0, words, a_line)]
    source = read_source(s, lambda: lines, tmp_path)
    assert len(training.Work(network_for(s, source), source.text).out.own) == own


def new_rows(s: VectorSettings, source: Source) -> np.ndarray:
    return network_for(s, source).E


@pytest.mark.parametrize("loss", ["ns", "hs", "softmax", "ova"])
def test_the_kernels_learn_what_the_plain_twin_learns(loss: str, tmp_path: Path) -> None:
    lines = [*topics(60), (["food", "music"], "bread and song")]
    s = settings(objective="labels", loss=loss, longest=4, word_ngrams=2, rate=0.3, negatives=2)
    source = read_source(s, lambda: lines, tmp_path)
    network = network_for(s, source)
    twin = by_hand(network, source.text, s)
    training.train(network, source.text)
    np.testing.assert_allclose(network.E, twin.E, atol=2e-5)
    np.testing.assert_allclose(network.U, twin.U, atol=2e-5)


# ---- it learns


@pytest.mark.parametrize("loss", ["ns", "hs", "softmax", "ova"])
def test_it_tells_topics_apart(loss: str, tmp_path: Path) -> None:
    network = trained(topics(600), tmp_path, objective="labels", loss=loss, longest=0, epochs=8, rate=0.5)
    right = [
        network.dictionary.labels[int(network.probabilities(network.rows_of_line(line)).argmax())] == given[0]
        for given, line in topics(100, seed=9)
    ]
    assert np.mean(right) > 0.97


@pytest.mark.parametrize("objective", ["skipgram", "cbow"])
@pytest.mark.parametrize("loss", ["ns", "hs"])
def test_words_of_a_topic_come_to_lie_together(objective: str, loss: str, tmp_path: Path) -> None:
    given = {"epochs": 20, "rate": 0.1, "subsample": 1.0, "longest": 0, "window": 4}
    vectors = of_network(trained(topics(1500), tmp_path, objective=objective, loss=loss, **given))
    assert vectors.similarity("bread", "cheese") > vectors.similarity("bread", "violin") + 0.2
    assert {one.word for one in vectors.nearest("goal", 3)} == {"ball", "team", "race"}


def test_a_word_nobody_has_seen_is_near_what_it_is_spelled_like(tmp_path: Path) -> None:
    vectors = of_network(trained(topics(1500), tmp_path, epochs=10, rate=0.1, subsample=1.0, buckets=20_000))
    assert "violins" not in vectors
    assert vectors.nearest("violins", 1)[0].word == "violin"


def test_rare_labels_count_as_much_with_balance(tmp_path: Path) -> None:
    lines = [(["much"], "a b")] * 95 + [(["rare"], "a c")] * 5
    given = {"objective": "labels", "loss": "softmax", "longest": 0, "epochs": 3, "rate": 0.2}
    usual, balanced = (trained(lines, tmp_path / str(b), balance=b, **given) for b in (False, True))
    p = [n.probabilities(n.rows_of_line("a"))[n.dictionary.label_ids["rare"]] for n in (usual, balanced)]
    assert p[1] > p[0]


# ---- the same every time


def test_one_thread_gives_the_same_every_time(tmp_path: Path) -> None:
    one, two = (trained(topics(300), tmp_path / name) for name in "ab")
    assert one.E.tobytes() == two.E.tobytes()


def test_several_threads_do_all_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "STRETCH", 100)
    given = {"objective": "labels", "loss": "softmax", "longest": 0, "epochs": 5, "rate": 0.5}
    network = trained(topics(600), tmp_path, threads=3, **given)
    best = network.probabilities(network.rows_of_line("the goal of the team")).argmax()
    assert network.dictionary.labels[int(best)] == "sport"


def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "STRETCH", 100)
    monkeypatch.setattr(training, "LOOK", 0.001)
    wanted = compose({"model": {"kind": "fasttext"}, "vectors": settings(epochs=6).__dict__})
    lines = topics(300)
    fit(tmp_path / "whole", wanted, lambda: lines)
    real, stops = training.Work.do, itertools.count()

    def interrupted(self: training.Work, number: int) -> tuple[float, int, int]:
        if number == 25 and next(stops) == 0:
            noted.stop = 2
            time.sleep(0.3)  # until it is seen
        return real(self, number)

    noted = Signals()

    class Caught:
        def __enter__(self) -> Signals:
            return noted

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(training, "catch_signals", Caught)
    monkeypatch.setattr(training.Work, "do", interrupted)
    with pytest.raises(Stopped, match="the same command goes on"):
        fit(tmp_path / "run", wanted, lambda: lines)
    assert load(tmp_path / "run")[0].dictionary.words  # what it knows can be used
    noted.stop = 0
    notes = Notes()
    fit(tmp_path / "run", wanted, lambda: lines, notes)
    assert any("goes on after" in said for said in notes.said)
    ours, whole = (load(tmp_path / name)[0] for name in ("run", "whole"))
    assert ours.E.tobytes() == whole.E.tobytes()
    assert ours.U.tobytes() == whole.U.tobytes()
    with pytest.raises(SettingsError, match="trained to its end"):
        fit(tmp_path / "run", wanted, lambda: lines)


def test_another_text_is_refused_when_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = compose({"model": {"kind": "fasttext"}, "vectors": settings().__dict__})
    lines = topics(50)
    source = read_source(wanted.vectors, lambda: lines, tmp_path / "data")
    network = network_for(wanted.vectors, source)
    from transduce.fasttext.fit import _write_checkpoint
    from transduce.files.run_folder import RunFolder

    _write_checkpoint(RunFolder(tmp_path / "run"), network, 1, source.text.fingerprint())
    with pytest.raises(DataError, match="another text"):
        fit(tmp_path / "run", wanted, lambda: topics(50, seed=3))


# ---- what is refused


def test_text_that_cannot_be_learned_from_is_refused(tmp_path: Path) -> None:
    s = settings(objective="labels", loss="softmax", longest=0)
    with pytest.raises(DataError, match="no labels"):
        read_source(s, lambda: [((), "a b")], tmp_path)
    with pytest.raises(DataError, match="all lines have the same label, x"):
        read_source(s, lambda: [(["x"], "a b")] * 3, tmp_path)
    with pytest.raises(DataError, match=r"lower vectors\.min_count"):
        read_source(settings(min_count=50), lambda: [((), "a b")], tmp_path)
    with pytest.raises(DataError, match="the text is empty"):
        count([], cut_words, 1, 1)


def test_a_rate_that_is_too_high_is_named(tmp_path: Path) -> None:
    given = {"objective": "labels", "loss": "softmax", "longest": 0, "epochs": 20}
    with pytest.raises(SettingsError, match=r"vectors\.rate=1e\+30 is too high"):
        trained(topics(100), tmp_path, rate=1e30, **given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"shortest": 5, "longest": 3}, r"vectors\.shortest=5 must not exceed vectors\.longest=3"),
        ({"loss": "ova"}, r"vectors\.loss=ova needs vectors\.objective=labels"),
        ({"word_ngrams": 2}, r"vectors\.word_ngrams=2 needs vectors\.objective=labels"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        compose({"vectors": given})


def test_chinese_is_cut_into_characters() -> None:
    assert cut_characters("我想喝 tea 吗？") == ["我", "想", "喝", "tea", "吗", "？"]
    assert cut_words("a\u3000b c\td\0e") == ["a\u3000b", "c", "d", "e"]


def test_words_too_rare_for_a_row_speak_with_their_ngrams(tmp_path: Path) -> None:
    """As in fastText: lines of which every word comes only once, and what a label's words share is how they begin."""
    draw = random.Random(0)
    begins = {"food": "brot", "sport": "ball"}
    ends = draw.sample(["".join(four) for four in itertools.product("acdefgh", repeat=4)], 400)
    lines = [([topic], begins[topic] + end) for topic, end in zip(draw.choices(list(begins), k=400), ends, strict=True)]
    given = {"objective": "labels", "loss": "softmax", "min_count": 2, "shortest": 3, "longest": 4, "epochs": 20}
    network = trained(lines, tmp_path, **given)
    assert list(network.dictionary.words) == [END_OF_LINE]
    for topic, begin in begins.items():
        found = network.probabilities(network.rows_of_line(f"{begin}neu"))
        assert network.dictionary.labels[int(found.argmax())] == topic


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_subwords_are_learned_from_the_text_and_stay_with_the_model(kind: str, tmp_path: Path) -> None:
    made = {"tokens": kind, "pieces": 40, "objective": "labels", "loss": "softmax", "epochs": 20, "longest": 0}
    wanted = compose({"model": {"kind": "fasttext"}, "vectors": settings(**made).__dict__})
    fit(tmp_path / "run", wanted, lambda: topics(300))
    network = load(tmp_path / "run")[0]
    assert "".join(network.dictionary.cut("the violin")) == "▁the▁violin"
    assert "▁the" in network.dictionary.words
    found = network.probabilities(network.rows_of_line("the violin and the choir"))
    assert network.dictionary.labels[int(found.argmax())] == "music"
    vectors = load_vectors(tmp_path / "run")
    assert "the" in vectors
    assert all(near.word != "▁the" for near in vectors.nearest("the", 5))
    (tmp_path / "run" / "tokenizer.model").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"tokenizer\.model"):
        load(tmp_path / "run")


def test_more_subwords_than_the_text_has_or_fewer_than_its_letters_are_refused(tmp_path: Path) -> None:
    for pieces, complaint in ((5000, r"vectors\.pieces=5000 is larger"), (6, r"vectors\.pieces=6 is too small[^,]*$")):
        with pytest.raises(SettingsError, match=complaint):
            read_source(settings(tokens="bpe", pieces=pieces), lambda: topics(100), tmp_path)


def test_spearman_shares_ranks_of_equal_numbers() -> None:
    assert spearman(np.array([1.0, 2, 3]), np.array([10.0, 20, 90])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2, 2, 4]), np.array([4.0, 2, 2, 1])) == pytest.approx(-1)
