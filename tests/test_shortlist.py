"""Shortlists: learned from text, the same answer in any company, and nothing else is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import bundled_pairs

import transduce
from transduce.cli import main
from transduce.data.lexicon import learn_lexicon
from transduce.decoding.shortlist import Shortlist, ShortlistIds, learn
from transduce.errors import DataError
from transduce.model import Model

PAIRS = bundled_pairs(200)


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Model:
    return transduce.load(model_folder, min_length=3)


@pytest.fixture(scope="module")
def shortlist(model: Model) -> Shortlist:
    sides = zip(*PAIRS, strict=True)
    tokenizers = (model.tokenizers.source, model.tokenizers.target)
    encoded = [tokenizer.encode(list(side)) for tokenizer, side in zip(tokenizers, sides, strict=True)]
    return learn(zip(*encoded, strict=True), model.tokenizers, partners=8, frequent=10)


def test_partners_are_translations() -> None:
    """A text made with a dictionary: the first partner of every word is its translation."""

    class Words:
        size = 40

        def pieces(self, ids: range) -> list[str]:
            return [f"w{i}" for i in ids]

    rng = np.random.default_rng(0)
    sources = [rng.permutation(np.arange(4, 30))[:5].tolist() for _ in range(200)]
    pairs = [(ids, [token + 7 for token in reversed(ids)]) for ids in sources]
    both = type("Both", (), {"source": Words(), "target": Words()})()
    found = learn(pairs, both, partners=3, frequent=5)
    assert all(found.partners[f"w{i}"][0] == f"w{i + 7}" for i in range(4, 30))
    assert all(len(others) == 3 for others in found.partners.values())
    assert len(found.frequent) == 5


def test_only_what_is_on_the_list_is_written_in_any_company(model: Model, shortlist: Shortlist) -> None:
    lines = [source for source, _ in PAIRS[:40]]
    short = ShortlistIds(shortlist, model.tokenizers.source, model.tokenizers.target)
    together = model.translate(lines, shortlist=shortlist)
    pieces = model.tokenizers.target.pieces(range(model.tokenizers.target.size))
    for line, found in zip(lines, together, strict=True):
        allowed = {pieces[i] for i in short.of(model.tokenizers.source.encode([line])[0])}
        assert set(found.candidates[0].tokens) <= allowed
        alone = model.translate(line, shortlist=shortlist)
        assert alone.text == found.text
        assert alone.score == pytest.approx(found.score, abs=1e-4)
    for short, whole in zip(together, model.translate(lines), strict=True):
        assert short.score > whole.score  # the same text, but fewer others could have been written


def test_the_fast_way_is_the_plain_way(model: Model, shortlist: Shortlist) -> None:
    lines = [source for source, _ in PAIRS[:40]]
    plain = model.with_search(engine="plain").translate(lines, n_best=2, shortlist=shortlist)
    for ours, theirs in zip(model.translate(lines, n_best=2, shortlist=shortlist), plain, strict=True):
        assert [c.tokens for c in ours.candidates] == [c.tokens for c in theirs.candidates]
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)


def test_what_is_asked_for_may_be_written_too(model: Model, shortlist: Shortlist) -> None:
    bare = shortlist._replace(partners=dict.fromkeys(shortlist.partners, ()), frequent=shortlist.frequent[:2])
    found = next(model.stream(["ich schlafe"], transduce.decoding.wishes.Wishes(shortlist=bare), prefixes=["the dog"]))
    assert found.text.startswith("the dog")


def test_from_the_command_line(model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, side in zip(("source", "target"), zip(*PAIRS, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side))
    source, target, out = (str(tmp_path / name) for name in ("source", "target", "short.tsv"))
    command = ["shortlist", str(model_folder), "--source", source, "--target", target, "-o", out]
    assert main(command) == 0
    read = Shortlist.from_lines(Path(out).read_text().splitlines(), out)
    assert read.partners
    assert list(read.lines()) == Path(out).read_text().splitlines()
    assert main(["translate", str(model_folder), source, "--shortlist", out]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PAIRS)
    assert main(command) == 2  # it is there already
    assert main([*command, "--force", "--frequent", "0"]) == 2
    assert main(["translate", str(model_folder), source, "--shortlist", target]) == 2
    assert "is no shortlist" in capsys.readouterr().err


def test_a_list_for_another_vocabulary_is_refused(model: Model) -> None:
    with pytest.raises(DataError, match="another vocabulary"):
        model.translate("ich", shortlist=Shortlist(("nobody",), {"knows": ("these",)}))
    with pytest.raises(DataError, match="nothing to learn"):
        learn([], model.tokenizers, 3, 3)


def test_of_much_text_pairs_are_taken_from_all_of_it() -> None:
    pairs = [([4 + i], [4 + i]) for i in range(100)] + [([5, 6, 7], [8, 9, 10])] * 100
    found = learn_lexicon(pairs, 200, most=100)
    sources = set((found.pairs // 200).tolist())
    assert 7 in sources
    assert sources & set(range(8, 54))
    assert sources & set(range(54, 104))
    assert len(sources) < 100
    assert found.written.sum() < 400
