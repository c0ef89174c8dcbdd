"""The bundled corpus: what it promises about size, splits and grammar."""

from __future__ import annotations

from random import Random

import pytest

from transduce.bundled import grammar, lexicon, sentences
from transduce.bundled.corpus import bundled, reserved
from transduce.bundled.grammar import PRONOUNS, Clause, Subject, Thing, english, german


@pytest.fixture(scope="module")
def corpus():
    return bundled(train=50_000)


def words(text: str) -> list[str]:
    return text.replace(",", "").replace("?", "").split()


def test_fifty_thousand_distinct_pairs_in_reach(corpus) -> None:
    assert len({pair.source for pair in corpus.train}) == 50_000
    assert all(2 <= len(words(pair.source)) <= 20 for pair in corpus.train)
    german_words = {word for pair in corpus.train for word in words(pair.source)}
    english_words = {word for pair in corpus.train for word in words(pair.target)}
    assert 550 < len(german_words) < 750
    assert 400 < len(english_words) < 600


def test_splits_share_no_sentence(corpus) -> None:
    train, dev, test = ({pair.source for pair in split} for split in (corpus.train, corpus.dev, corpus.test))
    assert not train & dev
    assert not train & test
    assert not dev & test
    assert (len(dev), len(test)) == (500, 1000)


def test_half_of_test_combines_what_training_saw_apart(corpus) -> None:
    seen = {combination for pair in corpus.train for combination in pair.combinations}
    parts = {part for combination in seen for part in combination}
    for pair in corpus.test[500:]:
        new = pair.combinations - seen
        assert new, pair
        assert all(part in parts for combination in new for part in combination), pair
    assert not any(reserved(pair) for pair in [*corpus.train, *corpus.dev, *corpus.test[:500]])


def test_the_same_for_the_same_seed_and_dev_and_test_for_any_size() -> None:
    one, two, other = bundled(train=300), bundled(train=10), bundled(train=10, seed=2)
    assert one.train[:10] == two.train
    assert (one.dev, one.test) == (two.dev, two.test)
    assert other.test != two.test


def test_a_sentence_has_one_translation(corpus) -> None:
    rng, known = Random(5), {}
    for _ in range(30_000):
        pair = sentences.sentence(rng)
        assert known.setdefault(pair.source, pair.target) == pair.target


@pytest.mark.parametrize(
    "text",
    ["weil", "dass", "wenn", "nicht", "keinen", "zusammen mit freunden", "?", "warum", "möchte", "drei", "gern"],
)
def test_what_makes_it_interesting_is_there(corpus, text: str) -> None:
    assert sum(text in pair.source for pair in corpus.train) > 50


def verb(infinitive: str) -> lexicon.Verb:
    every = lexicon.TRANSITIVE + lexicon.INTRANSITIVE + lexicon.GIVING
    return next(v for v in every if v.prefix + v.german == infinitive)


def phrase(table: list[lexicon.Phrase], text: str) -> lexicon.Phrase:
    return next(p for p in table if text in p.german.split(" / ")[0])


ICH, ER = PRONOUNS[0], PRONOUNS[2]
LEHRER = Thing("den alten lehrer", "the old teacher")
BIER = Thing("ein bier", "a beer", definite=False)


def test_orders_and_tenses() -> None:
    modal = Clause(ICH, verb("trinken"), "progressive", thing=BIER, modal=lexicon.MODALS[0])
    assert german(modal, "second") == "ich möchte ein bier trinken"
    assert english(modal) == "i want to drink a beer"

    tomorrow = next(t for t in lexicon.TIMES if t.german == "morgen")
    pick_up = Clause(ER, verb("abholen"), "future", thing=LEHRER, time=tomorrow, time_first=True)
    assert german(pick_up, "second") == "morgen holt er den alten lehrer ab"
    assert german(pick_up, "first") == "holt er morgen den alten lehrer ab"
    assert german(pick_up, "last") == "er morgen den alten lehrer abholt"
    assert english(pick_up) == "tomorrow he will pick up the old teacher"

    went = Clause(ER, verb("gehen"), "past", place=phrase(lexicon.PLACES, "nach hause"), negated=True)
    assert german(went, "second") == "er ist nicht nach hause gegangen"
    assert german(went, "last") == "er nicht nach hause gegangen ist"
    assert english(went) == "he did not go home"
    assert english(went, question=True, question_word="why") == "why did he not go home"


def test_time_manner_place() -> None:
    manner = phrase(lexicon.MANNERS, "mit dem bus")
    today = next(t for t in lexicon.TIMES if t.german == "heute")
    trip = Clause(
        ICH, verb("fahren"), "progressive", time=today, manner=manner, place=phrase(lexicon.PLACES, "nach berlin")
    )
    assert german(trip, "second") == "ich fahre heute mit dem bus nach berlin"
    assert english(trip) == "i am going to berlin by bus today"


def test_conjugation() -> None:
    forms = {
        "arbeiten": "arbeite arbeitest arbeitet arbeiten arbeitet arbeiten",
        "lesen": "lese liest liest lesen lest lesen",
        "einladen": "lade lädst lädt laden ladet laden",
        "tanzen": "tanze tanzt tanzt tanzen tanzt tanzen",
        "fahren": "fahre fährst fährt fahren fahrt fahren",
        "finden": "finde findest findet finden findet finden",
        "essen": "esse isst isst essen esst essen",
        "treffen": "treffe triffst trifft treffen trefft treffen",
    }
    for infinitive, expected in forms.items():
        assert " ".join(verb(infinitive).present(person) for person in range(6)) == expected


def test_articles_and_adjectives_agree() -> None:
    noun = {n.german: n for n in lexicon.NOUNS}
    junge, frau, haus = noun["junge"], noun["frau"], noun["haus"]
    assert [junge.form(case, "singular") for case in ("nominative", "accusative", "dative")] == [
        "junge",
        "jungen",
        "jungen",
    ]
    assert haus.form("dative", "plural") == "häusern"
    assert frau.form("dative", "plural") == "frauen"
    endings = {
        ("weak", "nominative", "m"): "e",
        ("weak", "accusative", "m"): "en",
        ("weak", "nominative", "p"): "en",
        ("mixed", "nominative", "m"): "er",
        ("mixed", "accusative", "n"): "es",
        ("mixed", "dative", "f"): "en",
        ("strong", "accusative", "p"): "e",
    }
    for arguments, ending in endings.items():
        assert grammar.adjective_ending(*arguments) == ending, arguments


def test_english_details() -> None:
    assert [grammar.third_person(v) for v in ("watch tv", "tidy up", "go", "have to", "buy", "wash")] == [
        "watches tv",
        "tidies up",
        "goes",
        "has to",
        "buys",
        "washes",
    ]
    can = next(m for m in lexicon.MODALS if m.english == "can")
    cannot = Clause(Subject("sie", "they", 5), verb("schlafen"), "progressive", modal=can, negated=True)
    assert english(cannot) == "they cannot sleep"
    assert english(cannot, question=True) == "can they not sleep"
