"""Models of many languages: M2M100, NLLB and mBART-50 come in with their marks of languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sentencepiece
import torch
from conftest import Notes, bundled_pairs
from foreign import CODES, limit, many_folder, many_model

import transduce
from transduce.cli import main
from transduce.commands.convert import convert
from transduce.core.layout import lay_out
from transduce.core.special import BEGIN, END
from transduce.decoding.sentences import sentences_of
from transduce.decoding.shortlist import Shortlist
from transduce.errors import ArgumentError, ModelError, SettingsError
from transduce.files.run_folder import CONFIG
from transduce.formats.hugging_face_text import OF_MBART
from transduce.models.load import load
from transduce.settings.compose import compose
from transduce.text.languages import languages_of, typed_marks
from transduce.text.tokenizers import Tokenizers

transformers = pytest.importorskip("transformers", reason="Hugging Face's models are compared with transformers")
PAIRS = bundled_pairs(300)


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_many_languages_come_in(tmp_path: Path, kind: str, activation: str) -> None:
    """The same logits, and the same translations, greedy and with a beam, as Hugging Face writes with forced marks."""
    folder = many_folder(tmp_path / kind, kind, activation)
    convert(folder, tmp_path / "ours")
    codes = [code.strip("_") for code in CODES[kind]]
    model = transduce.load(tmp_path / "ours", "cpu", languages=(codes[0], codes[1]))
    other = many_model(folder, kind)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    marks = {code: processor.get_piece_size() + 1 + i for i, code in enumerate(codes)}
    names = {**{processor.id_to_piece(i): i + 1 for i in range(3, 200)}, "</s>": 2, "<unk>": 3, "<pad>": 1}
    names |= {f"<language {code}>": i for code, i in marks.items()}
    lines = [pair[0] for pair in PAIRS[:8]]
    for line in lines:
        ours = model.tokenizers.source.encode([line])[0]
        there = [marks[codes[0]], *(i + 1 if i else 3 for i in processor.encode(line)), 2]
        assert [names[piece] for piece in model.tokenizers.source.pieces(ours)] == there[:-1]
        target = model.tokenizers.target.encode(["the house is old"])[0]
        logits = model.model(lay_out([[[*ours, END]]]), lay_out([[[BEGIN, *target]]]))[0]
        decoder = [2, *(names[piece] for piece in model.tokenizers.target.pieces(target))]
        expected = other(input_ids=torch.tensor([there]), decoder_input_ids=torch.tensor([decoder])).logits[0]
        pieces = enumerate(model.tokenizers.target.pieces(range(model.tokenizers.target.size)))
        same = [(i, names[piece]) for i, piece in pieces if piece in names]
        a, b = (torch.tensor(column) for column in zip(*same, strict=True))
        torch.testing.assert_close(logits[:, a], expected[:, b], atol=1e-5, rtol=1e-5)
        for beam in (1, 4):
            found = model.with_search(beam=beam, extra=8, stop="usual").translate(line)
            out = other.generate(
                torch.tensor([there]), num_beams=beam, forced_bos_token_id=marks[codes[1]], do_sample=False,
                max_new_tokens=1 + limit(model.with_search(extra=8), ours), early_stopping=beam > 1,
                bad_words_ids=[[0], [1], [3]], max_length=None,
            )[0].tolist()  # fmt: skip
            text = [i for i in out[2:] if i not in (1, 2)]
            assert [names.get(piece, -1) for piece in found.candidates[0].tokens] == text


def older_mbart(folder: Path) -> Path:
    """As mbart-large-en-ro lies on the hub: no list of languages, and every translation begins with one of them."""
    many_folder(folder, "mbart", languages=len(OF_MBART))
    (folder / "special_tokens_map.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    config["decoder_start_token_id"] = 201 + OF_MBART.index("ro_RO")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder


def test_the_older_mbart_comes_in(tmp_path: Path) -> None:
    """The source ends with END and its mark; the target's is the token that it begins with."""
    folder = older_mbart(tmp_path / "mbart")
    convert(folder, tmp_path / "ours")
    with pytest.raises(SettingsError, match="knows 24 languages"):
        transduce.load(tmp_path / "ours", "cpu")
    with pytest.raises(SettingsError, match="writes one language only"):
        transduce.load(tmp_path / "ours", "cpu", languages=("en_XX", "de_DE"))
    model = transduce.load(tmp_path / "ours", "cpu", languages=("en_XX", None), beam=4, extra=8, stop="usual")
    other = many_model(folder, "mbart")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    names = {processor.id_to_piece(i): i + 1 for i in range(3, 200)}
    english, romanian = (201 + OF_MBART.index(code) for code in ("en_XX", "ro_RO"))
    for line in [pair[1] for pair in PAIRS[:8]]:
        there = [*(i + 1 if i else 3 for i in processor.encode(line)), 2, english]
        ids, target = model.tokenizers.source.encode([line])[0], model.tokenizers.target.encode(["das haus"])[0]
        pieces = model.tokenizers.target.pieces(range(model.tokenizers.target.size))
        same = {i: names[piece] for i, piece in enumerate(pieces) if piece in names} | {END: 2}
        logits = model.model(lay_out([[[*ids, END]]]), lay_out([[[BEGIN, *target]]]))[0]
        decoder = torch.tensor([[romanian, *(same[i] for i in target)]])
        expected = other(input_ids=torch.tensor([there]), decoder_input_ids=decoder).logits[0]
        torch.testing.assert_close(logits[:, list(same)], expected[:, list(same.values())], atol=1e-5, rtol=1e-5)
        found = model.translate(line, alignment=True)
        out = other.generate(
            torch.tensor([there]), num_beams=4, do_sample=False, early_stopping=True, max_length=None,
            max_new_tokens=limit(model, there), decoder_start_token_id=romanian, bad_words_ids=[[0], [1], [3]],
        )[0].tolist()  # fmt: skip
        text = [i for i in out[1:] if i not in (1, 2)]
        assert [names.get(piece, -1) for piece in found.candidates[0].tokens] == text
        assert all(i < len(line.split()) for i, _ in found.alignment)


