"""Engines: the fast search gives what the plain one gives, CTranslate2 too where both have the same rules."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import bundled_pairs, small_model

import transduce
from transduce.core.choose import Draw, Groups
from transduce.core.hypotheses import Hypothesis, Penalty, Request
from transduce.core.layout import lay_out
from transduce.core.precision import Affine
from transduce.core.rules import NoRepeat
from transduce.core.search import Roles, moved_up
from transduce.core.special import BEGIN, END, PAD, UNKNOWN
from transduce.core.terms import Term
from transduce.core.transformer import Transformer
from transduce.decoding.batches import PlainEngine, shared_out, side_by_side
from transduce.decoding.constrain import Banks
from transduce.engine import auto, ctranslate2_engine, loop_arrays, loop_encoder, loop_search, loops
from transduce.engine.auto import can_loop, choose_dtype, make_engine
from transduce.engine.blas import address_of_sgemm
from transduce.engine.incremental import Incremental
from transduce.engine.loop_encoder import LoopEncoder
from transduce.engine.loop_search import LoopModel, LoopSearch
from transduce.engine.weights import decoder_weights
from transduce.errors import SettingsError
from transduce.formats.ctranslate2_out import why_not
from transduce.settings.sections import SearchSettings
from transduce.text.glossary import Glossary

WORDS = 31
SEARCHES = {
    "greedy": Roles(1, penalty=Penalty(0.6)),
    "beam": Roles(4, 3, Penalty(0.6)),
    "usual stop": Roles(3, 1, Penalty(1.0, plain=True), stop="usual"),
    "likely stop": Roles(3, 2, Penalty(1.0, plain=True), stop="likely", ended_first=False),
    "forced end": Roles(3, 3, Penalty(1.0, plain=True, forced_end=True), stop="usual", ended_first=False),
    "coverage": Roles(3, 1, Penalty(0.6, beta=0.4)),
    "rules": Roles(3, 2, Penalty(0.6), [NoRepeat(2)]),
    "groups": Roles(4, 4, Penalty(0.6), choose=Groups(2, 0.7)),
    "samples": Roles(3, 3, choose=Draw(5, 1.5, None, 0.9, None), stop="usual"),
    "terms": Roles(4, 1, Penalty(0.6), choose=Banks(torch.ones(WORDS, dtype=torch.bool), 4), room=6),
}
KNOWN_TO_LOOPS = ("greedy", "beam", "usual stop", "likely stop", "forced end")
MODELS = [
    {},
    {"norm": "before"},
    {"norm": "after", "final_norm": True, "positions": "learned", "activation": "gelu", "embedding_norm": True},
    {"score": "dot", "attention_bias": False, "scale": "projection"},
]

needs_blas = pytest.mark.skipif(address_of_sgemm() is None, reason="PyTorch does not show its BLAS here")


def requests(terms: bool = False) -> list[Request]:
    rng = random.Random(1)
    asked = [Term(((7, 8),), False)] if terms else []
    return [Request([rng.randrange(4, 29) for _ in range(rng.randrange(1, 12))], 12, terms=asked) for _ in range(17)]


def lively(model: Transformer) -> Transformer:
    """With steep logits and a liking for END, so that sentences end at different lengths."""
    with torch.no_grad():
        model.projection.weight *= 2
        if model.projection.bias is not None:
            model.projection.bias[END] = 1.0
    return model


def fast(model: Transformer) -> Incremental:
    weights = decoder_weights(model, torch.float32)
    assert weights is not None
    return Incremental(model, weights).eval()


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("options", MODELS, ids=str)
def test_the_fast_model_is_searched_as_the_plain_one(name: str, options: dict) -> None:
    model = lively(small_model(2, output_bias=True, **options))
    roles = SEARCHES[name]._replace(slots=60)  # several batches
    plain, quick = (
        PlainEngine(m, "cpu").find(requests(name == "terms"), roles, lambda _: None) for m in (model, fast(model))
    )
    check_equal(plain, quick)


@needs_blas
def test_what_is_done_at_its_limit_needs_no_forced_end() -> None:
    """To be given an end is one more step. In short limits some sentences are done with their last token: all that was
    found then has ended by itself, though other hypotheses were open."""
    roles, at_the_limit = SEARCHES["forced end"], 0
    for seed in range(6):
        model = lively(small_model(seed, output_bias=True, heads=3, d_k=8, d_v=8))
        with torch.no_grad():
            model.projection.bias[END] += 2.0
        for most in (3, 4, 5):
            some = [request._replace(most=most) for request in requests()]
            plain = PlainEngine(model, "cpu").find(some, roles, lambda _: None)
            check_equal(LoopSearch(LoopModel(fast(model)), some, roles).run(), plain)
            done = [one for one in plain if all(h.complete for h in one)]
            at_the_limit += sum(max(len(h.tokens) for h in one) == most - 1 for one in done)
    assert at_the_limit > 10


def check_equal(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for one, two in zip(found, expected, strict=True):
        assert [(h.tokens, h.complete) for h in one] == [(h.tokens, h.complete) for h in two]
        assert [h.score for h in one] == pytest.approx([h.score for h in two], abs=1e-4)


@needs_blas
@pytest.mark.parametrize("name", KNOWN_TO_LOOPS)
@pytest.mark.parametrize("options", MODELS, ids=str)
def test_compiled_loops_search_as_the_plain_one(name: str, options: dict) -> None:
    model = lively(small_model(2, output_bias=True, **options, heads=3, d_k=8, d_v=8))
    with torch.no_grad():
        model.projection.bias[END] += 6.0
    assert can_loop(fast(model))
    loops = LoopModel(fast(model))
    assert loops.encoder.weights is not None
    found = LoopSearch(loops, requests(), SEARCHES[name]).run()
    expected = PlainEngine(model, "cpu").find(requests(), SEARCHES[name], lambda _: None)
    assert any(h.complete for hypotheses in expected for h in hypotheses)
    check_equal(found, expected)


@needs_blas
def test_a_product_of_compiled_code_is_that_of_pytorch() -> None:
    rows = loop_arrays.Buffers.make(7, 5, 11, norm_before=False)
    affine = Affine(torch.randn(11, 5), torch.randn(11))
    rows.h[:] = torch.randn(7, 5).numpy()
    loops.product(rows.h, loop_arrays.as_product(affine), rows.inner, rows.say)
    expected = torch.nn.functional.linear(torch.from_numpy(rows.h), *affine)
    torch.testing.assert_close(torch.from_numpy(rows.inner), expected)


@needs_blas
def test_without_a_product_for_them_there_are_no_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fast(small_model(1, heads=3, d_k=8, d_v=8))
    assert can_loop(model)
    monkeypatch.setattr(auto, "address_of_sgemm", lambda: None)
    assert not can_loop(model)


@needs_blas
def test_loops_encode_some_sentences_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fast(small_model(1, heads=3, d_k=8, d_v=8))
    source = lay_out([[[*request.source, END]] for request in requests()])
    monkeypatch.setattr(loop_encoder, "SLOTS", 20)
    with torch.inference_mode():
        found, expected = LoopEncoder(model).encode(source), model.encode(source)
    seen = expected.segments != 0
    torch.testing.assert_close(found.states[seen], expected.states[seen], atol=1e-5, rtol=1e-5)


@needs_blas
def test_loops_are_for_searches_that_they_know(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    monkeypatch.setattr(auto, "WORTH_LOADING", 10)
    monkeypatch.setattr(loop_search, "is_compiled", lambda: True)
    monkeypatch.setattr(LoopSearch, "run", lambda self: used.append(self.roles) or [[]] * len(self.sentences))
    engine = make_engine(small_model(1, heads=3, d_k=8, d_v=8), SearchSettings(), "cpu")
    engine.find(requests()[:3], SEARCHES["beam"], lambda _: None)  # too few to load them for
    assert not used
    for roles in SEARCHES.values():
        engine.find(requests(), roles, lambda _: None)
    engine.find(requests()[:3], SEARCHES["beam"], lambda _: None)  # as at the end of a file: always by the same way
    assert used == [SEARCHES[name] for name in KNOWN_TO_LOOPS]
    engine.alone = 10
    engine.find(requests()[:3], SEARCHES["beam"], lambda _: None)  # they come a few at a time, and pay together
    assert len(used) == len(KNOWN_TO_LOOPS) + 1
    monkeypatch.setattr(loop_search, "is_compiled", lambda: False)
    engine = make_engine(small_model(1, heads=3, d_k=8, d_v=8), SearchSettings(), "cpu")
    monkeypatch.setattr(auto, "WORTH_COMPILING", len(requests()) + 1)
    monkeypatch.setattr(auto, "MANY", len(requests()))
    engine.find(requests(), SEARCHES["beam"], lambda _: None)  # too few to wait for a compiler
    engine.alone = 10
    engine.find(requests()[:3], SEARCHES["beam"], lambda _: None)  # who asks for one wants an answer now
    assert len(used) == len(KNOWN_TO_LOOPS) + 1
    engine.find(requests(), SEARCHES["beam"], lambda _: None)
    assert len(used) == len(KNOWN_TO_LOOPS) + 2


@needs_blas
def test_a_service_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on loops search, whatever a machine has compiled before, one sentence or many, as the plain way would."""
    monkeypatch.setattr(loop_search, "is_compiled", lambda: False)
    model = lively(small_model(1, heads=3, d_k=8, d_v=8))
    engine = make_engine(model, SearchSettings(), "cpu")
    engine.warm_up()
    monkeypatch.setattr(PlainEngine, "_search", lambda *_: pytest.fail("the plain way"))
    found = [engine.find([request], SEARCHES["beam"], lambda _: None)[0] for request in requests()]
    monkeypatch.undo()
    check_equal(found, PlainEngine(model, "cpu").find(requests(), SEARCHES["beam"], lambda _: None))


