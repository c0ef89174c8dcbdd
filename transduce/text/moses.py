"""Words by the rules of Moses, cut into subwords by BPE (Sennrich et al., 2016): how some packages of Argos read text.
Only converted models have it.

A piece that does not end its word has @@ behind it: `ver@@ such@@ en`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any

from transduce.core.special import END, SPECIAL, UNKNOWN
from transduce.errors import SettingsError
from transduce.files import strict_json
from transduce.settings.sections import TextSettings
from transduce.text.normalise import normalise

NEEDS = "this model cuts text by the rules of Moses, which needs an extra: pip install sacremoses"
GOES_ON, WORD_END = "@@", "</w>"
ONLY_CONVERTED = "text.tokenizer=moses only comes with a converted model; train with bpe or unigram"


class MosesTokenizer:
    """Cuts and joins one language. Its file holds the language, the tokens by id, and the pairs that are merged, the
    first first; `apart`: the end of a word is a symbol of its own, as in the first version of such lists."""

    suffix = ".json"
    begin: tuple[int, ...] = ()

    def __init__(self, content: bytes) -> None:
        self._content = content
        held = strict_json.loads(content)
        self.language, self.tokens, self._apart = str(held["language"]), list(held["tokens"]), bool(held["apart"])
        self._ranks = {(str(a), str(b)): i for i, (a, b) in reversed(list(enumerate(held["merges"])))}
        if self.tokens[: len(SPECIAL)] != list(SPECIAL) or not all(isinstance(token, str) for token in self.tokens):
            raise ValueError("its special tokens have other ids")
        self.size = len(self.tokens)
        self._ids = {token: i for i, token in enumerate(self.tokens) if i > END}
        self._pieces_of = lru_cache(100_000)(self._segmented)

    @classmethod
    def of(cls, language: str, tokens: Sequence[str], codes: str) -> MosesTokenizer:
        """`codes`: a list of merges as subword-nmt writes it, a pair a line behind a line of its version."""
        lines = codes.splitlines()
        has_version = bool(lines) and lines[0].startswith("#version:")
        merges = [line.strip().split(" ") for line in lines[has_version:] if line.strip()]
        odd = next((pair for pair in merges if len(pair) != 2), None)
        if odd is not None:
            raise ValueError(f"{' '.join(odd)[:40]!r} is no pair of pieces")
        apart = not has_version or lines[0].split()[-1].startswith("0.1")
        held = {"language": language, "apart": apart, "tokens": list(tokens), "merges": merges}
        return cls(strict_json.dumps(held).encode())

    @classmethod
    def train(cls, texts: Iterable[str], settings: TextSettings, reserved: Sequence[str] = ()) -> MosesTokenizer:
        raise SettingsError(ONLY_CONVERTED)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._ids.get(piece, UNKNOWN) for piece in self.cut(text)] for text in texts]

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        raise SettingsError("text.sampling does not go with text.tokenizer=moses; set it to 0")

    def decode(self, ids: Sequence[int]) -> str:
        text = " ".join(self.tokens[i] for i in ids if i > END).replace(f"{GOES_ON} ", "").removesuffix(GOES_ON)
        return normalise(self._moses[2].detokenize(text.split(" "))) if text else ""

    def decode_all(self, texts: Sequence[Sequence[int]]) -> list[str]:
        return [self.decode(ids) for ids in texts]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.tokens[i] for i in ids]

    def cut(self, text: str) -> list[str]:
        normaliser, tokenizer, _ = self._moses
        words = tokenizer.tokenize(normaliser.normalize(text))
        return [piece for word in words for piece in self._pieces_of(word)]

    def to_bytes(self) -> bytes:
        return self._content

    @cached_property
    def _moses(self) -> tuple[Any, Any, Any]:
        try:
            import sacremoses  # noqa: PLC0415  (an extra)
        except ImportError as error:
            raise SettingsError(NEEDS) from error
        rules = (sacremoses.MosesPunctNormalizer, sacremoses.MosesTokenizer, sacremoses.MosesDetokenizer)
        made = [rule(self.language) for rule in rules]
        return made[0], made[1], made[2]

    def _segmented(self, word: str) -> list[str]:
        """The pair that was learned first is merged everywhere, then the next, until none is left."""
        symbols = [*word, WORD_END] if self._apart else [*word[:-1], word[-1] + WORD_END]
        while len(symbols) > 1:
            best = min(
                zip(symbols, symbols[1:], strict=False), key=lambda pair: self._ranks.get(pair, len(self._ranks))
            )
            if best not in self._ranks:
                break
            symbols = _merged(symbols, best)
        if symbols[-1] == WORD_END:
            symbols.pop()
        symbols[-1] = symbols[-1].removesuffix(WORD_END)
        return [*(symbol + GOES_ON for symbol in symbols[:-1]), symbols[-1]]


def _merged(symbols: list[str], pair: tuple[str, str]) -> list[str]:
    """With every such pair as one symbol, from left to right."""
    found: list[str] = []
    place = 0
    while place < len(symbols):
        here = tuple(symbols[place : place + 2]) == pair
        found.append("".join(pair) if here else symbols[place])
        place += 2 if here else 1
    return found
