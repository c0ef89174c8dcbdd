"""What came from Hugging Face as M2M100, NLLB, mBART or BART goes back there as it came."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import Notes, bundled_pairs, some_text
from foreign import OF_M2M, bart_folder, many_folder, marian_folder, names_of
from test_languages import older_mbart

import transduce
from transduce.commands.convert import convert
from transduce.errors import ModelError, SettingsError
from transduce.text.languages import Languages

transformers = pytest.importorskip("transformers", reason="Hugging Face's models are compared with transformers")
PAIRS = bundled_pairs(200)
FINE = {"steps": 3, "validate_every": 3, "device": "cpu"}


def listed(folder: Path, codes: list[str]) -> Path:
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": codes}))
    return folder


def m2m(folder: Path) -> Path:
    return many_folder(folder, "m2m_100", codes=OF_M2M)


def nllb(folder: Path) -> Path:
    return many_folder(folder, "nllb")


def mbart50(folder: Path) -> Path:
    return many_folder(folder, "mbart")


@pytest.mark.parametrize(
    ("make", "languages"),
    [
        (m2m, ("de", "en")),
        (nllb, ("deu_Latn", "eng_Latn")),
        (mbart50, ("de_DE", "en_XX")),
        (older_mbart, ("de_DE", None)),
        (bart_folder, (None, None)),
    ],
)
def test_it_goes_back_as_it_came(tmp_path: Path, make: Callable[[Path], Path], languages: Languages) -> None:
    """Hugging Face loads it with its tokenizer and writes our texts; and what comes in again is the same file."""
    folder, text = make(tmp_path / "theirs"), some_text(tmp_path)
    spoken = {"source_language": languages[0], "target_language": languages[1]}
    convert(folder, tmp_path / "ours", **spoken)
    convert(tmp_path / "ours", tmp_path / "back", to="huggingface", check=True, text=text, **spoken)
    convert(tmp_path / "back", tmp_path / "again", **spoken)
    for path in (tmp_path / "ours").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("make", "languages"),
    [
        (m2m, ("de", "en")),
        (nllb, ("deu_Latn", "eng_Latn")),
        (mbart50, ("de_DE", "en_XX")),
        (older_mbart, ("de_DE", None)),
        (bart_folder, (None, None)),
        (marian_folder, (None, None)),
    ],
)
def test_a_minimum_counts_what_a_translation_begins_with(
    tmp_path: Path, make: Callable[[Path], Path], languages: Languages
) -> None:
    """Of a model that ends as soon as it may: as long as `generate` has it, and it goes back as it came."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(make(tmp_path / "theirs")).eval()
    end = model.config.eos_token_id
    decoder = model.model.decoder
    norm = getattr(decoder, "layer_norm", None) or decoder.layers[-1].final_layer_norm
    with torch.no_grad():
        norm.bias.copy_(100 * decoder.embed_tokens.weight[end])
    first = 0 if make is bart_folder else None
    if languages[1] is not None:
        first = names_of(tmp_path / "theirs")[1][f"<language {languages[1]}>"]
    spoken = {"source_language": languages[0], "target_language": languages[1]}
    for least in (2, 7):
        model.generation_config.min_length = least
        model.save_pretrained(tmp_path / "theirs")
        (written,) = model.generate(
            input_ids=torch.tensor([[5, 6, 7, end]]), num_beams=1, max_new_tokens=20, forced_bos_token_id=first
        ).tolist()
        convert(tmp_path / "theirs", tmp_path / f"ours{least}", **spoken)
        ours = transduce.load(tmp_path / f"ours{least}", "cpu", languages=languages, beam=1)
        found = ours.translate(PAIRS[0][0]).candidates[0].tokens
        assert len(found) == len(written) - 2 - (first is not None)  # the first, the mark, and the end
    convert(tmp_path / "ours7", tmp_path / "back", to="huggingface", text=some_text(tmp_path), **spoken)
    assert json.loads((tmp_path / "back" / "generation_config.json").read_text())["min_length"] == 7


def test_languages_must_be_told_to_be_compared(tmp_path: Path) -> None:
    convert(nllb(tmp_path / "theirs"), tmp_path / "ours")
    notes = Notes()
    assert convert(tmp_path / "ours", tmp_path / "back", to="huggingface", report=notes) is None
    assert any("needs: --source-language and --target-language" in told for told in notes.said)
    with pytest.raises(SettingsError, match="which needs: --source-language and --target-language"):
        convert(tmp_path / "ours", tmp_path / "other", to="ctranslate2", check=True)
    assert not (tmp_path / "other").exists()
    with pytest.raises(ModelError, match="knows many languages by their marks, which cannot go out to onnx"):
        convert(tmp_path / "ours", tmp_path / "other", to="onnx")


