"""What models make for other models: back-translation, distillation, and two of them on one page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Notes, bundled_pairs, quick_settings

import transduce
from transduce import cli
from transduce.commands.backtranslate import backtranslate
from transduce.commands.compare import _traces, compare
from transduce.commands.distill import distill
from transduce.core.loss import from_teacher
from transduce.core.special import MADE
from transduce.data.corpus import ListCorpus
from transduce.decoding.translator import Translator
from transduce.errors import DataError, SettingsError, UserError
from transduce.inspect.compare_page import Difference, compare_page
from transduce.models.load import load
from transduce.report import Table
from transduce.training.setup import fit

PAIRS = bundled_pairs(60)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned its few pairs by heart: what it writes comes to an end."""
    run = tmp_path_factory.mktemp("runs") / "teacher"
    settings = quick_settings(
        model={"dropout": 0.0}, optimizer={"rate": 5e-3}, training={"steps": 150, "validate_every": 150}
    )
    fit(run, ListCorpus(PAIRS), None, settings)
    return run


@pytest.fixture
def texts(tmp_path: Path) -> tuple[str, str]:
    """Source and target files, with an empty line among them."""
    paths = tmp_path / "a.de", tmp_path / "a.en"
    for path, side in zip(paths, (0, 1), strict=True):
        path.write_text("".join(f"{pair[side]}\n" for pair in [*PAIRS[:30], ("", ""), *PAIRS[30:]]), encoding="utf-8")
    return str(paths[0]), str(paths[1])


def test_text_is_translated_back_line_by_line(tmp_path: Path, model_folder: Path, texts: tuple[str, str]) -> None:
    """Tagged; the same for the same seed; an empty line stays one."""
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        backtranslate(model_folder, texts[0], output=tmp_path / name, seed=seed)
    one, same, other = ((tmp_path / name).read_text(encoding="utf-8") for name in ("one", "same", "other"))
    lines = one.split("\n")[:-1]
    assert len(lines) == 61
    assert lines[30] == ""
    assert all(line.startswith(f"{MADE} ") for line in lines if line)
    assert one == same != other