def test_what_was_compiled_is_known(tmp_path: Path) -> None:
    """In a process of its own: compiled code goes where NUMBA_CACHE_DIR says when numba is loaded."""
    program = (
        "from transduce.compiled import is_on_disk; from transduce.engine import loops; import numpy as np\n"
        "print(is_on_disk(loops.exponential)); loops.exponential(np.float32(0)); print(is_on_disk(loops.exponential))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for expected in (["False", "True"], ["True", "True"]):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == expected


def test_compiled_code_knows_what_is_infinite_and_what_is_no_number(tmp_path: Path) -> None:
    """As searches mark what nobody follows; in a folder of its own, so that nothing compiled before is taken."""
    (tmp_path / "seen.py").write_text(
        "import numpy as np\n"
        "from transduce.compiled import kernel\n"
        "@kernel\n"
        "def seen(x, low):\n"
        "    infinite = missing = above = 0\n"
        "    for i in range(len(x)):\n"
        "        infinite += x[i] == -np.inf or np.isinf(x[i])\n"
        "        missing += np.isnan(x[i]) or x[i] != x[i]\n"
        "        above += x[i] > low\n"
        "    return infinite, missing, above\n"
        "x = np.array([-np.inf, 1, np.nan, np.inf, -3, -np.inf], np.float32)\n"
        "print(*seen(x, np.float32(-np.inf)))\n",
        encoding="utf-8",
    )
    program = [sys.executable, str(tmp_path / "seen.py")]
    path = {**os.environ, "PYTHONPATH": str(Path(transduce.__file__).parent.parent)}
    done = subprocess.run(program, env=path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "1", "3"]


def test_a_large_model_has_fewer_lines_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk is what is lost by an interruption; of a large model 4,096 lines take minutes."""
    model = small_model(1)
    weights = sum(weight.numel() for weight in model.parameters())
    for large, lines in ((weights, 4096), (weights - 1, 1024)):
        monkeypatch.setattr(auto, "LARGE", large)
        for name in ("auto", "plain"):  # they lay weights out in their own way
            assert make_engine(model, SearchSettings(engine=name), "cpu").chunk == lines


def test_batches_are_shared_out_among_workers() -> None:
    sizes = [10] * 100
    for workers, slots, count in ((2, 350, 4), (2, 2000, 1), (3, 350, 3), (1, 350, 3)):
        groups = shared_out(range(100), sizes, slots, 1, workers)
        assert len(groups) == count
        assert workers == 1 or max(map(len, groups)) - min(map(len, groups)) < count  # all about as full
        assert sorted(i for group in groups for i in group) == list(range(100))
    assert len(shared_out(range(3), [10] * 3, 10, 1, 2)) == 3  # no more can be had


def test_exponentials() -> None:
    x = -np.random.default_rng(1).random(999).astype(np.float32) * 30
    exact, bits = np.exp(x.astype(np.float64)), np.empty(len(x), np.int32)
    total = loops.sum_of_exponentials(x, np.float32(0), np.empty_like(x), bits)
    assert total == pytest.approx(exact.sum(), rel=1e-6)
    loops.exponentials(x, len(x), bits)
    np.testing.assert_allclose(x, exact, rtol=2e-6)


def test_caches_grow() -> None:
    model = small_model(0, output_bias=True)
    with torch.no_grad():
        model.projection.bias[END] = -90.0
    long = [Request([5, 6], 70), Request([7, 8, 9], 50)]
    for size in (1, 3):
        plain, quick = (
            PlainEngine(m, "cpu").find(long, Roles(size), lambda _: None)[0][0].tokens for m in (model, fast(model))
        )
        assert plain == quick
        assert len(plain) == 70


def test_what_is_not_known_is_searched_plainly() -> None:
    for options in ({"score": "additive"}, {"score": "bilinear"}):
        model = small_model(1, **options)
        assert decoder_weights(model, torch.float32) is None
        engine = make_engine(model, SearchSettings(), "cpu")
        assert isinstance(engine, PlainEngine)
        assert "no fast way" in engine.name


def test_a_new_part_of_a_layer_keeps_it_plain() -> None:
    class Other(torch.nn.LayerNorm):
        pass

    model = small_model(1)
    model.decoder[1].self_residual.norm.__class__ = Other
    assert decoder_weights(model, torch.float32) is None
    model = small_model(1)
    model.decoder[0].self_attention.rotary = torch.nn.Identity()  # a part without weights is a part too
    assert decoder_weights(model, torch.float32) is None
    model = small_model(1)
    model.decoder[0].third_attention = torch.nn.Identity()
    assert decoder_weights(model, torch.float32) is None


def test_rows_that_move_up() -> None:
    assert moved_up([0, 1, 2]) == [0, 1, 2]
    assert moved_up([1, 4, 5]) == [4, 1, 5]
    assert sorted(moved_up([2, 3, 7, 9, 11])) == [2, 3, 7, 9, 11]


def test_precision_is_chosen_and_refused() -> None:
    assert choose_dtype("auto", "cpu") == torch.float32
    assert choose_dtype("bfloat16", "cpu") == torch.bfloat16
    with pytest.raises(SettingsError, match="float16 is slow on cpu"):
        choose_dtype("float16", "cpu")
    with pytest.raises(SettingsError, match="needs search.engine=auto; plain is float32"):
        make_engine(small_model(), SearchSettings(engine="plain", precision="bfloat16"), "cpu")


SUBLAYERS = 5  # of an encoder and a decoder of one layer
ROUNDED = (
    2**-7 / 12**0.5
)  # numbers of 8 bits are so far apart, as a share of them; what is rounded lies anywhere between


def error_of(near: torch.Tensor, exact: torch.Tensor) -> float:
    """The root mean square of what logits are off by, as a share of their own, the mean of each step left out."""
    near, exact = (x - x.mean(-1, keepdim=True) for x in (near, exact))
    return float((near - exact).square().mean().sqrt() / exact.square().mean().sqrt())


def logits_of(model: Incremental, asked: list[Request], written: list[list[int]]) -> list[torch.Tensor]:
    """Of every sentence the logits of every step (T, V), when this is what is written."""
    rows = lay_out([[[*request.source, END]] for request in asked])
    targets = lay_out([[[BEGIN, *tokens]] for tokens in written]).tokens
    with torch.inference_mode():
        memory = model.encode(rows)
        state, logits = model.start(memory), []
        for step in range(targets.size(1)):
            found, state = model.step(targets[:, step : step + 1], memory, state)
            assert found.dtype == model.weights.dtype
            logits.append(found.float())
    return [row[: len(tokens) + 1] for row, tokens in zip(torch.cat(logits, 1), written, strict=True)]


def test_bfloat16_is_near(model_folder: Path) -> None:
    """What every sublayer writes is rounded to 8 bits, up or down, and some roundings one after the other come to about
    the root of their number: two bits less are too much. What it writes is as good in float32 too."""
    model = transduce.load(model_folder)
    sources = model.tokenizers.source.encode([source for source, _ in bundled_pairs(40, seed=5)])
    asked = [Request(ids, 20) for ids in sources]
    exact, near = (
        make_engine(model.model, SearchSettings(precision=precision), "cpu") for precision in ("float32", "bfloat16")
    )
    found = [hypotheses[0] for hypotheses in near.find(asked, Roles(1), lambda _: None)]
    written = [hypothesis.tokens for hypothesis in found]
    expected, rough = (logits_of(engine.model, asked, written) for engine in (exact, near))
    assert 0 < error_of(torch.cat(rough), torch.cat(expected)) < SUBLAYERS**0.5 * ROUNDED

    most = max(float((a - b).abs().max()) for a, b in zip(rough, expected, strict=True))
    for hypothesis, logits in zip(found, expected, strict=True):
        tokens = torch.tensor([*hypothesis.tokens, END])[: len(hypothesis.tokens) + hypothesis.complete]
        chances = logits[: len(tokens)].log_softmax(-1)
        chosen = chances.gather(1, tokens[:, None]).squeeze(1)
        allowed = chances.index_fill(1, torch.tensor([PAD, BEGIN, UNKNOWN]), -torch.inf)
        assert float((allowed.max(-1).values - chosen).max()) <= 2 * most  # one is too high, the other too low
        assert abs(hypothesis.log_probability - float(chosen.sum())) <= 2 * most * len(tokens)


# ---- little memory ---------------------------------------------------------------------------------------------------


def test_larger_batches_are_given_up_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PlainEngine._find

    def short(self: PlainEngine, *given: Any) -> list[list[Hypothesis]]:
        if self.larger > 1:
            raise torch.OutOfMemoryError
        return whole(self, *given)

    monkeypatch.setattr(PlainEngine, "_find", short)
    engine = PlainEngine(small_model(1), "cpu", larger=8)
    assert len(engine.find(requests()[:3], Roles(), lambda _: None)) == 3
    assert engine.larger == 1


# ---- CTranslate2 ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and a cache that is empty."""
    pytest.importorskip("ctranslate2", reason="CTranslate2 is compared where it is installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return model_folder


@pytest.mark.parametrize(
    "changes", [{"beam": 1}, {"beam": 4}, {"beam": 4, "no_repeat": 2}, {"beam": 3, "min_length": 4}]
)
def test_ctranslate2_finds_the_same(folder: Path, tmp_path: Path, changes: dict) -> None:
    sources = [source for source, _ in bundled_pairs(60, seed=7)]
    ours = transduce.load(folder, stop="usual", **changes).translate(sources)
    theirs = transduce.load(folder, engine="ctranslate2", **changes)
    found = theirs.translate(sources)
    assert sum(a.text == b.text for a, b in zip(ours, found, strict=True)) >= 48  # near ties
    without = theirs.translate(sources, forbidden=["the"])  # another search: it forbids before the softmax
    assert not any("the" in f" {t.text} ".split() for t in without)
    kept = list(tmp_path.glob("transduce/ctranslate2/*"))
    assert len(kept) == 1
    before = kept[0].stat().st_ino
    transduce.load(folder, engine="ctranslate2")
    assert kept[0].stat().st_ino == before  # not converted again
    assert "ctranslate2 (float32) on cpu" in theirs.engine.name


def test_ctranslate2_gives_each_sentence_its_own_least_and_most(folder: Path) -> None:
    """It knows one least and one greatest length a call, and a long neighbour has others."""
    model = transduce.load(folder, engine="ctranslate2", min_ratio=1.5, max_ratio=2.0, extra=60, split=False)
    short, long = "ich trinke", " ".join([source for source, _ in bundled_pairs(6, seed=3)])
    alone, (beside, _) = model.translate(short), model.translate([short, long])
    assert (beside.text, beside.status) == (alone.text, alone.status)
    assert beside.score == pytest.approx(alone.score, abs=1e-4)


def test_a_glossary_goes_with_ctranslate2(folder: Path) -> None:
    """What it has no way for is searched without it."""
    glossary = Glossary.from_lines(["bier\tgarden"], "words")
    found = transduce.load(folder, engine="ctranslate2").translate(
        ["ich trinke bier", "ich schlafe"], glossary=glossary
    )
    assert "garden" in found[0].text


def test_models_are_converted_by_several_processes_at_once(folder: Path, tmp_path: Path) -> None:
    """The slower one finds the folder there, and takes it."""
    model, real = transduce.load(folder), ctranslate2_engine.convert
    place = ctranslate2_engine._converted(model.model)
    shutil.rmtree(place)

    def overtaken(weights: Transformer, part: Path) -> None:
        real(weights, part)
        shutil.copytree(part, place)

    with mock.patch.object(ctranslate2_engine, "convert", overtaken):
        assert ctranslate2_engine._converted(model.model) == place
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_ctranslate2_takes_a_prefix_and_whole_numbers(folder: Path) -> None:
    model = transduce.load(folder, engine="ctranslate2", precision="int8", beam=2)
    (found,) = model.stream(["ich trinke ein bier"], prefixes=["we are"])
    assert found.text.startswith("we are")


def test_what_ctranslate2_has_not_is_refused(folder: Path) -> None:
    model = transduce.load(folder, engine="ctranslate2")
    for changes, complaint in (
        ({"method": "sample"}, "has greedy and beam search only"),
        ({"coverage_penalty": 0.3}, "counts the padding beside longer neighbours"),
        ({"repetition_penalty": 1.3}, "has another repetition penalty"),
    ):
        with pytest.raises(SettingsError, match=complaint):
            model.with_search(**changes).translate("ich trinke")
    with pytest.raises(SettingsError, match="search.precision=bfloat16 is not for ctranslate2"):
        transduce.load(folder, engine="ctranslate2", precision="bfloat16")
    with pytest.raises(SettingsError, match="search.precision=int8 needs search.engine=ctranslate2"):
        transduce.load(folder, precision="int8")


def test_models_that_ctranslate2_cannot_take() -> None:
    assert "shares the model's width" in (why_not(small_model()) or "")
    assert "scaled dot" in (why_not(small_model(score="dot", d_k=None, d_v=None)) or "")
    assert "final norm" in (why_not(small_model(final_norm=True, d_k=None, d_v=None)) or "")
    assert "epsilon" in (why_not(small_model(eps=1e-3, d_k=None, d_v=None)) or "")
    assert why_not(small_model(d_k=None, d_v=None)) is None


# ---- side by side --------------------------------------------------------------------------------------------------


def test_on_a_cpu_every_core_has_its_own_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    threads = set()

    def work(item: int) -> int:
        threads.add(threading.get_ident())
        time.sleep(0.01 * (5 - item % 5))  # later ones are done earlier
        if item == 99:
            raise ValueError("this one")
        return item * item

    assert list(side_by_side(work, range(12), "cpu")) == [item * item for item in range(12)]
    assert 1 < len(threads) <= 3
    assert threading.get_ident() not in threads
    with pytest.raises(ValueError, match="this one"):
        list(side_by_side(work, [1, 99, 2], "cpu"))
    threads.clear()
    assert list(side_by_side(work, [2], "cpu")) == list(side_by_side(work, [2], "cuda")) == [4]
    assert threads == {threading.get_ident()}  # one batch has all cores
    torch.set_num_threads(before)


def test_threads_give_the_same_translations(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [source for source, _ in bundled_pairs(60)]
    model = transduce.load(model_folder, tokens=64, min_length=3)  # many batches
    alone = [t.text for t in model.translate(lines)]
    before = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert [t.text for t in model.translate(lines)] == alone
    torch.set_num_threads(before)
