"""Fine-tuning: adapters (LoRA), layers that begin to learn later, or more slowly."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
import torch
from conftest import Notes, bundled_pairs

import transduce
from transduce import cli
from transduce.adapt.freeze import depth, layers_of
from transduce.adapt.lora import ADAPTER, attach, factored, put_adapter
from transduce.adapt.vocabulary import Origins, carried_over
from transduce.commands.evaluate import evaluate
from transduce.core import classifier, recurrent, transformer
from transduce.core.flat import FlatWeights
from transduce.core.low_rank import LowRank
from transduce.errors import ModelError, SettingsError
from transduce.models.load import load
from transduce.models.weights import read_shapes, weights_of
from transduce.settings.checks import check_idle
from transduce.settings.compose import compose
from transduce.settings.sections import ModelSettings, TrainingSettings
from transduce.training.recipe import settings_of
from transduce.training.resolve import resolve
from transduce.training.setup import Setup
from transduce.training.shares import Shares
from transduce.training.state import RunState
from transduce.training.trial import usual_batch
from transduce.training.updater import Updater

PAIRS = bundled_pairs(200)
IDS = [([5 + i, 6, 7], [8, 9 + i]) for i in range(20)]
SMALL = {"layers": 2, "decoder_layers": 1, "d_model": 24, "d_ff": 40, "heads": 3, "dropout": 0.0}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("base") / "run"
    transduce.train(run, PAIRS, preset="tiny", report=Notes(), model=SMALL, training={"steps": 3, "validate_every": 3})
    return run


def tuned(run: Path, base: Path, **training: object) -> transduce.model.Model:
    given = {"start": str(base), "steps": 6, "validate_every": 2, **training}
    return transduce.train(run, PAIRS, report=Notes(), training=given, optimizer={"rate": 0.01, "warmup": 1})


def test_only_adapters_learn_and_are_in_the_weights_of_the_model(tmp_path: Path, base: Path) -> None:
    tuned(tmp_path / "run", base, lora_rank=2, lora_parts="query,value,outer", lora_dropout=0.1)
    before, after = weights_of(load(base).model), weights_of(load(tmp_path / "run").model)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    parts = ("query.weight", "value.weight", "outer.weight")
    assert changed == {name for name in before if name.endswith(parts)}
    newest = sorted((tmp_path / "run" / "training").glob("step-*"))[-1]
    moments = read_shapes(newest / "optimizer.safetensors")
    assert {name.split("/")[0].rpartition(".")[2] for name in moments} == {"A", "B"}  # that is the memory saved


def test_each_file_of_validation_text_has_its_score(tmp_path: Path, base: Path) -> None:
    """What is learned of a new text, and what is forgotten of the old."""
    for name, pairs in (("old", PAIRS[:60]), ("new", PAIRS[60:100])):
        for side, ending in enumerate(("de", "en")):
            (tmp_path / f"{name}.{ending}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    files = {side: [str(tmp_path / f"{name}.{ending}") for name in ("old", "new")]
             for side, ending in (("valid_source", "de"), ("valid_target", "en"))}  # fmt: skip
    notes = Notes()
    transduce.train(
        tmp_path / "run", source=tmp_path / "new.de", target=tmp_path / "new.en", report=notes, data=files,
        training={"start": str(base), "steps": 2, "validate_every": 2, "device": "cpu"},
    )  # fmt: skip
    (said,) = (line for line in notes.said if line.startswith("validation BLEU by file"))
    assert re.search(r"old\.de \d+\.\d, .*new\.de \d+\.\d$", said)


def test_adapters_apart_are_the_same_model(tmp_path: Path, base: Path) -> None:
    """On the base: the same weights to 1e-6, the same texts; small; and on no other model."""
    ours = tuned(tmp_path / "run", base, lora_rank=2)
    adapter = tmp_path / "run" / ADAPTER
    assert adapter.stat().st_size < (base / "model.safetensors").stat().st_size / 2
    apart = transduce.load(base, adapter=adapter)
    named = transduce.load(base, adapter=tmp_path / "run")  # by its folder
    assert all(torch.equal(w, named.model.state_dict()[name]) for name, w in apart.model.state_dict().items())
    for name, weight in weights_of(ours.model).items():
        assert torch.allclose(weights_of(apart.model)[name], weight, atol=1e-6), name
    lines = [source for source, _ in PAIRS[:20]]
    for engine in ("plain", "auto"):
        one = ours.with_search(engine=engine, precision="float32").translate(lines)
        two = apart.with_search(engine=engine, precision="float32").translate(lines)
        assert [t.text for t in one] == [t.text for t in two]
    with pytest.raises(ModelError, match="was made for another model"):
        transduce.load(tmp_path / "run", adapter=adapter)


def test_many_adapters_share_one_model(tmp_path: Path, base: Path) -> None:
    """Each is chosen when it is asked for; none changes the model or another."""
    runs = [tuned(tmp_path / name, base, lora_rank=2, lora_parts=part, seed=i, steps=30, validate_every=30) for i, (name, part) in
            enumerate((("a", "query,outer"), ("b", "value")), 1)]  # fmt: skip
    plain = transduce.load(base, "cpu")
    before = weights_of(plain.model)
    chosen = [plain.with_adapter(tmp_path / name) for name in "ab"]
    lines = [source for source, _ in PAIRS[:10]]
    for own, run in zip(chosen, runs, strict=True):
        for name, weight in weights_of(own.model).items():
            assert torch.allclose(weight, weights_of(run.model)[name], atol=1e-6), name
        assert [t.text for t in own.translate(lines)] == [t.text for t in run.translate(lines)]
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(plain.model).items())
    held = [{name: weight.data_ptr() for name, weight in one.model.named_parameters()} for one in (plain, *chosen)]
    apart = {name for name in held[0] if held[0][name] != held[1][name]}
    assert apart == {name for name in before if name.endswith(("query.weight", "outer.weight"))}
    with pytest.raises(ModelError, match="was made for another model"):
        chosen[0].with_adapter(tmp_path / "b")


def test_an_adapter_is_a_flag(tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = tuned(tmp_path / "run", base, lora_rank=2)
    (tmp_path / "text").write_text("das haus ist alt .\n", encoding="utf-8")
    assert cli.main(["translate", str(base), str(tmp_path / "text"), "--adapter", str(tmp_path / "run" / ADAPTER)]) == 0
    assert capsys.readouterr().out == ours.translate("das haus ist alt .").text + "\n"


def test_an_adapter_is_compared_with_the_model_without_it(tmp_path: Path, base: Path) -> None:
    ours = tuned(tmp_path / "run", base, lora_rank=2, steps=40, validate_every=40)
    for side, lines in zip(("a", "b"), zip(*PAIRS[:20], strict=True), strict=True):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = evaluate(
        base, source=str(tmp_path / "a"), reference=str(tmp_path / "b"), against=base,
        adapter=tmp_path / "run" / ADAPTER, json=True, samples=10, beam=1,
    )  # fmt: skip
    assert (
        ours.translate(
            PAIRS[0][0],
        ).text
        != load_plain(base).translate(PAIRS[0][0]).text
    )
    assert any(one["ours"] != one["theirs"] for one in found["against"].values() if isinstance(one, dict))


def load_plain(folder: Path) -> transduce.model.Model:
    return transduce.load(folder, "cpu")


def test_damaged_adapters_are_refused(tmp_path: Path, base: Path) -> None:
    """Every change of a byte is found, or makes no difference that is no number."""
    tuned(tmp_path / "run", base, lora_rank=1)
    whole, random = (tmp_path / "run" / ADAPTER).read_bytes(), Random(3)
    path, told = tmp_path / "damaged.safetensors", ["one sentence"]
    for _ in range(60):
        content = bytearray(whole)
        content[random.randrange(600)] = random.randrange(256)
        path.write_bytes(content[: random.choice([len(content), len(content) // 2])])
        model = load(base).model
        try:
            put_adapter(model, path)
            assert all(weight.isfinite().all() for weight in model.parameters())
        except ModelError as error:
            told.append(str(error))
    assert not any("\n" in sentence for sentence in told)
    with pytest.raises(ModelError, match="is missing"):
        put_adapter(load(base).model, tmp_path / "none")


def test_a_run_with_adapters_resumes_to_the_bit(tmp_path: Path, base: Path) -> None:
    for name, stops in (("straight", (6,)), ("halves", (3, 6))):
        for steps in stops:
            tuned(tmp_path / name, base, lora_rank=2, lora_dropout=0.2, steps=steps)
    one, two = (sorted((tmp_path / name / "training").glob("step-*"))[-1] for name in ("straight", "halves"))
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (one / file).read_bytes() == (two / file).read_bytes()


def test_dropout_of_adapters_is_in_no_weights_that_are_kept() -> None:
    model = transformer.build(ModelSettings(**SMALL), 50, 60).train()
    attach(model, TrainingSettings(start="x", lora_rank=2, lora_dropout=0.5))
    for module in model.modules():
        if isinstance(module, LowRank):
            torch.nn.init.normal_(module.B)
    one, two = weights_of(model), weights_of(model)
    assert all(torch.equal(one[name], two[name]) for name in one)
    query = model.encoder[0].self_attention.query
    assert not torch.equal(query.read(torch.float32).weight, query.read(torch.float32).weight)


def test_the_beginning_of_a_run_is_the_model_that_it_began_with(tmp_path: Path, base: Path) -> None:
    """Also after a stop, when the run no longer needs that model for anything else."""
    tuned(tmp_path / "run", base, steps=2)
    made: list[Setup] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Setup, "trainer", lambda self, *_: made.append(self) or stop())
        with pytest.raises(SettingsError, match="enough seen"):
            tuned(tmp_path / "run", base, steps=4)
    before, state = weights_of(load(base).model), torch.get_rng_state()
    found = weights_of(made[0]._model_of_the_beginning())
    assert all(torch.equal(found[name], before[name]) for name in before)
    assert torch.equal(torch.get_rng_state(), state)


def stop() -> None:
    raise SettingsError("enough seen")


def test_a_file_of_settings_may_say_what_the_model_says(tmp_path: Path, base: Path) -> None:
    (tmp_path / "same.yaml").write_text("model: {layers: 2}\ntraining: {steps: 1}\n")
    given = resolve(tmp_path / "run", None, tmp_path / "same.yaml", {"training": {"start": str(base)}})
    assert settings_of(given).model.layers == 2
    (tmp_path / "same.yaml").write_text("model: {layers: 3}\n")
    with pytest.raises(SettingsError, match="model.layers=3 cannot be: the run begins with .*, where it is 2"):
        resolve(tmp_path / "run", None, tmp_path / "same.yaml", {"training": {"start": str(base)}})


def test_a_run_goes_on_however_its_start_is_spelled(tmp_path: Path, base: Path) -> None:
    tuned(tmp_path / "run", base, steps=2)
    tuned(tmp_path / "run", base.parent / ".." / base.parent.name / base.name, steps=4)
    with pytest.raises(SettingsError, match="was started with training.start="):
        tuned(tmp_path / "run", tmp_path / "run", steps=6)


def test_a_run_that_begins_with_a_model_resumes_to_the_bit(tmp_path: Path, base: Path) -> None:
    for name, stops in (("straight", (6,)), ("halves", (3, 6))):
        for steps in stops:
            tuned(tmp_path / name, base, unfreeze_every=2, steps=steps)
    one, two = (sorted((tmp_path / name / "training").glob("step-*"))[-1] for name in ("straight", "halves"))
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


def test_an_average_of_adapters_has_a_higher_rank_and_is_kept_whole() -> None:
    torch.manual_seed(1)
    before = {"w": torch.randn(20, 30), "b": torch.ones(3)}
    steps = [torch.randn(20, 2) @ torch.randn(2, 30) for _ in range(3)]
    after = {"w": before["w"] + sum(steps) / 3, "b": torch.ones(3)}
    found = factored(before, after)
    assert found["w.A"].shape == (6, 30)
    assert set(found) == {"w.A", "w.B"}
    assert torch.allclose(before["w"] + found["w.B"] @ found["w.A"], after["w"], atol=1e-5)
    with pytest.raises(ModelError, match="is no matrix; this is no adapter"):
        factored(before, {**after, "b": torch.zeros(3)})


def test_an_adapter_adds_nothing_at_first_and_is_read_by_every_product() -> None:
    torch.manual_seed(1)
    model = transformer.build(ModelSettings(**SMALL), 50, 60)
    before = weights_of(model)
    attach(model, TrainingSettings(start="x", lora_rank=3, lora_alpha=6.0, lora_parts="query,key,value,output"))
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(model).items())
    adapted = [module for module in model.modules() if isinstance(module, LowRank)]
    assert len(adapted) == 4 * (2 + 2)
    x = torch.randn(5, 24)
    torch.nn.init.normal_(adapted[0].B)
    expected = torch.nn.functional.linear(x, adapted[0].weight + 2 * adapted[0].B @ adapted[0].A, adapted[0].bias)
    assert torch.allclose(adapted[0](x), expected, atol=1e-6)
    assert {place.name.rpartition(".")[2] for place in FlatWeights(model).places} == {"A", "B"}


@pytest.mark.parametrize(
    ("training", "complaint"),
    [
        ({"lora_rank": 2}, "needs a model to adapt: --from MODEL"),
        ({"lora_rank": 2, "start": "x", "freeze": "encoder"}, "does not go with training.freeze"),
        ({"lora_alpha": 2.0}, "need training.lora_rank"),
    ],
)
def test_what_does_not_go_together_is_refused(training: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        compose({"training": training})


def test_what_is_frozen_needs_a_model_or_vectors() -> None:
    told = "would keep random weights as they are: it needs a model, --from MODEL"
    with pytest.raises(SettingsError, match=told):
        check_idle(compose({"training": {"freeze": "encoder"}}))
    with pytest.raises(SettingsError, match=told):
        check_idle(compose({"training": {"freeze": "source,encoder"}, "model": {"source_vectors": "x"}}))
    check_idle(compose({"training": {"freeze": "source"}, "model": {"target_vectors": "x"}}))  # one table
    check_idle(compose({"training": {"freeze": "encoder", "start": "x"}}))


def test_parts_that_there_are_not_are_refused() -> None:
    model = transformer.build(ModelSettings(**SMALL), 50, 60)
    with pytest.raises(SettingsError, match="'quary' is none of query, key"):
        attach(model, TrainingSettings(lora_rank=2, lora_parts="quary"))
    with pytest.raises(SettingsError, match="needs model.kind=transformer, which has layers"):
        compose({"model": {"kind": "rnn"}, "optimizer": {"layer_decay": 0.5}})
    with pytest.raises(SettingsError, match="does not go with optimizer.name=schedule_free"):
        compose({"optimizer": {"layer_decay": 0.5, "name": "schedule_free"}})


# ---- layers one after the other


def test_layers_begin_to_learn_from_the_end() -> None:
    settings = compose({"model": SMALL, "training": {"unfreeze_every": 2}, "optimizer": {"schedule": "constant"}})
    torch.manual_seed(1)
    updater = Updater(transformer.build(settings.model, 50, 50), settings, "cpu")
    state, batch = RunState(), usual_batch(IDS, 60)
    seen = []
    for _ in range(9):
        before = weights_of(updater.model)
        updater.update([batch], state)
        moved = [name for name, weight in weights_of(updater.model).items() if not torch.equal(weight, before[name])]
        seen.append(max(depth(name, 1, 2) for name in moved) if moved else None)
    assert seen == [1, 1, 2, 2, 3, 3, 4, 4, 4]  # the projection is the embeddings, and these come last


def test_first_layers_learn_more_slowly() -> None:
    """Each takes its share of the same update."""
    moved = {}
    for decay in (1.0, 0.5):
        layers = {"model": SMALL, "optimizer": {"layer_decay": decay, "schedule": "constant", "warmup": 1}}
        settings = compose(layers)
        torch.manual_seed(1)
        updater = Updater(transformer.build(settings.model, 50, 50), settings, "cpu")
        before = weights_of(updater.model)
        updater.update([usual_batch(IDS, 60)], RunState())
        moved[decay] = {name: weight - before[name] for name, weight in weights_of(updater.model).items()}
    for name, change in moved[1.0].items():
        share = 0.5 ** depth(name, 1, 2)
        assert torch.allclose(moved[0.5][name], share * change, atol=1e-7), name


def test_neighbours_that_learn_alike_are_one_stretch() -> None:
    model = transformer.build(ModelSettings(**SMALL), 50, 60)
    assert len(Shares(FlatWeights(model), compose({"model": SMALL})).stretches) == 1


def test_a_classifier_has_its_last_layer_near_its_end() -> None:
    m = ModelSettings(kind="classifier", **{**SMALL, "decoder_layers": None, "layers": 3})
    names = [place.name for place in FlatWeights(classifier.build(m, 50, 5)).places]
    layers = layers_of(names, "decoder"), layers_of(names, "encoder")
    assert layers == (0, 3)
    assert {n: depth(n, *layers) for n in ("end", "projection.weight", "encoder.2.feed_forward.inner.weight")} == {
        "end": 0, "projection.weight": 0, "encoder.2.feed_forward.inner.weight": 1,
    }  # fmt: skip
    assert depth("encoder.0.feed_forward.inner.weight", *layers) == 3
    assert depth("source.tokens.weight", *layers) == 4


# ---- a new vocabulary


def test_an_rnn_gets_a_new_vocabulary_too(base: Path) -> None:
    tokenizers = load(base).tokenizers
    m = ModelSettings(kind="rnn", layers=1, d_model=16, tie_source=False, tie_output=False)
    old, new = (recurrent.build(m, tokenizers.source.size, tokenizers.target.size) for _ in range(2))
    found, words = carried_over(weights_of(old), new, tokenizers, tokenizers)
    assert set(found) == set(weights_of(new))
    assert torch.equal(found["source.weight"], old.source.weight)
    assert "tokens carried over" in words


def test_which_weight_embeds_a_side() -> None:
    shared, apart = (transformer.build(ModelSettings(**SMALL, tie_source=tied), 50, 50) for tied in (True, False))
    assert shared.embedding_of("target") == apart.embedding_of("source") == "source.tokens.weight"
    assert apart.embedding_of("target") == "target.tokens.weight"
    assert classifier.build(ModelSettings(kind="classifier", **SMALL), 50, 5).embedding_of("target") is None


def test_tokens_are_carried_over_to_a_new_vocabulary(tmp_path: Path, base: Path) -> None:
    """Those that both have keep their rows; the layers are those of the model; other tokens come from their parts."""
    notes = Notes()
    other = [(f"{source} heute", target) for source, target in bundled_pairs(200, seed=5)]
    settings = {"start": str(base), "new_vocabulary": True, "steps": 1, "validate_every": 1}
    text = {"vocabulary": 300, "joint": False, "target_vocabulary": 250, "protect": None, "case": "typed"}
    transduce.train(
        tmp_path / "run", other, report=notes, training=settings, text=text, model={"tie_source": False},
        optimizer={"rate": 1e-9},
    )  # fmt: skip
    assert any("tokens carried over" in line for line in notes.said)
    (old, old_text, _), (new, new_text, _) = load(base), load(tmp_path / "run")
    assert (new_text.source.size, new_text.target.size) == (300, 250)
    weights, before = weights_of(new), weights_of(old)
    name = "decoder.0.cross_attention.query.weight"
    assert torch.allclose(weights[name], before[name], atol=1e-6)
    pieces = {piece: i for i, piece in enumerate(old_text.target.pieces(range(old_text.target.size)))}
    shared = [(i, pieces[p]) for i, p in enumerate(new_text.target.pieces(range(250))) if p in pieces]
    assert len(shared) > 50
    for i, j in shared:
        assert torch.allclose(weights["target.tokens.weight"][i], before["source.tokens.weight"][j], atol=1e-6)


def test_rows_of_new_tokens_are_the_mean_of_their_parts(base: Path) -> None:
    tokenizer = load(base).tokenizers.source
    rows = Origins.of(tokenizer, tokenizer)
    assert all(ids == [i] for i, ids in enumerate(rows.parts))
    table = torch.arange(12.0).view(4, 3)
    assert Origins([[1], [0, 2], []]).table(table)[:2].tolist() == [[3, 4, 5], [3, 4, 5]]
    assert Origins([[1], [0, 2], []]).describe().startswith("1 tokens carried over, 1 from the mean")


def test_text_that_a_vocabulary_does_not_know_is_warned_of(tmp_path: Path, base: Path) -> None:
    """Else nothing is learned, and nobody knows why."""
    notes, pairs = Notes(), [("我想喝啤酒", "i want a beer"), ("他喜欢狗", "he likes dogs")] * 20
    training = {"start": str(base), "steps": 1, "validate_every": 1}
    transduce.train(tmp_path / "run", pairs, report=notes, training=training)
    assert any("of the source's tokens are unknown to the vocabulary of the model" in words for words in notes.said)
    notes.said.clear()
    transduce.train(tmp_path / "known", PAIRS, report=notes, training=training)
    assert not any("unknown to the vocabulary" in words for words in notes.said)


def test_a_new_vocabulary_needs_a_model() -> None:
    with pytest.raises(SettingsError, match="new_vocabulary=true needs a model to begin with"):
        compose({"training": {"new_vocabulary": True}})
    with pytest.raises(SettingsError, match="new tokens have to be learned"):
        compose({"training": {"new_vocabulary": True, "start": "x", "lora_rank": 1}})