def test_text_that_a_model_knows_nothing_of_is_told(
    tmp_path: Path, model_folder: Path, texts: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of the wrong side, which it would translate all the same."""
    stream, notes = Translator.stream, Notes()
    unsure = lambda *given, **named: (t._replace(confidence=0.01) for t in stream(*given, **named))  # noqa: E731
    monkeypatch.setattr(Translator, "stream", unsure)
    backtranslate(model_folder, texts[1], output=tmp_path / "wrong", report=notes)
    assert any("this model knows little of text like this" in words for words in notes.said)


@contextmanager
def killed_after(lines: int) -> Iterator[None]:
    """Within, a translation is interrupted when so many lines are done."""
    stream = Translator.stream

    def killed(self: Translator, *given: Any, **named: Any) -> Iterator[Any]:
        for number, t in enumerate(stream(self, *given, **named)):
            if number == lines:
                raise KeyboardInterrupt
            yield t

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Translator, "stream", killed)
        yield


def test_back_translation_goes_on_after_a_kill(tmp_path: Path, model_folder: Path, texts: tuple[str, str]) -> None:
    """The same bytes, and what was done is not done again."""
    many = tmp_path / "many"
    many.write_text(Path(texts[0]).read_text(encoding="utf-8") * 140, encoding="utf-8")  # more than two chunks
    backtranslate(model_folder, str(many), output=tmp_path / "whole", beam=1)
    with killed_after(5000):
        backtranslate(model_folder, str(many), output=tmp_path / "again", beam=1)
    notes = Notes()
    backtranslate(model_folder, str(many), output=tmp_path / "again", beam=1, resume=True, report=notes)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()
    assert any("going on after 4,096 lines" in line for line in notes.said)


def test_what_is_left_of_other_work_is_not_gone_on_with(
    tmp_path: Path, model_folder: Path, texts: tuple[str, str]
) -> None:
    """Another tag is other work."""
    many = tmp_path / "many"
    many.write_text(Path(texts[0]).read_text(encoding="utf-8") * 140, encoding="utf-8")
    with killed_after(5000):
        backtranslate(model_folder, str(many), output=tmp_path / "out", beam=1, tag="<one>")
    with pytest.raises(DataError, match="was begun with another model, text or setting"):
        backtranslate(model_folder, str(many), output=tmp_path / "out", beam=1, tag="<two>", resume=True)


def test_a_line_that_nobody_can_look_at_has_no_picture(
    tmp_path: Path, model_folder: Path, texts: tuple[str, str]
) -> None:
    """The page is made all the same."""
    long = " ".join(["ein bier"] * 200)
    (tmp_path / "a").write_text(f"{long}\n{Path(texts[0]).read_text(encoding='utf-8')}", encoding="utf-8")
    (tmp_path / "b").write_text(f"a beer\n{Path(texts[1]).read_text(encoding='utf-8')}", encoding="utf-8")
    other, page = tmp_path / "other", tmp_path / "page.html"
    transduce.train(
        other, bundled_pairs(80, seed=9), preset="tiny", model={"d_model": 32, "heads": 2}, training={"steps": 3}
    )
    models = [transduce.load(folder, "cpu", split=False) for folder in (model_folder, other)]
    assert _traces(models, long) is None
    assert _traces(models, "") is None
    assert _traces(models, "ein bier") is not None
    compare(model_folder, other, source=str(tmp_path / "a"), reference=str(tmp_path / "b"), output=page, samples=10)
    assert page.exists()


def test_a_student_learns_from_its_teacher(tmp_path: Path, teacher: Path, texts: tuple[str, str]) -> None:
    notes = Notes()
    flags = {"training": {"steps": 3, "validate_every": 3}, "model": {"d_model": 16, "heads": 2}}
    table = distill(
        teacher, tmp_path / "student", source=texts[0], target=texts[1], valid_source=texts[0],
        valid_target=texts[1], test_source=texts[0], test_target=texts[1], beam=1, settings=flags, report=notes,
    )  # fmt: skip
    written = (tmp_path / "student.teacher").read_text(encoding="utf-8").split("\n")[:-1]
    loaded = transduce.load(teacher, "cpu", beam=1)
    assert written[:5] == [t.text for t in loaded.translate([source for source, _ in PAIRS[:5]])]
    assert written[30] == ""
    student = transduce.load(tmp_path / "student", "cpu")
    assert student.settings.model.decoder_layers == 1
    assert student.settings.model.d_model == 16
    assert table is not None
    assert [row[0] for row in table.rows] == [str(teacher), str(tmp_path / "student")]
    kept = 60 + sum(map(bool, written))  # both targets, without empty lines
    assert kept > 110
    assert any(f"{kept} of 122 pairs kept" in line for line in notes.said)
    before = (tmp_path / "student.teacher").stat().st_mtime_ns
    distill(teacher, tmp_path / "student", source=texts[0], target=texts[1], beam=1, report=notes)
    assert (tmp_path / "student.teacher").stat().st_mtime_ns == before


def test_translations_of_before_are_not_taught_as_those_of_now(
    tmp_path: Path, model_folder: Path, texts: tuple[str, str]
) -> None:
    """Of another text, teacher, beam or language, or by whomever."""
    run, flags = tmp_path / "student", {"training": {"steps": 1}, "model": {"d_model": 16, "heads": 2}}
    distill(model_folder, run, source=texts[0], target=texts[1], beam=1, settings=flags)
    other_text, other_teacher = tmp_path / "other.de", tmp_path / "other"
    other_text.write_text("ein bier\n" * 61, encoding="utf-8")
    shutil.copytree(model_folder, other_teacher)
    (other_teacher / "manifest.json").write_text((other_teacher / "manifest.json").read_text() + "\n")
    for teacher, changes, what in (
        (model_folder, {"source": str(other_text)}, "--source"),
        (other_teacher, {}, "teacher"),
        (model_folder, {"beam": 2}, "--beam"),
        (model_folder, {"target_language": "en"}, "--target-language"),
    ):
        with pytest.raises(DataError, match=f"was made with another {what}; remove .* or name another file"):
            distill(teacher, run, **{"source": texts[0], "target": texts[1], "beam": 1, **changes})
    (tmp_path / "student.teacher.json").unlink()
    with pytest.raises(DataError, match="nothing says what it was made of; remove"):
        distill(model_folder, run, source=texts[0], target=texts[1], beam=1)


def test_a_translation_without_its_end_is_not_taught(
    tmp_path: Path, teacher: Path, texts: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = transduce.load(teacher, "cpu", beam=1, max_length=12)
    monkeypatch.setattr(transduce.model.Model, "load", lambda *_, **__: loaded)
    flags = {"training": {"steps": 1}, "model": {"d_model": 16, "heads": 2}}
    distill(teacher, tmp_path / "student", source=texts[0], target=texts[1], beam=1, settings=flags)
    written = (tmp_path / "student.teacher").read_text(encoding="utf-8").split("\n")[:-1]
    answers = loaded.translate(Path(texts[0]).read_text(encoding="utf-8").split("\n")[:-1])
    assert {"length", "ok"} & {t.status for t in answers} == {"length", "ok"}
    assert written == ["" if t.status == "length" else t.text for t in answers]


def test_what_would_fail_after_the_translations_fails_before(
    tmp_path: Path, model_folder: Path, texts: tuple[str, str]
) -> None:
    for run, wrong, complaint in (
        (tmp_path / "x", {"settings": {"model": {"layer": 3}}}, "unknown setting model.layer"),
        (tmp_path / "x", {"valid_source": str(tmp_path / "none")}, "there is no file"),
        (tmp_path / "x", {"test_source": str(tmp_path / "none"), "test_target": texts[1]}, "there is no file"),
        (model_folder.parent / "." / model_folder.name, {}, "is the teacher; name another folder"),
    ):
        with pytest.raises(UserError, match=complaint):
            distill(model_folder, run, source=texts[0], output=tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()


def test_pairs_in_one_file_are_refused(tmp_path: Path, model_folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"--source a.tsv: give source and target as files of their own"):
        distill(model_folder, tmp_path / "x", source="a.tsv")


def test_a_student_learns_the_teachers_probabilities_too(
    model_folder: Path, tmp_path: Path, texts: tuple[str, str]
) -> None:
    """With the teacher's own vocabulary; another is refused."""
    given = {"training": {"steps": 4, "validate_every": 4, "device": "cpu"}, "model": {"layers": 1}}
    distill(
        model_folder, tmp_path / "student", source=texts[0], target=texts[1], beam=1, word_level=0.5,
        settings=given,
    )  # fmt: skip
    teacher, student = (load(folder) for folder in (model_folder, tmp_path / "student"))
    assert student.tokenizers.source.to_bytes() == teacher.tokenizers.source.to_bytes()
    assert student.settings.training.teacher_share == 0.5
    assert len(list(student.model.decoder)) == 1  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"--word-level 50 must be above 0 and at most 1"):
        distill(model_folder, tmp_path / "x", source=texts[0], word_level=50)
    with pytest.raises(SettingsError, match=r"was started with training.teacher_share=0.5, not 0.4"):
        distill(model_folder, tmp_path / "student", source=texts[0], target=texts[1], word_level=0.4)
    with pytest.raises(SettingsError, match="needs its vocabulary and text settings"):
        transduce.train(
            tmp_path / "other", bundled_pairs(60), preset="tiny", text={"vocabulary": 90},
            training={"teacher": str(model_folder), "steps": 1},
        )  # fmt: skip


