"""Word links: read from a head, found without anybody's links, counted in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import bundled_pairs, small_model

import transduce
from transduce.bundled.corpus import bundled
from transduce.bundled.links import true_links
from transduce.cli import main
from transduce.core.layout import lay_out
from transduce.core.rows import Rows
from transduce.core.seq2seq import AttentionMaps
from transduce.core.special import BEGIN, END
from transduce.data.batches import Batch
from transduce.decoding.aligner import find_aligner, score_aligners
from transduce.decoding.alignment import Aligner, align
from transduce.decoding.results import Translation, join
from transduce.errors import SettingsError
from transduce.text.words import count_words, pharaoh, word_links, words_of_pieces


def test_words_are_counted_by_white_space_and_characters_where_there_is_none() -> None:
    assert words_of_pieces(["▁ich", "▁möch", "te", "▁", "bier", "."]) == [[0], [1], [1], [], [2], [2]]
    assert words_of_pieces(["▁我", "想喝", "▁beer", "啤"]) == [[0], [1, 2], [3], [4]]
    for text, words in (("a bc  d", 3), ("我想喝 beer啤", 5), ("", 0), ("x", 1), ("a\tb\u00a0c", 3), ("a \u200b b", 2)):
        assert count_words(text) == words


def test_links_of_tokens_become_links_of_words() -> None:
    source, target = ["▁kal", "tes", "▁bier"], ["▁cold", "▁be", "er"]
    assert pharaoh(word_links(source, target, [1, 2, 2])) == "0-0 1-1"


class Copies(torch.nn.Module):
    """Target token t comes from the source token at the mirrored place; head 2 of layer 2 sees it, others nothing."""

    looks_at_source = True

    def __init__(self, when_read: bool) -> None:
        super().__init__()
        self.when_read = when_read

    def attention(self, source: Rows, target_in: Rows) -> AttentionMaps:
        rows, steps, slots = len(source.tokens), target_in.tokens.size(1), source.tokens.size(1)
        cross = [torch.rand(rows, 2, steps, slots, generator=torch.Generator().manual_seed(k)) for k in range(2)]
        for row, segments in enumerate(source.segments.tolist()):
            length = sum(segments) - 1
            for i in range(length):
                cross[1][row, 1, i + self.when_read] = torch.eye(slots)[length - 1 - i]
        return AttentionMaps(cross=cross)


@pytest.mark.parametrize("when_read", [False, True])
def test_the_head_that_links_is_found_and_used(when_read: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    sources = [torch.randint(4, 30, (7,), generator=generator).tolist() for _ in range(60)]
    targets = [[50 - token for token in reversed(ids)] for ids in sources]
    batch = Batch(
        lay_out([[[*ids, END]] for ids in sources]),
        lay_out([[[BEGIN, *ids]] for ids in targets]),
        lay_out([[[*ids, END]] for ids in targets]).tokens,
        None,  # type: ignore[arg-type]
        0,
    )
    model = Copies(when_read)
    found = find_aligner(model, [batch], 60, "cpu")  # type: ignore[arg-type]
    assert found == Aligner(2, 2, when_read)
    assert align(model, sources, targets, found, 4096, "cpu") == [list(range(6, -1, -1))] * 60  # type: ignore[arg-type]


def test_there_is_nothing_to_find_without_text_or_attention() -> None:
    assert score_aligners(small_model(), [], 30, "cpu") == {}
    without = small_model()
    without.looks_at_source = False
    assert find_aligner(without, [], 30, "cpu") is None


def test_an_aligner_is_written_as_it_is_read() -> None:
    for aligner in (Aligner(4, 2, True), Aligner(6, None, False)):
        assert Aligner.parse(str(aligner)) == aligner
    with pytest.raises(SettingsError, match='such as "4.2 reads"'):
        Aligner.parse("4")


def test_the_grammar_knows_its_links() -> None:
    links = true_links("er hat unseren alten freund nicht gekannt", "he did not know our old friend")
    assert links.sure == {(0, 0), (2, 4), (3, 5), (4, 6), (5, 2), (6, 3)}
    assert (1, 1) in links.possible - links.sure
    links = true_links("wenn du fertig bist, schläfst du im park", "when you are ready, you sleep in the park")
    assert {(1, 1), (4, 5), (5, 4), (6, 6), (7, 8)} <= links.sure
    for pair in bundled(0, 200, 100).test:
        sure, possible = true_links(pair.source, pair.target)
        assert sure <= possible
        assert all(i < len(pair.source.split()) and j < len(pair.target.split()) for i, j in possible)


def test_training_finds_a_head_and_translate_uses_it(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = transduce.load(model_folder, min_length=4)
    assert model.search.aligner is not None
    lines = [pair[0] for pair in bundled_pairs(3)]
    found = model.translate(lines, alignment=True)
    for line, t in zip(lines, found, strict=True):
        assert t.alignment
        assert all(i < len(line.split()) and j < len(t.text.split()) for i, j in t.alignment)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    command = ["translate", str(model_folder), str(tmp_path / "text"), "--alignments", "--search.min-length", "4"]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [f"{t.text} ||| {pharaoh(t.alignment)}" for t in found]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["alignment"] == [
        list(link) for link in found[0].alignment
    ]


def test_links_of_a_line_with_several_sentences_count_on(model_folder: Path) -> None:
    model = transduce.load(model_folder, min_length=4)
    one, two = (model.translate(text, alignment=True) for text in ("ich bin müde.", "er ist krank."))
    both = model.translate("ich bin müde. er ist krank.", alignment=True)
    shift = (3, len(one.text.split()))
    assert both.alignment == (*one.alignment, *((i + shift[0], j + shift[1]) for i, j in two.alignment))


def test_links_count_on_through_a_cut_within_a_word() -> None:
    one = Translation("hi.", "hallo .", "ok", (), alignment=((0, 0),))
    two = Translation("you", "du", "ok", (), alignment=((0, 0),))
    assert join("hi.you", [one, two], ["", ""]).alignment == ((0, 0), (0, 2))
    assert join("hi. you", [one, two], ["", " "]).alignment == ((0, 0), (1, 2))


def test_unknown_words_are_counted(tmp_path: Path) -> None:
    model = transduce.train(
        tmp_path / "run",
        bundled_pairs(60),
        bundled_pairs(20, seed=2),
        preset="tiny",
        text={"tokenizer": "words", "vocabulary": 200},
        training={"steps": 2, "validate_every": 1},
        model={"layers": 1, "d_model": 32, "heads": 2, "d_ff": 32},
    )
    assert model.tokenizers.source.cut("ich bin xyzzy da")[2:] == ["▁xyzzy", "▁da"]
    assert model.search.aligner is not None


def test_an_ensemble_has_no_head(model_folder: Path) -> None:
    with pytest.raises(SettingsError, match="word alignments need one model"):
        transduce.load(model_folder, together=[model_folder]).translate("ich", alignment=True)


def test_alignments_of_several_translations_need_json(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", str(model_folder), __file__, "--alignments", "--n-best", "2"]) == 2
    assert "--alignments with --n-best needs --json" in capsys.readouterr().err


def test_a_wrong_head_is_refused(model_folder: Path) -> None:
    for aligner, complaint in (("9.1 writes", "layers 1 to"), ("1.99 reads", "heads 1 to"), ("first", "such as")):
        with pytest.raises(SettingsError, match=complaint):
            transduce.load(model_folder, aligner=aligner).translate("ich bin müde", alignment=True)
