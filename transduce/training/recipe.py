"""The automatic recipe: what a run is trained with where nobody has said otherwise.

First the text decides the vocabulary; then the vocabulary, the machine and the time decide the model, its batches and
its learning rate. Every choice has a reason of half a line. The numbers here were found on validation text of German,
Chinese and English (docs/recipe.md tells how).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from transduce.data.facts import Facts
from transduce.settings.compose import compose
from transduce.settings.entries import convert, entries
from transduce.settings.sections import PROTECTED, Overrides, Settings
from transduce.settings.task import task_of


class Choice(NamedTuple):
    """The value of a setting, and why."""

    name: str
    value: Any
    why: str = ""  # "": it follows from the choice before


class Size(NamedTuple):
    """A model, and when there is enough for it to learn from and enough time to learn it in."""

    layers: int
    d_model: int
    heads: int
    pairs: int  # at least
    updates: int  # of the smallest batches, at least

    @property
    def choices(self) -> dict[str, Any]:
        return {"layers": self.layers, "d_model": self.d_model, "d_ff": 4 * self.d_model, "heads": self.heads}


SIZES = (  # from small to large
    Size(2, 128, 4, pairs=0, updates=0),
    Size(2, 192, 4, pairs=3_000, updates=1_500),
    Size(3, 256, 4, pairs=15_000, updates=6_000),
    Size(4, 256, 4, pairs=40_000, updates=10_000),
    Size(6, 512, 8, pairs=500_000, updates=30_000),
)
SMALLEST_BATCH, LARGEST_BATCH = 512, 8192  # slots a side
LARGE_BATCH = 4096  # from here on a model learns as much from half as many updates
ENOUGH_UPDATES = 12_000  # beyond so many, larger batches bring more than further ones
OFTEN, ENOUGH_BY_THEN = 10, 8_000  # passes over a text, by which fewer updates are enough
SMALL_RATE, LARGE_RATE = 1.2e-3, 2e-3  # of the smallest batches, and the highest that any bear
SHORTEST, LONGEST = 50, 2000  # updates of a warm-up
WIDE = 256  # numbers of a token, with which a model learns a text by heart in 40 passes
GUIDED = 6_000  # updates, after which a model has long found out by itself where to look
USED = 0.85  # of the time goes into updates; the rest into preparing and validating
GPU_SPEED, CPU_SPEED = 600_000, 4000  # target tokens a second, before anything is tried
TOKENS_A_WORD = 1.3
SEEN = 8  # passes over a text, after which even its rare tokens were seen often enough
MOST_TOKENS = 32_000  # of a vocabulary, whatever the text
ALIGNED = 64  # on a GPU, which multiplies fast what this divides
LONGER = 1.0  # alpha of the length penalty; the paper's models, trained for days, had 0.6
GENTLE = 0.25  # of the usual rate, where a run begins with a model
PROPOSED, BY_HEART = 10, 1000  # passes over the text, where no time is given; and the most that are of any use
FEWEST, SHORTEST_RUN, LONGEST_RUN = 5000, 2, 120  # then also: updates at least, minutes at least and at most
BASE: Overrides = {
    "model": {"norm": "before"},
    "optimizer": {"schedule": "wsd", "clip": 1.0, "decay": 0.3},
    "training": {"average": 3},
}


class Machine(NamedTuple):
    """What a recipe asks of the machine."""

    device: str
    seconds_an_update: Callable[[Settings], float]  # by trial, of one process
    processes: int = 1  # that share every batch


class Recipe:
    """Settings that grow: what is given stays, and everything else is chosen."""

    def __init__(self, *given: Overrides) -> None:
        self.given = given
        self.choices: list[Choice] = []
        known = {entry.name: entry for entry in entries()}
        sections = [(name, keys) for layer in given for name, keys in layer.items() if isinstance(keys, Mapping)]
        values = {f"{section}.{key}": value for section, keys in sections for key, value in keys.items()}
        self._given = {name: convert(known[name], value) for name, value in values.items() if name in known}

    @property
    def settings(self) -> Settings:
        chosen: dict[str, dict[str, Any]] = {}
        for choice in self.choices:
            section, key = choice.name.split(".")
            chosen.setdefault(section, {})[key] = choice.value
        if self._given.get("text.joint") is False:
            chosen.setdefault("model", {})["tie_source"] = False  # follows from it
        return compose(BASE, chosen, *self.given)

    def has(self, *names: str) -> bool:
        """Whether one of these settings is given."""
        return not self._given.keys().isdisjoint(names)

    def choose(self, choices: Iterator[Choice]) -> Iterator[str]:
        """Take what nobody has given, and tell it."""
        taken = [choice for choice in choices if not self.has(choice.name)]
        self.choices += taken
        for choice in taken:
            if choice.why:
                yield f"{choice.name}={str(choice.value).lower()}: {choice.why}"


def for_text(facts: Facts, recipe: Recipe, device: str, processes: int = 1) -> Iterator[Choice]:
    """How text becomes tokens. `recipe`: what is given; of it the time, and whether both sides have one vocabulary."""
    settings = recipe.settings
    passes = _expected_passes(facts, settings, device, processes)
    if task_of(settings).labels:
        size = _vocabulary(2 * facts.source.words, passes) + _characters(facts.source)
        yield Choice("text.vocabulary", size, _for_words(facts.source.words, passes))
        yield from _covered(facts)
        return
    sides = facts.source, facts.target
    scripts = [side.script or "text without letters" for side in sides]
    alike = scripts[0] == scripts[1]
    source, target = (_aligned(_vocabulary(2 * side.words, passes) + _characters(side), device) for side in sides)
    joint = settings.text.joint if recipe.has("text.joint") else alike or device == "cuda"
    if joint:
        both = f"{scripts[0]} and {scripts[1]} together: a GPU has time to score the tokens of both"
        yield Choice("text.joint", True, f"both sides are {scripts[0]}" if alike else both)
        size = _aligned(_shared_vocabulary(facts, passes) if alike else _joined_vocabulary(source, target), device)
        yield Choice("text.vocabulary", size, _for_words(facts.target.words, passes))
    else:
        yield Choice("text.joint", False, f"{scripts[0]} and {scripts[1]} share no words")
        yield Choice("model.tie_source", False)
        many = f", and {facts.source.characters:,} different characters" if facts.source.is_unspaced else ""
        yield Choice("text.vocabulary", source, f"for {_rounded(facts.source.words)} words{many}")
        yield Choice("text.target_vocabulary", target, _for_words(facts.target.words, passes))
    if settings.text.tokenizer in ("bpe", "unigram"):
        yield Choice("text.protect", ",".join(PROTECTED), "what must not change passes through")
    yield from _covered(facts)
    tokenizer = {"Chinese": "zh", "Japanese": "char", "Thai": "char", "Lao": "char", "Khmer": "char", "Burmese": "char"}
    if facts.target.script in tokenizer:
        yield Choice("training.bleu_tokenizer", tokenizer[facts.target.script], f"the target is {facts.target.script}")
    if settings.training.start is None:
        yield Choice("search.length_penalty", LONGER, "a model of hours or minutes ends its translations too early")
    elif _may_go_back(settings):
        why = "its tokens stay as they are, or it could not go back to Hugging Face (`projection` lets them learn)"
        yield Choice("training.freeze", "source,projection", why)


def _may_go_back(settings: Settings) -> bool:
    """Whether a run begins with an M2M100 or NLLB, of which Hugging Face keeps no bias of the projection and no token
    of its own to begin with, and could leave both as they are."""
    m, t = settings.model, settings.training
    fairseq = m.positions == "fairseq" and m.norm == "before" and m.output_bias and not m.embedding_norm
    learned = t.new_vocabulary or t.lora_rank is not None or settings.optimizer.weight_decay > 0
    return fairseq and settings.text.source_language is not None and not learned


def _covered(facts: Facts) -> Iterator[Choice]:
    if facts.source.is_unspaced or facts.target.is_unspaced:
        yield Choice("text.coverage", 0.9995, "rare characters are too many to learn")


def _expected_passes(facts: Facts, settings: Settings, device: str, processes: int) -> float:
    """Over the text, as far as can be told before there are tokens."""
    if settings.training.minutes is None:
        return PROPOSED
    read = 60 * settings.training.minutes * processes * (GPU_SPEED if device == "cuda" else CPU_SPEED)
    side = facts.source if task_of(settings).labels else facts.target
    return read / (TOKENS_A_WORD * max(1, side.words))


def _vocabulary(words: float, passes: float) -> int:
    """It grows more slowly than the text: 8,000 for two million words, 1,000 for ten thousand. What is hardly read
    twice wants fewer: a rare token would be seen too seldom to be learned."""
    enough = 8000 * (words / 2.4e6) ** 0.4 * min(1.0, passes / SEEN) ** 0.25
    return int(min(MOST_TOKENS, max(400, enough)) // 100 * 100)


def _aligned(size: int, device: str) -> int:
    return size // ALIGNED * ALIGNED if device == "cuda" else size


def _shared_vocabulary(facts: Facts, passes: float) -> int:
    """The size for two sides in one script, which have many words in common."""
    words = facts.source.words + facts.target.words
    return _vocabulary(words, passes) + max(map(_characters, (facts.source, facts.target)))


def _joined_vocabulary(source: int, target: int) -> int:
    """The size for two scripts, from the size that each side would have: an eighth (digits, signs, names) is the same
    in both."""
    return min(MOST_TOKENS, (source + target) * 7 // 8 // 100 * 100)


def _characters(side: Any) -> int:
    """Room for the characters of a script that has thousands."""
    return side.characters // 100 * 100 if side.is_unspaced else 0


def _for_words(words: float, passes: float) -> str:
    return f"for {_rounded(words)} words{', read a few times' if passes < SEEN else ''}"


def _rounded(number: float) -> str:
    return f"{number / 1e6:.1f} million" if number >= 1e6 else f"{round(number, -2):,.0f}"


def for_time(facts: Facts, tokens_a_pair: float, machine: Machine, recipe: Recipe) -> Iterator[str]:
    """Model, batches and learning rate for the time given, or for one that is proposed. Tells its choices."""
    smallest = smallest_batch(machine, recipe.settings.data.max_tokens)
    shared = machine.device == "cuda" and machine.processes > 1
    why = f"{machine.processes} GPUs share a batch" if shared else ""
    yield from recipe.choose(iter([Choice("batch.tokens", smallest, why)]))
    if recipe.settings.training.minutes is None and not recipe.has("training.steps", "training.epochs"):
        yield from recipe.choose(iter([_propose(facts, tokens_a_pair, machine, recipe)]))
    yield from recipe.choose(iter([Choice("training.steps", None)] if recipe.settings.training.minutes else []))
    size, updates = _largest(facts, tokens_a_pair, machine, recipe)
    layers = f"{size.layers}" if task_of(recipe.settings).labels else f"{size.layers}+{size.layers}"
    weights = f"{layers} layers of {size.d_model}"
    why = f"{weights}: the largest that {facts.pairs:,} pairs and about {updates:,.0f} updates can teach"
    yield from recipe.choose(
        Choice(f"model.{key}", value, why if key == "layers" else "") for key, value in size.choices.items()
    )
    yield from recipe.choose(_for_updates(facts, updates, tokens_a_pair, recipe, machine.device))


def smallest_batch(machine: Machine, longest: int) -> int:
    """Slots a side. No GPU has a use for fewer, and the longest sentence must fit."""
    fewest = machine.processes * LARGEST_BATCH if machine.device == "cuda" else SMALLEST_BATCH
    return max(fewest, 1 << (longest - 1).bit_length())


def _pace(size: Size, machine: Machine, recipe: Recipe) -> float:
    """Seconds an update of this size takes, where every process does its share of it."""
    if machine.device == "cuda":  # to compile each for a trial would take longer than it tells
        return _slots(recipe.settings) / GPU_SPEED / machine.processes
    settings = compose({"model": size.choices}, *recipe.given, base=recipe.settings)
    return machine.seconds_an_update(settings) / machine.processes


def _largest(facts: Facts, tokens_a_pair: float, machine: Machine, recipe: Recipe) -> tuple[Size, float]:
    """The largest size that there is text and time for, and its updates."""
    chosen, updates = SIZES[0], _updates(SIZES[0], facts, tokens_a_pair, machine, recipe)
    share = 0.5 if _slots(recipe.settings) >= LARGE_BATCH else 1.0
    for size in SIZES[1:]:
        if facts.pairs < size.pairs or updates < share * size.updates:
            break  # fewer still with a larger one
        fewer = _updates(size, facts, tokens_a_pair, machine, recipe)
        if fewer < share * size.updates:
            break
        chosen, updates = size, fewer
    return chosen, updates


def _updates(size: Size, facts: Facts, tokens_a_pair: float, machine: Machine, recipe: Recipe) -> float:
    """That a run makes before its limit."""
    t, batch = recipe.settings.training, _slots(recipe.settings)
    limits: list[float] = [t.steps] if t.steps else []
    limits += [t.epochs * facts.pairs * tokens_a_pair / batch] if t.epochs else []
    limits += [USED * 60 * t.minutes / _pace(size, machine, recipe)] if t.minutes else []
    return min(limits)


def _slots(settings: Settings) -> int:
    return LARGEST_BATCH if settings.batch.tokens == "auto" else settings.batch.tokens


def _propose(facts: Facts, tokens_a_pair: float, machine: Machine, recipe: Recipe) -> Choice:
    """Minutes for ten passes over the text, but at least some thousand updates, unless there is too little text for
    them; and at most two hours."""
    a_pass = facts.pairs * tokens_a_pair / _slots(recipe.settings)
    updates = min(max(FEWEST, PROPOSED * a_pass), BY_HEART * a_pass)
    minutes = round(updates * _pace(SIZES[1], machine, recipe) / 60 / USED)
    goal = f"{FEWEST:,} updates" if updates == FEWEST else _passes(updates / a_pass)
    goal = "two hours, the most that is proposed" if minutes > LONGEST_RUN else goal
    why = f"{goal}; half of it is enough for a first look, twice for the last bit"
    return Choice("training.minutes", int(min(LONGEST_RUN, max(SHORTEST_RUN, minutes))), why)


def _for_updates(facts: Facts, updates: float, tokens_a_pair: float, recipe: Recipe, device: str) -> Iterator[Choice]:
    """What depends on how often the text is gone through."""
    settings = recipe.settings
    smallest = _slots(settings)
    epochs = updates * smallest / (tokens_a_pair * facts.pairs)
    batch, enough = smallest, ENOUGH_UPDATES if epochs < OFTEN else ENOUGH_BY_THEN
    may_grow = not recipe.has("batch.tokens") and settings.training.steps is None  # else it would only take longer
    while may_grow and batch < LARGEST_BATCH and updates >= enough:
        batch, updates = 2 * batch, updates / 2
    if batch > smallest:
        yield Choice("batch.tokens", batch, "updates enough for larger batches")
    yield Choice("model.dropout", _dropout(epochs, facts.pairs, settings.model.d_model), _passes(epochs))
    yield _rate(settings, batch)
    if _may_be_guided(settings) and device != "cuda" and updates < GUIDED:
        yield Choice("training.guided_alignment", 0.5, "few updates: a lexicon shows a head where to look")
    why = "a tenth of the run" if SHORTEST <= updates / 10 <= LONGEST else "a tenth of the run, within limits"
    yield Choice("optimizer.warmup", int(min(LONGEST, max(SHORTEST, updates / 10))), why)
    yield Choice("training.log_every", int(min(50, max(10, updates / 60))))
    yield from _for_validations(updates, settings.training.minutes, device)


def _rate(settings: Settings, batch: int) -> Choice:
    width, training = settings.model.d_model, settings.training
    rate = 7e-4 if width >= 512 else min(LARGE_RATE, round(SMALL_RATE * math.sqrt(batch / SMALLEST_BATCH), 4))
    if training.lora_rank is not None:
        return Choice("optimizer.rate", rate, "adapters begin with nothing, and the model cannot be lost")
    if training.start is not None:
        return Choice("optimizer.rate", rate * GENTLE, "gentle, so that what the model knows is not lost")
    return Choice("optimizer.rate", rate, f"as a width of {width} and batches of {batch:,} bear it")


def _for_validations(updates: float, minutes: float | None, device: str) -> Iterator[Choice]:
    """With little time fewer of them, on a CPU of fewer lines."""
    number = 8 if minutes is None else int(min(8, max(3, (3 if device == "cuda" else 2) * minutes)))
    why = f"{number} validations, each with a checkpoint"
    yield Choice("training.validate_every", int(max(10, updates / number)), why)
    yield Choice("training.bleu_lines", 500 if device == "cuda" else int(min(500, max(200, 30 * (minutes or 0)))))


def _may_be_guided(settings: Settings) -> bool:
    """A new translator with attention, and a time at which its guide leaves it; one that there is knows where to
    look."""
    t, m = settings.training, settings.model
    is_new = t.start is None and settings.optimizer.schedule == "wsd"
    return is_new and not task_of(settings).labels and (m.kind != "rnn" or m.attention)


def _passes(epochs: float) -> str:
    return f"about {epochs:.1f} passes over the text" if epochs < 10 else f"about {epochs:,.0f} passes over the text"


def _dropout(epochs: float, pairs: int, width: int) -> float:
    """What is read a few times cannot be learned by heart, and a narrow model has little to learn it with."""
    for passes, dropout in ((6, 0.0), (15, 0.1), (40 if width >= WIDE else 100, 0.2)):
        if epochs < passes:
            return dropout
    return 0.4 if pairs < 35_000 else 0.3


def for_more_passes(passes: float, pairs: int, recipe: Recipe) -> Iterator[str]:
    """What changes for a run that goes on, and will have read its text so often. Tells it."""
    settings = recipe.settings
    dropout = _dropout(passes, pairs, settings.model.d_model)
    if dropout != settings.model.dropout:
        yield from recipe.choose(iter([Choice("model.dropout", dropout, _passes(passes))]))


def settings_of(wanted: Settings | Recipe) -> Settings:
    """Those of a run, as far as they are decided."""
    return wanted.settings if isinstance(wanted, Recipe) else wanted