def test_the_loss_is_a_mixture_of_the_text_and_the_teacher() -> None:
    """Its gradient is that of both, and a student that thinks as the teacher does has nothing to learn from it."""
    torch.manual_seed(0)
    logits, known = torch.randn(2, 3, 7, requires_grad=True), torch.randn(2, 3, 7)
    target = torch.tensor([[4, 5, 3], [6, 3, 0]])  # the last is padding
    from_teacher(logits, known, target).backward()
    wanted = (logits.softmax(-1) - known.softmax(-1)).detach()
    wanted[1, 2] = 0
    torch.testing.assert_close(logits.grad, wanted)
    same = known.clone().requires_grad_()
    from_teacher(same, known, target).backward()
    assert same.grad is not None
    assert same.grad.abs().max() < 1e-6


# ---- two models on one page


def test_two_models_on_one_page(tmp_path: Path, model_folder: Path, texts: tuple[str, str]) -> None:
    other = tmp_path / "other"
    transduce.train(other, PAIRS, preset="tiny", report=Notes(), training={"steps": 2}, model={"d_model": 16})
    page = tmp_path / "page.html"
    table = compare(model_folder, other, source=texts[0], reference=texts[1], output=page, samples=20, lines=6, maps=2)
    text = page.read_text(encoding="utf-8")
    assert text.count("<article>") == 6
    assert text.count("<iframe") == 4
    assert "script-src 'sha256-" in text
    assert "http" not in text.replace("http-equiv", "").split("<iframe")[0]
    assert [row[0] for row in table.rows][:3] == ["BLEU", "chrF", "TER"]
    with pytest.raises(SettingsError, match="must end in .html"):
        compare(model_folder, other, source=texts[0], reference=texts[1], output=tmp_path / "page.png")


def test_the_page_of_a_model_with_itself_says_so(
    tmp_path: Path, model_folder: Path, texts: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", str(model_folder), str(model_folder), "--source", texts[0], "--reference", texts[1]]
    assert cli.main([*words, "-o", str(tmp_path / "p.html"), "--samples", "20"]) == 0
    assert "have the same BLEU" in capsys.readouterr().out
    assert "61 of 61 translations are the same" in (tmp_path / "p.html").read_text(encoding="utf-8")


def test_text_cannot_become_markup() -> None:
    evil = "<script>alert(1)</script>"
    one = Difference(1, evil, evil, (evil, f"{evil} more"), (1.0, 2.0))
    page = compare_page((evil, "b"), Table([evil], [[evil]], [evil]), evil, [one])
    assert "<script>" not in page
    assert "<mark>more</mark>" in page
