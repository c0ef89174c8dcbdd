"""The vocabulary of a folder of Hugging Face's, and its SentencePiece models, in our numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transduce.errors import ModelError
from transduce.files.reading import VOCABULARY
from transduce.formats.hugging_face_json import FAIRSEQ, TOKENIZER, added_tokens, sentence_model, subwords_of_bytes
from transduce.formats.json_files import read_file, read_json, whole
from transduce.formats.pieces import kind_of, read_pieces, renumbered
from transduce.formats.vocabulary import Special, Vocabulary, by_id, mark_in_text, marks_in_text
from transduce.text.byte_level import ByteLevelTokenizer
from transduce.text.languages import EVERY_TEXT, mark_of

SENTENCE_PIECES = "sentencepiece.bpe.model"
LISTS = ("special_tokens_map.json", "tokenizer_config.json")  # either may name the languages
KNOWN_CUTTERS = {"", "M2M100Tokenizer", "NllbTokenizer", "MBart50Tokenizer", "MBartTokenizer", "PreTrainedTokenizer"}
KNOWN_CUTTERS |= {"TokenizersBackend"}  # as the newest programs call any
MARK = re.compile(r"__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")  # of a language
NO_LANGUAGES = ("<mask>", *FAIRSEQ)
OF_MBART = (  # the older one, whose folders list no languages
    *("ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX"),
    *("kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN"),
    "zh_CN",
)
OF_MBART50 = (
    *OF_MBART,
    *("af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN", "mn_MN"),
    *("mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX", "uk_UA", "ur_PK"),
    *("xh_ZA", "gl_ES", "sl_SI"),
)


class Text(NamedTuple):
    """Settings of the section `text`, and the vocabularies with their files: source and target, or one for both."""

    settings: dict[str, Any]
    vocabularies: list[Vocabulary]
    files: list[bytes]
    model: Mapping[str, Any] = {}  # settings of the section `model` that follow from how text is read
    begins: int = 0  # tokens that every translation begins with, behind decoder_start_token_id


def text_of_two(folder: Path, config: Mapping[str, Any]) -> Text:
    """Marian's: a SentencePiece model a side, one list of tokens or two."""
    shared = bool(config.get("share_encoder_decoder_embeddings", True))
    names = _names(folder / "vocab.json")
    known = set(names.values())
    extra = {i: f"▁{token}" for token, i in _added(folder).items()}  # words of their own in a text
    added = {i: token for i, token in extra.items() if i not in names and token not in known}
    names |= added
    source = target = Vocabulary.of(names, whole(config, "vocab_size"), _special(config, names))
    if not shared:
        names = _names(folder / "target_vocab.json")
        size = whole(config, "decoder_vocab_size", config.get("vocab_size"))
        target = Vocabulary.of(names, size, _special(config, names))
    models = [read_file(folder / f"{side}.spm", VOCABULARY) for side in ("source", "target")]
    sizes = {"vocabulary": len(source.tokens), "target_vocabulary": len(target.tokens)}
    settings = {"tokenizer": kind_of(models[0]), "joint": False, "same_ids": shared, **sizes}
    both = zip(models, (source, target), strict=True)
    files = [renumbered(model, v.tokens, [*marks_in_text(v.tokens), *added.values()]) for model, v in both]
    return Text(settings, [source, target], files)


def text_of_many(folder: Path, config: Mapping[str, Any]) -> Text:
    """One SentencePiece model for many languages, with their marks behind its pieces: M2M100, NLLB, mBART-50; and the
    older mBART, whose sources end with END and a mark, and whose translations begin with the mark of one language."""
    cutter = _cutter(folder)
    if cutter not in KNOWN_CUTTERS or any(folder.glob("tokenization_*.py")):
        raise ModelError(
            f"{folder} puts marks of languages in a way of its own ({cutter}), in code that is not run here"
        )
    newer = not (folder / SENTENCE_PIECES).exists() and (folder / TOKENIZER).exists()
    model = sentence_model(folder) if newer else read_file(folder / SENTENCE_PIECES, VOCABULARY)
    if (folder / "vocab.json").exists():  # M2M100 lists its tokens
        names = by_id(read_json(folder / "vocab.json", VOCABULARY))
    else:
        pieces = [piece.text for piece in read_pieces(model)][len(FAIRSEQ) - 1 :]  # theirs has no <pad>
        names = dict(enumerate([*FAIRSEQ, *pieces]))
    added = _added(folder)
    room = whole(config, "vocab_size") - len(names)
    languages = _languages(folder, len(names), added, _of_mbart(config, room))
    names |= {i: mark_of(language) for i, language in languages.items()}
    # M2M100's program finds words that somebody added between spaces, all others anywhere in a text.
    space = "▁" if (folder / "vocab.json").exists() else ""
    words = {i: f"{space}{word}" for word, i in added.items() if i not in names and word not in NO_LANGUAGES}
    known = set(names.values())
    words = {i: word for i, word in words.items() if word not in known}
    names |= words
    special = _special(config, names)
    older = special.begin in languages
    if not older and special.begin != special.end and special.begin in names:
        raise ModelError(
            f"{folder} begins its translations with the token {special.begin}, which is no language's mark"
        )
    vocabulary = Vocabulary.of(names, whole(config, "vocab_size"), special)
    marks = [mark_of(language) for language in languages.values()]
    settings = {"tokenizer": kind_of(model), "joint": True, "vocabulary": len(vocabulary.tokens)}
    settings |= {"mark_place": "behind"} if older else {}
    forced = config.get("forced_bos_token_id")
    if not older and isinstance(forced, int) and forced in languages:  # a model of many languages to one
        settings |= {"target_language": languages[forced]}
    marks = [mark for mark in marks if mark in vocabulary.tokens]
    files = [renumbered(model, vocabulary.tokens, [*words.values()], marks)]
    return Text(settings, [vocabulary], files, {"source_end": False} if older else {}, begins=0 if older else 1)