def test_weights_in_several_files(tmp_path: Path) -> None:
    """As large models lie on the hub; what the index says must be so, and it can name no file elsewhere."""
    folder = many_folder(tmp_path / "whole", "m2m_100")
    convert(folder, tmp_path / "one")
    many_model(folder, "m2m_100").save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    index = folder / "model.safetensors.index.json"
    files = set(json.loads(index.read_text())["weight_map"].values())
    assert len(files) > 1
    convert(folder, tmp_path / "several")
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (
        tmp_path / "several" / "model.safetensors"
    ).read_bytes()
    whole = json.loads(index.read_text())
    for change, complaint in (
        ({"weight_map": {**whole["weight_map"], "more": "../../x.safetensors"}}, "none of the folder's"),
        ({"weight_map": {**whole["weight_map"], "more": min(files)}}, "promises more, which no file holds"),
        ({"weight_map": dict(list(whole["weight_map"].items())[1:])}, "does not say"),
        ({"weight_map": 3}, "no weight_map"),
    ):
        index.write_text(json.dumps(change))
        with pytest.raises(ModelError, match=complaint):
            convert(folder, tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_a_language_must_be_said(tmp_path: Path) -> None:
    folder = many_folder(tmp_path / "m2m", "m2m_100")
    convert(folder, tmp_path / "ours")
    with pytest.raises(SettingsError, match=r"knows 3 languages .de, en, zh, .*--source-language"):
        transduce.load(tmp_path / "ours")
    with pytest.raises(SettingsError, match=r"no language 'enn', did you mean en; there are de, en, zh"):
        transduce.load(tmp_path / "ours", languages=("de", "enn"))
    with pytest.raises(ArgumentError, match="languages must be two"):
        transduce.load(tmp_path / "ours", languages="de")  # type: ignore[arg-type]
    assert languages_of(load(tmp_path / "ours").tokenizers.source).keys() == {"de", "en", "zh"}


def test_a_language_is_remembered_and_can_be_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As settings of the converted model; flags are stronger. The mark never shows."""
    folder = many_folder(tmp_path / "m2m", "m2m_100")
    convert(folder, tmp_path / "ours", source_language="de", target_language="en")
    assert "target_language: en" in (tmp_path / "ours" / CONFIG).read_text()
    (tmp_path / "text").write_text("das haus ist alt .\n\n", encoding="utf-8")
    texts = []
    for flags in ([], ["--target-language", "zh"]):
        main(["translate", str(tmp_path / "ours"), str(tmp_path / "text"), "--json", *flags])
        texts.append(capsys.readouterr().out)
    assert texts[0] != texts[1]
    assert "language" not in "".join(texts)
    assert [json.loads(text.splitlines()[1])["status"] for text in texts] == ["empty", "empty"]
    model = transduce.load(tmp_path / "ours", "cpu")
    found = model.translate("das haus ist alt .", alignment=True, alternatives=2)
    assert len(found.alternatives) == len(found.candidates[0].tokens) + 1  # and the end
    assert all(i < 5 for i, _ in found.alignment)
    page = model.trace("das haus ist alt .")
    assert page.source[0] == "<language de>"
    assert page.target[0] == "<language en>"


def test_plain_and_fast_engine_agree_with_marks(tmp_path: Path) -> None:
    folder = many_folder(tmp_path / "nllb", "nllb")
    convert(folder, tmp_path / "ours", source_language="deu_Latn", target_language="eng_Latn")
    lines = [pair[0] for pair in PAIRS[:30]]
    for beam in (1, 3):
        plain, fast = (
            transduce.load(tmp_path / "ours", "cpu", beam=beam, engine=engine).translate(lines)
            for engine in ("plain", "auto")
        )
        assert [t.text for t in plain] == [t.text for t in fast]
    pytest.importorskip("ctranslate2")
    other = transduce.load(tmp_path / "ours", "cpu", beam=1, engine="ctranslate2").translate(lines)
    assert [t.text for t in other] == [
        t.text for t in transduce.load(tmp_path / "ours", "cpu", beam=1).translate(lines)
    ]


def test_a_shortlist_goes_with_marks(tmp_path: Path) -> None:
    """The fast way has other numbers for the tokens on a list, and for the mark before a translation too."""
    folder = many_folder(tmp_path / "nllb", "nllb")
    convert(folder, tmp_path / "ours", source_language="deu_Latn", target_language="eng_Latn")
    lines = [pair[0] for pair in PAIRS[:10]]
    plain, fast = (transduce.load(tmp_path / "ours", "cpu", engine=engine) for engine in ("plain", "auto"))
    read, write = plain.tokenizers.source.pieces([20]), plain.tokenizers.target.pieces(range(20, 60))
    shortlist = Shortlist(tuple(write), {read[0]: tuple(write[:1])})
    texts = [[t.text for t in model.translate(lines, shortlist=shortlist)] for model in (plain, fast)]
    assert texts[0] == texts[1]


def test_what_is_scored_is_not_the_mark(tmp_path: Path) -> None:
    folder = many_folder(tmp_path / "nllb", "nllb")
    convert(folder, tmp_path / "ours", source_language="deu_Latn", target_language="eng_Latn")
    model = transduce.load(tmp_path / "ours", "cpu")
    source, target = PAIRS[0]
    nothing, something = model.score([(source, ""), (source, target)])
    assert nothing.tokens == 1
    assert nothing.log_probability < 0  # of END alone; without a mark before it, it was certain
    assert something.tokens == len(model.tokenizers.target.encode([target])[0])  # END for the mark


def test_training_goes_on_with_other_languages(tmp_path: Path) -> None:
    """The marks stand before both sides of the new text."""
    folder = many_folder(tmp_path / "m2m", "m2m_100")
    convert(folder, tmp_path / "ours")
    transduce.train(
        tmp_path / "run", PAIRS[:100], report=Notes(),
        training={"start": str(tmp_path / "ours"), "steps": 2, "validate_every": 2},
        text={"source_language": "de", "target_language": "zh"},
    )  # fmt: skip
    model = transduce.load(tmp_path / "run", "cpu")
    assert model.tokenizers.target.begin == (languages_of(model.tokenizers.target)["zh"],)
    assert model.translate("das haus").status
    with pytest.raises(SettingsError, match=r"say which ones the text has, with --text.source_language"):
        transduce.train(tmp_path / "other", PAIRS[:9], report=Notes(), training={"start": str(tmp_path / "ours")})


def test_commands_that_compare_and_teach_are_told_languages(
    tmp_path: Path, model_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A model that knows none beside one that knows many; and a vocabulary that has no languages cannot be put in."""
    convert(many_folder(tmp_path / "m2m", "m2m_100"), tmp_path / "ours", report=(notes := Notes()))
    assert any("transduce translate" in said and "--source-language" in said for said in notes.said)
    ours, texts = str(tmp_path / "ours"), [tmp_path / "a.de", tmp_path / "a.en"]
    for side, path in enumerate(texts):
        path.write_text("".join(f"{pair[side]}\n" for pair in PAIRS[:12]), encoding="utf-8")
    spoken = ["--source-language", "de", "--target-language", "en"]
    pair = ["--source", str(texts[0]), "--reference", str(texts[1])]
    assert main(["compare", ours, str(model_folder), *pair, "-o", str(tmp_path / "c.html"), *spoken]) == 0
    assert main(["backtranslate", ours, str(texts[1]), "-o", str(tmp_path / "b.de"), *spoken]) == 0
    assert len((tmp_path / "b.de").read_text(encoding="utf-8").splitlines()) == 12
    capfd.readouterr()
    assert main(["compare", ours, str(model_folder), *pair, "-o", str(tmp_path / "d.html")]) == 2
    assert "say which ones with --source-language" in capfd.readouterr().err
    with pytest.raises(SettingsError, match="knows languages by tokens of its vocabulary"):
        training = {"start": ours, "new_vocabulary": True, "steps": 2}
        transduce.train(tmp_path / "other", PAIRS[:50], report=Notes(), training=training)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda f: (f / "special_tokens_map.json").unlink(), "does not say which languages it knows"),
        (lambda f: _edit(f / "config.json", decoder_start_token_id=5), "is no language's mark"),
        (lambda f: _edit(f / "special_tokens_map.json", additional_special_tokens=["a b"]), "in no known way"),
        (lambda f: (f / "sentencepiece.bpe.model").write_bytes(b"\xff" * 40), "SentencePiece model is damaged"),
        (
            lambda f: (f / "sentencepiece.bpe.model").rename(f / "tokenizer.json"),
            "tokenizer.json is no JSON",
        ),
    ],
)
def test_wrong_folders_are_refused(tmp_path: Path, change: object, complaint: str) -> None:
    folder = many_folder(tmp_path / "mbart", "mbart", languages=4)
    change(folder)  # type: ignore[operator]
    with pytest.raises(ModelError, match=complaint):
        convert(folder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    generation = path.with_name("generation_config.json")
    generation.unlink(missing_ok=True)


def test_a_source_that_is_cut_keeps_the_mark_behind_it() -> None:
    """As the older mBART has it: text, END, the mark of its language."""

    class Behind:
        def encode(self, texts: list[str]) -> list[list[int]]:
            return [[*range(10, 10 + len(text)), END, 5] for text in texts]

    (cut,) = sentences_of(["a" * 20], Behind(), 8, split=False)  # type: ignore[arg-type]
    assert cut.source == [10, 11, 12, 13, 14, 15, END, 5]
    assert not cut.whole
    (whole,) = sentences_of(["a" * 6], Behind(), 8, split=False)  # type: ignore[arg-type]
    assert whole.source == [10, 11, 12, 13, 14, 15, END, 5]
    assert whole.whole


def test_marks_that_lines_begin_with_are_tokens(tmp_path: Path) -> None:
    """Two directions in one model: what to translate into, the source says. Nine lines are too few to tell."""
    both = [(f">>en<< {pair[0]}", pair[1]) for pair in PAIRS[:100]] + [(f">>de<< {b}", a) for a, b in PAIRS[:100]]
    both += [(f">>xx<< {pair[0]}", pair[1]) for pair in PAIRS[:9]]
    both += [(f">>Ja<<, {pair[0]}", pair[1]) for pair in PAIRS[:8]]  # somebody is quoted
    for case in ("typed", "marks"):
        tokenizers = Tokenizers.train(both, compose({"text": {"vocabulary": 300, "case": case}}).text)
        assert typed_marks(tokenizers.source) == [">>de<<", ">>en<<"]
        cut = tokenizers.source.cut(">>de<< the house")
        assert cut[0] == "▁>>de<<"
        (sampled,) = tokenizers.source.sample([">>de<< the house is old"], 0.9, 1)
        assert tokenizers.source.pieces(sampled)[0] == "▁>>de<<"
    capitals = [(f">>zh_Hans<< {pair[0]}", pair[1]) for pair in PAIRS[:100]]
    for how, marks in (({"case": "marks"}, [">>zh_Hans<<"]), ({"lowercase": True}, [])):  # then it is written otherwise
        tokenizers = Tokenizers.train(capitals, compose({"text": {"vocabulary": 300, **how}}).text)
        assert typed_marks(tokenizers.source) == marks
    training = {"steps": 3, "validate_every": 3, "device": "cpu"}
    model = transduce.train(tmp_path / "run", both, preset="tiny", report=Notes(), training=training)
    assert typed_marks(model.tokenizers.source) == [">>de<<", ">>en<<"]
    strange, known = model.translate([">>fr<< das haus ist alt", ">>en<< das haus ist alt"])
    assert strange.status in ("unknown", "length")  # after three updates few translations end
    assert known.status != "unknown"
