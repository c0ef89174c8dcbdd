"""Looking inside: the arrays are what the model computed, and the page shows them, whatever the sentence says."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import bundled_pairs, quick_settings

import transduce
from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import END
from transduce.decoding.alignment import Aligner
from transduce.errors import DataError
from transduce.inspect import page, plots
from transduce.inspect.kinds import ATTENTION_KINDS
from transduce.inspect.trace import BEST, Node, Trace
from transduce.inspect.words import joined, merge, words
from transduce.model import Model
from transduce.models.kinds import new_model
from transduce.settings.sections import Settings
from transduce.text.tokenizers import Tokenizers

SENTENCE = "ich möchte ein bier trinken"
NASTY = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1"> @FACTS@ &amp; <!-- $x$ \\'
SOURCE = ("▁ich", "▁möch", "te", "▁bier", ".", "</s>")
TARGET = ("▁i", "▁want", "▁be", "er", "</s>")


def _new(settings: Settings, tokenizers: Tokenizers) -> Seq2Seq:
    return new_model(settings.model, tokenizers.source.size, tokenizers.target.size).eval()


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Model:
    return transduce.load(model_folder)


@pytest.fixture(scope="module")
def seen(model: Model) -> Trace:
    return model.trace(SENTENCE)


def untrained(model: Model, **changes: object) -> Model:
    """Another model for the same tokenizers, random weights."""
    settings = quick_settings(model=changes, search={"beam": 3, "extra": 4})
    torch.manual_seed(0)
    return Model(_new(settings, model.tokenizers), model.tokenizers, settings)


def softmax(seed: int, *shape: int) -> np.ndarray:
    x = np.exp(np.random.default_rng(seed).normal(0, 2, shape))
    return (x / x.sum(-1, keepdims=True)).astype(np.float32)


def by_hand(
    source: tuple[str, ...] = SOURCE, target: tuple[str, ...] = TARGET, layers: int = 2, heads: int = 4
) -> Trace:
    """A trace of random weights; the decoder has a layer more than the encoder."""
    S, T = len(source), len(target)  # noqa: N806
    others = tuple((f"other{i}", 0.1 / 2**i) for i in range(1, BEST))
    return Trace(
        text="".join(source[:-1]).replace("▁", " ").strip(),
        translation="".join(target[:-1]).replace("▁", " ").strip(),
        source=source,
        target=target,
        read=("<s>", *target[:-1]),
        encoder=softmax(1, layers, heads, S, S),
        decoder=softmax(2, layers + 1, heads, T, T),
        cross=softmax(3, layers + 1, heads, T, S),
        next_tokens=tuple(((token, 0.8), *others) for token in target),
        probabilities=(0.8,) * T,
        beams=(*(Node(token, i - 1, -0.1 * i, True) for i, token in enumerate(target)), Node("▁you", -1, -3.0, False)),
    )


def facts_of(text: str) -> dict:
    """What the script of a page reads."""
    return json.loads(re.findall(r'<script type="application/json" id="facts">(.*?)</script>', text, re.DOTALL)[0])


# ---- the arrays


@pytest.mark.parametrize("kind", ATTENTION_KINDS)
def test_weights_have_their_shapes_and_rows_sum_to_one(model: Model, kind: str) -> None:
    deep = untrained(model, layers=2, decoder_layers=3, d_model=24, heads=3)
    seen = deep.trace(SENTENCE, "i want to drink")
    queries, keys = seen.axes(kind)
    assert len(seen.source) != len(seen.target)
    assert seen.weights(kind).shape == (2 if kind == "encoder" else 3, 3, len(queries), len(keys))
    assert seen.weights(kind).sum(-1) == pytest.approx(1.0, abs=1e-5)


def test_names_are_those_of_the_tokenizer(model: Model, seen: Trace) -> None:
    tokenizer = model.tokenizers.source
    assert seen.source == (*tokenizer.pieces(tokenizer.encode([SENTENCE])[0]), "</s>")
    assert seen.read == ("<s>", *seen.target[:-1])
    assert seen.target[-1] == "</s>"
    assert seen.kinds() == ["encoder", "decoder", "cross"]


@pytest.mark.parametrize("beam", [1, 3])
def test_what_is_traced_is_what_is_translated(model: Model, beam: int) -> None:
    other = model.with_search(beam=beam)
    for text in (SENTENCE, "das ist gut", "wir schlafen"):
        assert other.trace(text).translation == other.translate(text).text


@pytest.mark.parametrize(
    "how",
    [
        {"no_repeat": 1}, {"repetition_penalty": 3.0}, {"coverage_penalty": 1.0}, {"min_length": 9}, {"groups": 2},
        {"method": "sample", "seed": 4}, {"mbr": "chrf"},
    ],
    ids=str,
)  # fmt: skip
def test_a_trace_searches_as_it_is_told(model: Model, how: dict) -> None:
    other = model.with_search(beam=4, **how)
    for text in (SENTENCE, "DAS IST GUT", "ein bier ein bier"):
        assert other.trace(text).translation == other.translate(text).text


def test_a_decoder_never_looks_ahead(seen: Trace) -> None:
    assert not np.triu(seen.weights("decoder"), 1).any()


def test_one_head_and_the_mean_of_all(seen: Trace) -> None:
    found = seen.weights("cross")
    assert (seen.head("cross", 1, 2) == found[0, 1]).all()
    assert seen.head("cross", None, 2) == pytest.approx(found[:, 1].mean(0))
    assert seen.head("cross", None, None) == pytest.approx(found.mean((0, 1)))


def test_entropy_is_that_of_a_loop() -> None:
    trace = by_hand()
    found = trace.entropy("cross")
    for layer, heads in enumerate(trace.weights("cross")):
        for head, rows in enumerate(heads):
            bits = [-sum(float(p) * math.log2(p) for p in row) for row in rows]
            assert found[layer, head] == pytest.approx(sum(bits) / len(bits), abs=1e-4)
    sharp = replace(trace, cross=np.eye(6, dtype=np.float32)[None, None, :5])
    assert sharp.entropy("cross") == pytest.approx(0.0, abs=1e-6)


def test_a_target_can_be_given(model: Model) -> None:
    target = "i want to sleep"
    seen = model.trace(SENTENCE, target)
    (scored,) = model.score([(SENTENCE, target)])
    assert seen.translation == target
    assert seen.beams == ()
    assert len(seen.target) == scored.tokens
    assert sum(math.log(p) for p in seen.probabilities) == pytest.approx(scored.log_probability, abs=1e-3)
    assert model.trace(SENTENCE, "").target == ("</s>",)


def test_the_next_tokens_are_the_most_probable(seen: Trace) -> None:
    assert len(seen.next_tokens) == len(seen.target)
    for token, probability, best in zip(seen.target, seen.probabilities, seen.next_tokens, strict=True):
        numbers = [p for _, p in best]
        assert len(best) == BEST
        assert numbers == sorted(numbers, reverse=True)
        assert dict(best).get(token, probability) == pytest.approx(probability)


# ---- words


@pytest.mark.parametrize(
    ("tokens", "whole"),
    [
        (SOURCE, ("ich", "möchte", "bier", ".", "</s>")),
        (("<s>", "▁wie", "▁geht", "'", "s", "?"), ("<s>", "wie", "geht", "'", "s", "?")),
        (("▁", "😀", "▁", "ab", "c", "▁", "<unk>", "</s>"), ("😀", "abc", "<unk>", "</s>")),
        (("i", "c", "h", "▁", "b", "i", "n", "</s>"), ("ich", "bin", "</s>")),
        (("▁(", "a", ")", "b"), ("(", "a", ")", "b")),
        (("</s>",), ("</s>",)),
    ],
)
def test_words_of_tokens(tokens: tuple[str, ...], whole: tuple[str, ...]) -> None:
    assert joined(tokens, words(tokens)) == whole


def test_merging_is_that_of_a_loop() -> None:
    queries, keys = [0, 1, 1, 1, 2], [0, 0, 1, 2, 2, 2, 3]
    maps = softmax(0, 2, 3, 5, 7)
    found = merge(maps, queries, keys)
    assert found.shape == (2, 3, 3, 4)
    assert found.sum(-1) == pytest.approx(1.0, abs=1e-5)
    for q in range(3):
        for k in range(4):
            rows = [t for t in range(5) if queries[t] == q]
            total = sum(maps[:, :, t, s] for t in rows for s in range(7) if keys[s] == k)
            assert found[:, :, q, k] == pytest.approx(total / len(rows), abs=1e-6)


def test_a_merged_trace_is_whole() -> None:
    trace, whole = by_hand(), by_hand().merged()
    assert whole.source == ("ich", "möchte", "bier", ".", "</s>")
    assert whole.target == ("i", "want", "beer", "</s>")
    assert whole.read == ("<s>", "i", "want", "beer")
    for kind in ATTENTION_KINDS:
        queries, keys = whole.axes(kind)
        assert whole.weights(kind).shape == (*trace.weights(kind).shape[:2], len(queries), len(keys))
        assert whole.weights(kind).sum(-1) == pytest.approx(1.0, abs=1e-5)
    assert whole.next_tokens == tuple(trace.next_tokens[i] for i in (0, 1, 2, 4))
    assert len(whole.probabilities) == 4


def test_alignment_pairs_words() -> None:
    cross = np.zeros((1, 1, 5, 6), np.float32)
    for query, key in enumerate((0, 2, 3, 3, 5)):
        cross[0, 0, query, key] = 0.4
    cross[..., 5] += 0.6  # the end, where a head rests, is no word
    found = replace(by_hand(), cross=cross).alignment()
    assert [(target, source) for target, source, _ in found] == [("i", "ich"), ("want", "möchte"), ("beer", "bier")]
    assert [weight for *_, weight in found] == pytest.approx([0.4] * 3)


def test_alignment_is_that_of_the_head_that_links_words_best() -> None:
    """Of two heads, one looks when a token is written, the other when it has just been read."""
    trace = by_hand(("▁das", "▁bier", "</s>"), ("▁the", "▁beer", "</s>"))
    writes = [[0.2, 0.8, 0.0], [0.9, 0.1, 0.0], [0.0, 0.0, 1.0]]
    reads = [[0.0, 0.0, 1.0], [0.7, 0.3, 0.0], [0.1, 0.9, 0.0]]
    trace = replace(trace, cross=np.array([[writes, reads]], np.float32))
    for told, expected in (("1.1 writes", ["bier", "das"]), ("1.2 reads", ["das", "bier"])):
        found = replace(trace, aligner=Aligner.parse(told)).alignment()
        assert [source for _, source, _ in found] == expected
        assert [pair[:2] for pair in replace(trace, aligner=Aligner.parse(told)).merged().alignment()] == [
            pair[:2] for pair in found
        ]


def test_whole_words_are_linked_as_their_tokens_were() -> None:
    trace = by_hand(("▁das", "▁bier", "</s>"), ("▁the", "▁be", "er", "</s>"))
    reads = [[0.0, 0.0, 1.0], [0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.1, 0.9, 0.0]]
    trace = replace(trace, cross=np.array([[reads]], np.float32), aligner=Aligner.parse("1.1 reads"))
    assert [pair[:2] for pair in trace.alignment()] == [("the", "das"), ("beer", "bier")]
    assert trace.merged().alignment() == trace.alignment()


def test_unknown_words_are_aligned_too() -> None:
    trace = by_hand(("<unk>", "▁bier", "</s>"), ("▁quark", "<unk>", "</s>"))
    cross = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]], np.float32)
    found = replace(trace, cross=cross[None, None]).alignment()
    assert [pair[:2] for pair in found] == [("quark", "<unk>"), ("<unk>", "bier")]


# ---- other models


def test_a_recurrent_model_has_one_map(model: Model) -> None:
    seen = untrained(model, kind="rnn", bidirectional=False).trace(SENTENCE)
    assert seen.kinds() == ["cross"]
    assert seen.weights("cross").shape == (1, 1, len(seen.target), len(seen.source))
    assert seen.weights("cross").sum(-1) == pytest.approx(1.0, abs=1e-5)
    assert len(seen.alignment()) == len(seen.merged().target) - 1
    assert list(facts_of(page.render(seen))["maps"]) == ["cross"]
    assert seen.to_bertviz().keys() == {"cross_attention", "encoder_tokens", "decoder_tokens"}


def test_a_model_without_attention_has_no_maps(model: Model, tmp_path: Path) -> None:
    seen = untrained(model, kind="rnn", attention=False).trace(SENTENCE)
    assert seen.kinds() == []
    assert seen.alignment() == []
    assert seen.merged().cross is None
    assert facts_of(seen.save(tmp_path / "x.html").read_text(encoding="utf-8"))["maps"] == {}
    with pytest.raises(DataError, match="this model has no cross attention; there is: none"):
        seen.save(tmp_path / "x.png")


def test_a_classifier_has_its_encoder_only() -> None:
    text = {"tokenizer": "words", "target_tokenizer": "labels", "joint": False}
    settings = quick_settings(model={"kind": "classifier", "tie_output": False, "tie_source": False}, text=text)
    tokenizers = Tokenizers.train([("ich bin froh", "good"), ("ich bin müde", "bad")], settings.text)
    seen = Model(_new(settings, tokenizers), tokenizers, settings).trace("ich bin müde", "good")
    assert seen.kinds() == list(facts_of(page.render(seen))["maps"]) == ["encoder"]
    assert seen.weights("encoder").shape == (1, 2, 4, 4)
    assert seen.target == ("▁good", "</s>")
    assert seen.alignment() == []


# ---- beams


def path_of(seen: Trace) -> list[str]:
    """The tokens that are kept, each the child of the one before."""
    kept = [i for i, node in enumerate(seen.beams) if node.kept]
    assert [seen.beams[i].parent for i in kept] == [-1, *kept[:-1]]
    return [seen.beams[i].token for i in kept]


def test_the_beams_are_a_tree_that_holds_the_translation(model: Model) -> None:
    text = next(text for text, _ in bundled_pairs(50, seed=5) if model.translate(text).status == "ok")
    seen = model.trace(text)
    assert path_of(seen) == list(seen.target)
    assert all(node.parent < place for place, node in enumerate(seen.beams))
    assert len(set(seen.beams)) > len(seen.target)
    best = model.translate(text).candidates[0]
    ends = [node.score for node in seen.beams if node.token == "</s>"]
    assert max(ends) == pytest.approx(best.score, abs=1e-4)
    assert all(node.token != "</s>" for node in (seen.beams[n.parent] for n in seen.beams if n.parent >= 0))


def test_one_beam_is_one_path(model: Model) -> None:
    seen = model.with_search(beam=1).trace(SENTENCE)
    assert [node.token for node in seen.beams] == path_of(seen)
    assert tuple(path_of(seen)) in (seen.target, seen.target[:-1])


def test_what_ran_into_its_limit_has_no_end(model: Model) -> None:
    """A model that cannot end; the tree does not say it did."""
    endless = untrained(model, output_bias=True)
    torch.nn.init.constant_(endless.model.projection.bias[END], -99.0)
    assert endless.translate(SENTENCE).status == "length"
    seen = endless.trace(SENTENCE)
    assert path_of(seen) == list(seen.target[:-1])


# ---- what cannot be


def test_complaints_about_heads(seen: Trace) -> None:
    with pytest.raises(DataError, match="this model has no self attention; there is: encoder, decoder, cross"):
        seen.weights("self")
    with pytest.raises(DataError, match="this model has no self attention"):
        seen.axes("self")
    for layer in (0, 2, -1):
        complaint = f"layer {layer} is not there: encoder-decoder attention has layers 1 to 1"
        with pytest.raises(DataError, match=complaint):
            seen.head("cross", layer, None)
    with pytest.raises(DataError, match="head 3 is not there: encoder self-attention has heads 1 to 2"):
        seen.head("encoder", None, 3)


def test_complaints_about_sentences(model: Model) -> None:
    for empty in ("", " \t", "\u200b"):
        with pytest.raises(DataError, match="there is nothing to look at: the sentence is empty"):
            model.trace(empty)
    with pytest.raises(DataError, match=r"the sentence has \d+ tokens; this model reads at most 63"):
        model.trace("ich " * 64)
    with pytest.raises(DataError, match=r"the target has \d+ tokens; this model reads at most 63"):
        model.trace(SENTENCE, "i " * 64)


def test_a_sentence_of_the_full_length(model: Model) -> None:
    longest = max((" ".join(["ich"] * n) for n in range(1, 64)), key=lambda text: fits(model, text))
    assert len(model.trace(longest).source) == 64


def fits(model: Model, text: str) -> int:
    count = len(model.tokenizers.source.encode([text])[0])
    return count if count <= 63 else 0


# ---- files


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_pictures(tmp_path: Path, ending: str, begins: bytes) -> None:
    trace = by_hand(source=("▁$x^{", "▁<b>", "▁\\frac$", "</s>"))  # no formulas
    written = trace.save(tmp_path / f"deep/head.{ending}", "cross", layer=2, head=3)
    assert written.read_bytes().startswith(begins)
    assert trace.merged().save(tmp_path / f"words.{ending}").stat().st_size > 1000


def test_chinese_is_drawn_without_warnings(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    by_hand(source=("▁我", "▁很", "▁累", "</s>")).save(tmp_path / "head.png", "cross", layer=2, head=3)
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]
    made = plots.figure(3, 3, "\U0010fffd")  # which no font has
    plots.save(made, tmp_path / "boxes.png")
    assert any("no font of this machine has" in text.get_text() for text in made.texts)
    plain = plots.figure(3, 3, "words")
    plots.save(plain, tmp_path / "plain.png")
    assert not any("no font" in text.get_text() for text in plain.texts)


def test_an_unknown_ending_complains(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"cannot draw .*x\.docx: end its name in \.html for everything, in \.png, \.svg or \.pdf"
    ):
        by_hand().save(tmp_path / "x.docx")
    assert list(tmp_path.iterdir()) == []


def test_for_bertviz() -> None:
    found = by_hand().to_bertviz()
    assert found["encoder_tokens"] == list(SOURCE)
    assert found["decoder_tokens"] == list(by_hand().read)
    shapes = {kind: [tuple(layer.shape) for layer in found[f"{kind}_attention"]] for kind in ATTENTION_KINDS}
    assert shapes == {"encoder": [(1, 4, 6, 6)] * 2, "decoder": [(1, 4, 5, 5)] * 3, "cross": [(1, 4, 5, 6)] * 3}
    assert all(isinstance(layer, torch.Tensor) for layer in found["cross_attention"])


def test_a_notebook_gets_the_page_escaped() -> None:
    trace = replace(by_hand(), text=NASTY)
    inside = re.fullmatch(r'<iframe srcdoc="([^"<>]*)" style="[^"]*" title="Attention"></iframe>', trace._repr_html_())
    assert inside
    assert html.unescape(inside[1]) == page.render(trace)


# ---- the page, as text


def big() -> Trace:
    tokens = [f"▁wort{i}" if i % 3 else f"teil{i}" for i in range(99)]
    return by_hand((*tokens, "</s>"), (*reversed(tokens), "</s>"), layers=6, heads=8)


def test_the_page_holds_the_weights() -> None:
    trace = by_hand()
    found = facts_of(page.render(trace))
    assert list(found["maps"]) == list(ATTENTION_KINDS)
    assert found["alignment"] == [[t, s, pytest.approx(w, abs=1e-3)] for t, s, w in trace.alignment()]
    assert [step["token"] for step in found["steps"]] == list(TARGET)
    assert found["maps"]["cross"]["entropy"] == pytest.approx(trace.entropy("cross"), abs=1e-3)


def test_a_page_of_a_hundred_tokens_stays_small(tmp_path: Path) -> None:
    trace = replace(big(), decoder=softmax(5, 6, 8, 100, 100), cross=softmax(6, 6, 8, 100, 100))
    assert trace.save(tmp_path / "big.html").stat().st_size < 3_000_000


def test_the_page_loads_nothing() -> None:
    text = page.render(by_hand())
    assert set(re.findall(r"https?://[^\s\"'<>)]*", text)) <= {"http://www.w3.org/2000/svg"}  # the name of a language
    assert not re.search(r"<(link|img|iframe|object|embed|base)\b|\bsrc=|\bhref=|@import|\burl\(|\bimport\b", text)
    assert "default-src 'none'" in text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|fetch\(", text)


HOSTILE = [NASTY, "@TITLE@ @POLICY@ @STYLE@", "@FACTS@", "&amp; &#64; <b>", '"\\u003c" \\', "</SCRIPT ><!--", "\u2028"]


@pytest.mark.parametrize("text", [*HOSTILE, "@SCRIPT@"])
def test_any_sentence_survives(text: str) -> None:
    trace = by_hand((text, "▁bier", "</s>"), (text, "</s>"))
    rendered = page.render(replace(trace, text=text, translation=text))
    found = facts_of(rendered)
    assert found["text"] == found["translation"] == text
    assert found["maps"]["cross"]["keys"] == [text, "▁bier", "</s>"]
    assert found["steps"][0]["next"][0][0] == text
    assert html.unescape(re.findall(r"<title>Attention: (.*?)</title>", rendered, re.DOTALL)[0]) == text[:80]
    assert len(re.findall("<script", rendered)) == len(re.findall("</script>", rendered)) == 2


# ---- the page, in a browser


@pytest.fixture
def show(browser, tmp_path: Path) -> Iterator[Callable]:
    """Opens a trace as a file. In the end nothing may have gone wrong, or been asked for."""
    problems: list[str] = []
    asked: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 950}, color_scheme="light")
    context.set_default_timeout(20_000)

    def opened(trace: Trace):
        written = trace.save(tmp_path / "page.html")
        shown = context.new_page()
        shown.on("console", lambda message: problems.append(message.text))
        shown.on("pageerror", lambda error: problems.append(str(error)))
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(written.as_uri())
        return shown

    yield opened
    context.close()
    assert problems == []
    assert all(url.startswith("file://") for url in asked)


def head_button(shown, layer: int, head: int):
    """Counted from 1; 0 is the mean."""
    return shown.locator(f"#overview [data-layer='{layer - 1}'][data-head='{head - 1}']")


def told(shown) -> tuple[str, float]:
    names, number = shown.locator("#cell[aria-live]").inner_text().rsplit(": ", 1)
    return names, float(number)


def title(shown) -> str:
    return shown.locator("#head-title").inner_text()


def open_numbers(shown) -> None:
    shown.locator("summary").click()
    shown.locator("#numbers table").wait_for()


def test_the_page_opens_alone(show) -> None:
    shown = show(by_hand())
    assert shown.title() == "Attention: ich möchte bier."
    assert shown.locator(".pair").inner_text().startswith("ich möchte bier. →")
    assert title(shown) == "Encoder-decoder attention: mean of all layers, mean of all heads"
    assert shown.locator("#overview button").count() == 4 * 5
    assert shown.locator("#alignment li").count() == 3
    assert shown.locator("#steps li.step .bar.written").all_inner_texts()[0].startswith("·i")
    assert shown.locator("#beams text.kept").count() == len(TARGET)


def test_every_kind_has_its_own_layers(show) -> None:
    shown = show(by_hand())
    for key, kind, layers in (("1", "Encoder self", 2), ("2", "Decoder self", 3), ("3", "Encoder-decoder", 3)):
        shown.keyboard.press(key)
        assert title(shown).startswith(f"{kind}")
        assert shown.locator("#overview button").count() == (layers + 1) * 5
        assert shown.locator("#kinds [aria-checked=true]").inner_text().endswith(key)


def test_a_head_is_chosen_by_click_and_by_arrows(show) -> None:
    shown = show(by_hand())
    head_button(shown, 2, 3).click()
    assert title(shown).endswith("layer 2, head 3")
    assert head_button(shown, 2, 3).get_attribute("aria-selected") == "true"
    for key, expected in (
        ("ArrowRight", "layer 2, head 4"),
        ("ArrowRight", "layer 2, head 4"),
        ("ArrowUp", "layer 1, head 4"),
        ("ArrowLeft", "layer 1, head 3"),
        ("ArrowUp", "mean of all layers, head 3"),
        ("ArrowUp", "mean of all layers, head 3"),
    ):
        shown.keyboard.press(key)
        assert title(shown).endswith(expected)
    assert shown.locator("#overview [tabindex='0']").count() == 1


def test_the_map_tells_its_numbers_by_keyboard(show) -> None:
    trace = by_hand()
    shown = show(trace)
    head_button(shown, 3, 2).click()
    weights = trace.head("cross", 3, 2)
    shown.locator("#large").focus()
    assert told(shown) == ("·i looks at ·ich", pytest.approx(weights[0, 0], abs=1e-3))
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowUp"):
        shown.keyboard.press(key)
    assert told(shown) == ("·i looks at te", pytest.approx(weights[0, 2], abs=1e-3))


def test_the_map_tells_its_numbers_by_mouse(show) -> None:
    trace = by_hand()
    shown = show(trace)
    left, top, size = shown.evaluate("[now.left, now.top, now.size]")
    shown.locator("#large").hover(position={"x": left + 3.5 * size, "y": top + 2.5 * size})
    assert told(shown) == ("·be looks at ·bier", pytest.approx(trace.head("cross", None, None)[2, 3], abs=1e-3))
    head_button(shown, 1, 1).click()  # the number is that of the head on show
    assert told(shown) == ("·be looks at ·bier", pytest.approx(trace.head("cross", 1, 1)[2, 3], abs=1e-3))
    shown.keyboard.press("1")
    assert shown.locator("#cell").inner_text().startswith("Point at a cell")


@pytest.mark.parametrize("switch", ["click", "key"])
def test_whole_words(show, switch: str) -> None:
    trace = by_hand()
    shown = show(trace)
    head_button(shown, 1, 4).click()
    if switch == "click":
        shown.get_by_label("whole words").check()
    else:
        shown.keyboard.press("w")
    whole = trace.merged()
    assert shown.locator("#lines [role=option]").all_text_contents() == list(whole.target)
    assert title(shown).endswith("layer 1, head 4")
    open_numbers(shown)
    rows = [[float(x) for x in row.locator("td").all_inner_texts()] for row in shown.locator("#numbers tr").all()[1:]]
    assert np.array(rows) == pytest.approx(whole.head("cross", 1, 4), abs=2e-3)
    bits = float(head_button(shown, 1, 4).inner_text())
    assert bits == pytest.approx(whole.entropy("cross")[0, 3], abs=0.01)
    shown.keyboard.press("w")
    assert shown.locator("#numbers tr").count() == len(TARGET) + 1


def test_a_token_shows_its_lines_alone(show) -> None:
    trace = by_hand()
    shown = show(trace)
    head_button(shown, 1, 1).click()
    weights = trace.head("cross", 1, 1)
    lines = shown.locator("#lines line")
    assert lines.count() == (weights >= 0.04).sum()
    shown.locator("#lines [role=option]").nth(2).hover()
    assert lines.count() == (weights[2] >= 0.04).sum()
    names, number = told(shown)
    assert names == f"·be looks at {SOURCE[weights[2].argmax()].replace('▁', '·')}"
    assert number == pytest.approx(weights[2].max(), abs=1e-3)
    shown.mouse.move(0, 0)
    assert lines.count() == (weights >= 0.04).sum()


def test_focus_stays_where_it_was(show) -> None:
    shown = show(by_hand())
    focused = "document.activeElement.closest('#kinds, #overview, #lines, #large')?.id"
    for start in ("#kinds [tabindex='0']", "#overview [tabindex='0']", "#lines [tabindex='0']", "#large"):
        shown.locator(start).focus()
        for key in ("w", "2", "t", "ArrowDown", "w", "3"):
            shown.keyboard.press(key)
            assert f"#{shown.evaluate(focused)}" == start.split(" ")[0], key


def test_the_tab_key_reaches_everything_once(show) -> None:
    shown = show(by_hand())
    reached = []
    for _ in range(9):
        shown.keyboard.press("Tab")
        reached.append(shown.evaluate("(e => e.id || e.getAttribute('role') || e.tagName)(document.activeElement)"))
    assert reached == ["radio", "words", "theme", "gridcell", "large", "option", "SUMMARY", "steps", "beams"]


def test_roles_have_the_owners_they_need(show) -> None:
    shown = show(by_hand())
    for role, owner in (("radio", "radiogroup"), ("gridcell", "row"), ("row", "grid"), ("option", "listbox")):
        found = shown.locator(f"[role={role}]")
        assert found.count() == shown.locator(f"[role={owner}] > [role={role}]").count() > 0
    assert shown.get_by_role("grid", name="Layers and heads").count() == 1
    assert shown.get_by_role("gridcell", name=re.compile("^layer 1, head 2, entropy .* bits$")).count() == 1
    assert shown.get_by_role("checkbox", name="whole words").count() == 1


def test_dark_and_light_differ(show) -> None:
    shown = show(by_hand())
    paper = "getComputedStyle(document.body).backgroundColor"
    pixels = "document.getElementById('large').toDataURL()"
    light, map_in_light = shown.evaluate(paper), shown.evaluate(pixels)
    shown.keyboard.press("t")
    assert shown.evaluate(paper) != light
    assert shown.evaluate(pixels) != map_in_light
    shown.locator("#theme").click()
    assert (shown.evaluate(paper), shown.evaluate(pixels)) == (light, map_in_light)
    shown.locator("#theme").click()  # chosen by hand: what the system prefers no longer matters
    shown.emulate_media(color_scheme="dark")
    shown.locator("#theme").click()
    assert shown.evaluate(paper) == light


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read(show, theme: str) -> None:
    """WCAG's contrast: 4.5 to 1 at least."""
    shown = show(by_hand())
    shown.emulate_media(color_scheme=theme)
    for name in ("h1", ".hint", "#overview small", "#overview .name", "[aria-checked=true]", "#kinds button", "kbd"):
        colours = shown.locator(name).first.evaluate(COLOURS)
        light, dark = sorted((luminance(colour) for colour in colours), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, name


COLOURS = """element => {
  const ink = getComputedStyle(element).color;
  while (getComputedStyle(element).backgroundColor === "rgba(0, 0, 0, 0)") element = element.parentElement;
  return [ink, getComputedStyle(element).backgroundColor];
}"""


def luminance(colour: str) -> float:
    parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_sentence_runs_nothing(show) -> None:
    trace = by_hand((NASTY, "▁bier", "</s>"), (NASTY, "▁beer", "</s>"))
    shown = show(replace(trace, text=NASTY, translation=NASTY))
    for key in ("w", "1", "2", "3", "t"):
        shown.keyboard.press(key)
    open_numbers(shown)
    assert shown.evaluate("typeof window.hacked") == "undefined"
    assert shown.locator("img").count() == 0
    assert shown.locator("script").count() == 2
    assert shown.locator("#text").inner_text() == NASTY
    assert shown.locator("#numbers th").nth(1).inner_text() == NASTY
    assert shown.title() == f"Attention: {NASTY[:80]}"


@pytest.mark.parametrize("wide", ["他想要喝一杯冰的啤酒", "WWWWWWWWWWWW", "i"])
def test_names_have_the_room_they_need(show, wide: str) -> None:
    shown = show(by_hand((f"▁{wide}", "</s>"), (f"▁{wide}", "</s>")))
    box, frame = shown.locator("#lines text").first.bounding_box(), shown.locator("#lines").bounding_box()
    assert box["x"] >= frame["x"]
    first, second = (shown.locator("#beams text").nth(i).bounding_box() for i in range(2))
    assert first["x"] + first["width"] < second["x"]


@pytest.mark.parametrize("attention", [True, False])
def test_a_page_of_a_recurrent_model(show, model: Model, attention: bool) -> None:
    shown = show(untrained(model, kind="rnn", attention=attention).trace(SENTENCE))
    assert shown.locator("#overview").is_visible() == attention
    assert shown.get_by_label("whole words").is_visible() == attention
    assert shown.locator("#none").is_visible() != attention
    for key in ("1", "w", "t", "3"):
        shown.keyboard.press(key)
    assert shown.locator("#steps").is_visible()


def test_a_page_of_a_hundred_tokens_can_be_used(show) -> None:
    trace = big()
    shown = show(trace)
    head_button(shown, 7, 8).click()
    assert title(shown).endswith("layer 7, head 8")
    shown.locator("#large").focus()
    shown.keyboard.press("ArrowDown")
    assert told(shown)[1] == pytest.approx(trace.head("cross", 7, 8)[1, 0], abs=1 / 255)
    shown.keyboard.press("w")
    open_numbers(shown)
    assert shown.locator("#numbers tr").count() == len(trace.merged().target) + 1


def test_without_spaces_every_token_is_a_word() -> None:
    assert words(["▁我", "想", "喝", "啤酒", "。", "</s>"]) == [0, 1, 2, 3, 4, 5]
    assert words(["▁ein", "en", "▁Hund", ".", "</s>"]) == [0, 0, 1, 2, 3]


def test_two_models_on_one_page(model_folder: Path, tmp_path: Path) -> None:
    """Each complete in a frame of its own, under one policy that allows their script and nothing else."""
    from transduce.cli import main

    page_of = ["inspect", str(model_folder), "ein <b>bier</b>", "--against", str(model_folder), "-o"]
    assert main([*page_of, str(tmp_path / "two.html")]) == 0
    assert main([*page_of, str(tmp_path / "two.html")]) == 0  # ours is made anew
    text = (tmp_path / "two.html").read_text(encoding="utf-8")
    assert text.count("<iframe ") == 2
    assert text.count("<script") == 0  # all of it inside the frames, escaped
    assert page.policy() in text
    assert main([*page_of, str(tmp_path / "two.png")]) == 2