def _of_mbart(config: Mapping[str, Any], room: int) -> Sequence[str]:
    """The languages of a folder that lists none: those of mBART-50 where translations begin with </s>, else of the
    older."""
    newer = config.get("decoder_start_token_id") == config.get("eos_token_id")
    known = OF_MBART50 if newer else OF_MBART
    return known if config.get("model_type") == "mbart" and room >= len(known) else ()


def _cutter(folder: Path) -> str:
    """The class that a folder says its tokenizer is of, without what tells its speed."""
    path = folder / "tokenizer_config.json"
    named = read_json(path, VOCABULARY).get("tokenizer_class") if path.exists() else None
    return str(named or "").removesuffix("Fast")


def text_of_bytes(folder: Path, config: Mapping[str, Any]) -> Text:
    """BART's: subwords of bytes, and a <s> before every text of both sides, which is a mark here."""
    if not (folder / "vocab.json").exists() and (folder / TOKENIZER).exists():
        names, merges = subwords_of_bytes(folder)
    else:
        names, merges = by_id(read_json(folder / "vocab.json", VOCABULARY)), _merges(folder / "merges.txt")
    begin = whole(config, "bos_token_id", 0)
    special = _special(config, names)
    vocabulary = Vocabulary.of({**names, begin: mark_of(EVERY_TEXT)}, whole(config, "vocab_size"), special)
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    settings = {"tokenizer": "bytes", "joint": True, "vocabulary": len(ids)}
    settings |= {"source_language": EVERY_TEXT, "target_language": EVERY_TEXT}
    odd = next((pair for pair in merges if not {*pair, "".join(pair)} <= ids.keys()), None)
    if odd is not None:
        raise ModelError(f"{folder}: a merge of its tokenizer does not fit its vocabulary: {' '.join(odd)[:80]!r}")
    return Text(settings, [vocabulary], [ByteLevelTokenizer.of(ids, merges).to_bytes()], begins=1)


def _merges(path: Path) -> list[tuple[str, str]]:
    """Pairs, a line each behind a line of its version."""
    lines = read_file(path, VOCABULARY).decode("utf-8", "replace").splitlines()
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    odd = next((pair for pair in pairs if len(pair) != 2), None)
    if odd is not None:
        raise ModelError(f"{path} has a merge that is no pair: {' '.join(odd)[:80]!r}")
    return [(left, right) for left, right in pairs]


def _languages(folder: Path, first: int, added: Mapping[str, int], usual: Sequence[str]) -> dict[int, str]:
    """By the ids of their marks, which follow the pieces in the order of the list; `usual`: where no list is there. A
    list may be of those alone that were added last; the others are then added tokens that look like a language."""
    unlisted = {i: token.strip("_") for token, i in added.items() if i >= first and MARK.fullmatch(token)}
    for name in LISTS:
        found = read_json(folder / name, VOCABULARY) if (folder / name).exists() else {}
        listed = found.get("additional_special_tokens") or found.get("extra_special_tokens")
        if isinstance(listed, list):
            named = [str(token.get("content") if isinstance(token, dict) else token) for token in listed]
            codes = [token.strip("_") for token in named if token not in NO_LANGUAGES]
            if not all(code and not code.isspace() and " " not in code for code in codes):
                raise ModelError(f"{folder / name} names languages in no known way")
            exact = {token.strip("_"): i for token, i in added.items()}
            found_ids = {exact.get(code, first + i): code for i, code in enumerate(codes)}
            if len(found_ids) < len(codes):
                raise ModelError(f"{folder / name} gives one number to two languages")
            if codes:
                return {**unlisted, **found_ids}
    if unlisted or usual:
        return unlisted or {first + i: code for i, code in enumerate(usual)}
    raise ModelError(f"{folder} does not say which languages it knows: {' or '.join(LISTS)} should list their marks")


def _added(folder: Path) -> dict[str, int]:
    """Tokens that somebody added to a vocabulary, with their ids: older and newer files say it in different places."""
    older, newer = folder / "added_tokens.json", folder / "tokenizer_config.json"
    found: dict[str, Any] = added_tokens(folder)
    found |= read_json(older, VOCABULARY) if older.exists() else {}
    listed = read_json(newer, VOCABULARY).get("added_tokens_decoder") if newer.exists() else None
    if isinstance(listed, Mapping):
        found |= {str(one["content"]): i for i, one in listed.items() if isinstance(one, Mapping) and "content" in one}
    return {token: int(i) for token, i in found.items() if str(i).isdecimal() and len(str(i)) < 10}


def _names(path: Path) -> dict[int, str]:
    """Tokens by id."""
    return {i: mark_in_text(name) for i, name in by_id(read_json(path, VOCABULARY)).items()}


def _special(config: Mapping[str, Any], names: Mapping[int, str]) -> Special:
    unknown = next((i for i, name in names.items() if name == "<unk>"), -1)
    keys = ("pad_token_id", "decoder_start_token_id", "eos_token_id")
    pad, begin, end = (whole(config, key) for key in keys)
    return Special(pad, unknown, begin, end)