@pytest.mark.parametrize(
    ("make", "languages"),
    [
        (m2m, ("de", "en")),
        (nllb, ("deu_Latn", "eng_Latn")),
        (mbart50, ("de_DE", "en_XX")),
        (older_mbart, ("de_DE", None)),
    ],
)
def test_it_goes_to_ctranslate2_and_comes_in_again(
    tmp_path: Path, make: Callable[[Path], Path], languages: Languages
) -> None:
    pytest.importorskip("ctranslate2")
    text = some_text(tmp_path)
    spoken = {"source_language": languages[0], "target_language": languages[1]}
    convert(make(tmp_path / "theirs"), tmp_path / "ours", **spoken)
    notes = Notes()
    table = convert(tmp_path / "ours", tmp_path / "out", to="ctranslate2", text=text, report=notes, **spoken)
    told = {row[0]: row[1] for row in table.rows}  # type: ignore[union-attr]
    assert float(told["log-probabilities differ by at most"]) < 1e-5  # type: ignore[arg-type]
    assert told["equal greedy translations"] == told["equal translations with beam 4"] == "100.0%"
    assert any("begin every source with the mark of its own" in told for told in notes.said)
    if languages[1] is None:
        return
    convert(tmp_path / "out", tmp_path / "again", **spoken)
    models = [transduce.load(tmp_path / name, "cpu") for name in ("ours", "again")]
    torch.testing.assert_close(models[0].model.state_dict(), models[1].model.state_dict(), atol=1e-5, rtol=0)
    lines = [pair[0] for pair in PAIRS[:6]]
    one, two = (
        [found.text for found in model.with_search(beam=1, forced_end=False).translate(lines)] for model in models
    )
    assert one == two


def test_what_was_trained_further_goes_back_where_it_can(tmp_path: Path) -> None:
    """M2M100 has no bias of the projection and begins with </s>: only training that keeps both can go back."""
    spoken = {"source_language": "deu_Latn", "target_language": "eng_Latn"}
    convert(nllb(tmp_path / "theirs"), tmp_path / "ours", **spoken)
    text = some_text(tmp_path)
    begun = {**FINE, "start": str(tmp_path / "ours")}
    transduce.train(tmp_path / "whole", PAIRS[:100], report=Notes(), training={**begun, "freeze": "projection"})
    with pytest.raises(ModelError, match="training has parted these here"):
        convert(tmp_path / "whole", tmp_path / "back", to="huggingface", **spoken)
    for name, how in {"usual": {}, "adapted": {"lora_rank": 2}}.items():
        transduce.train(tmp_path / name, PAIRS[:100], report=(notes := Notes()), training={**begun, **how})
        assert any("training.freeze=source,projection" in told for told in notes.said) == (name == "usual")
        convert(tmp_path / name, tmp_path / f"{name}-back", to="huggingface", check=True, text=text, **spoken)


@pytest.mark.parametrize(("make", "languages"), [(bart_folder, (None, None)), (mbart50, ("de_DE", "en_XX"))])
def test_what_was_trained_begins_with_a_token_of_its_own(
    tmp_path: Path, make: Callable[[Path], Path], languages: Languages
) -> None:
    spoken = {"source_language": languages[0], "target_language": languages[1]}
    convert(make(tmp_path / "theirs"), tmp_path / "ours", **spoken)
    text = some_text(tmp_path)
    training = {**FINE, "start": str(tmp_path / "ours")}
    transduce.train(tmp_path / "run", PAIRS[:100], report=Notes(), training=training)
    convert(tmp_path / "run", tmp_path / "back", to="huggingface", check=True, text=text, **spoken)
    told = json.loads((tmp_path / "back" / "config.json").read_text())
    assert told["decoder_start_token_id"] == told["vocab_size"] - 1
    convert(tmp_path / "back", tmp_path / "again", **spoken)
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "again"))
    assert one == two


def test_other_languages_have_no_tokenizer_there(tmp_path: Path) -> None:
    """NLLB's takes any, but finds a name such as `de` within words."""
    for kind, codes in (("mbart", ["de_DE", "en_XX"]), ("m2m_100", ["__de__", "__en__"])):
        convert(listed(many_folder(tmp_path / kind, kind), codes), tmp_path / f"{kind}-ours")
        with pytest.raises(ModelError, match="where no tokenizer knows its 2 languages"):
            convert(tmp_path / f"{kind}-ours", tmp_path / "back", to="huggingface")
