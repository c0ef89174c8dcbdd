"""Subwords of bytes, as GPT-2 and BART cut text: they only come with converted models, in the file that Hugging Face's
library `tokenizers` writes.

Its pieces are bytes in disguise (`Ġ` is a space, `Ã¼` an ü), so any text can be cut, and a piece may be half a
character.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from transduce.core.special import BEGIN, END, PAD, SPECIAL
from transduce.errors import SettingsError
from transduce.settings.sections import TextSettings
from transduce.text.normalise import normalise

NEEDS = "this model cuts text by bytes, as BART does, which needs an extra: pip install tokenizers"
SPACE = "▁"


class ByteLevelTokenizer:
    """BPE over bytes. Ids 0 to 3 are the special tokens."""

    suffix = ".json"
    begin: tuple[int, ...] = ()

    def __init__(self, content: bytes) -> None:
        try:
            self._tokenizer: Any = _library().Tokenizer.from_str(content.decode())
        except SettingsError:
            raise
        except Exception as error:  # which is all that the library says of a damaged file
            raise ValueError(str(error)[:100]) from error
        self.size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        names = [self._tokenizer.id_to_token(i) for i in range(self.size)]
        if names[: len(SPECIAL)] != list(SPECIAL) or not all(names):
            raise ValueError("its special tokens have other ids, or some have no name")

    @classmethod
    def train(cls, texts: Iterable[str], settings: TextSettings, reserved: Sequence[str] = ()) -> ByteLevelTokenizer:
        raise SettingsError("text.tokenizer=bytes only comes with a converted model; train with bpe or unigram")

    @classmethod
    def of(cls, vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> ByteLevelTokenizer:
        """From tokens with their ids, special ones first, and the pairs that are merged, the first first."""
        library = _library()
        made = library.Tokenizer(library.models.BPE(vocab=dict(vocabulary), merges=list(merges), unk_token="<unk>"))  # noqa: S106
        made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = library.decoders.ByteLevel()
        return cls(made.to_str().encode())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [found.ids for found in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def sample(self, texts: Sequence[str], amount: float, seed: int) -> list[list[int]]:
        raise SettingsError("text.sampling does not go with text.tokenizer=bytes; set it to 0")

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_all([ids])[0]

    def decode_all(self, texts: Sequence[Sequence[int]]) -> list[str]:
        plain = [[i for i in ids if i not in (PAD, BEGIN, END)] for ids in texts]
        return [normalise(text) for text in self._tokenizer.decode_batch(plain, skip_special_tokens=False)]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._readable[i] for i in ids]

    def cut(self, text: str) -> list[str]:
        return self.pieces(self.encode([text])[0])

    def to_bytes(self) -> bytes:
        return self._tokenizer.to_str().encode()

    @cached_property
    def _readable(self) -> list[str]:
        """Each token as text; what is no whole character stays in its disguise, so that no two are alike."""
        names = [self._tokenizer.id_to_token(i) for i in range(self.size)]
        plain = self._tokenizer.decoder.decode
        read = [name if name[0] + name[-1] == "<>" else plain([name]).replace(" ", SPACE) for name in names]
        known: dict[str, int] = {}
        for i, text in enumerate(read):
            if "\ufffd" in text or not text or text in known:
                read[i] = names[i]
            known[read[i]] = i
        return read


def _library() -> Any:
    try:
        import tokenizers  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise SettingsError(NEEDS) from error
    return tokenizers
