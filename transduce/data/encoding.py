"""What to do with text that is not UTF-8: its encoding as charset-normalizer guesses it, and the command that converts
it. The only file that imports charset-normalizer, and only once a line has failed."""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from transduce.data.packed import KINDS, bare_name

BYTE_ORDER_MARKS = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
# Those that are met; where several read a text alike, the first (cp1252 has all of Latin-1, gb18030 all of GBK).
COMMON = (
    *("gb18030", "big5", "cp932", "euc_jp", "cp949", "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1255"),
    *("cp1256", "koi8_r", "iso8859_2", "iso8859_5", "iso8859_7", "utf_16", "utf_32"),
)
FEW = 8  # bytes beyond ASCII, from which no encoding can be told by what is usual
UNPACK = {"gzip": "gzip -dc", "xz": "xz -dc", "zstd": "zstd -dc"}


def way_out(name: str, lines: Sequence[bytes], before: int = 0) -> str:
    """What a user can do about text whose `lines`, from the first that failed on, are not all UTF-8. `before`: so many
    lines before it are, and not only ASCII."""
    foreign = [line for line in lines if not line.isascii()]
    if len(foreign) > 2 and sum(map(is_utf8, foreign)) > len(foreign) / 2:
        return "most lines are UTF-8, so mend or delete this one; transduce doctor finds all of them"
    encoding = guess(b"\n".join(foreign))
    if encoding is None:
        return "nor could its encoding be guessed; convert it to UTF-8"
    if before > 2 and not encoding.startswith("UTF"):
        return (
            f"the lines before it are, so only a part of the text may be {encoding}: convert that part; transduce "
            f"doctor finds all such lines, and its --clean leaves them out"
        )
    return f"it may be {encoding}; convert it: {iconv(name, encoding)}"


def is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def guess(text: bytes) -> str | None:
    """The most likely encoding, as iconv calls it."""
    from charset_normalizer import from_bytes  # noqa: PLC0415  (it takes a while, and is hardly ever asked)

    for mark, encoding in BYTE_ORDER_MARKS.items():  # UTF-32 first: its mark begins with that of UTF-16
        if text.startswith(mark):
            return encoding
    foreign = re.findall(rb"[\x80-\xff]", text)
    words = re.findall(rb"\S*[\x80-\xff]\S*", text)
    if 1 < len(foreign) < FEW and all(re.search(rb"[A-Za-z]", word) for word in words):
        return "CP1252"  # a few accents within Latin words, which are like Korean to a guesser
    best = from_bytes(text, cp_isolation=list(COMMON)).best()
    if best is None:
        return None
    alike = [best.encoding, *best.could_be_from_charset]
    name = next((name for name in COMMON if name in alike), best.encoding)
    return codecs.lookup(name).name.upper().replace("_", "-")


def iconv(name: str, encoding: str) -> str:
    """The command that converts a file."""
    convert = f"iconv -f {encoding} -t UTF-8"
    if name == "standard input":
        return convert
    plain = Path(bare_name(name))
    output = shlex.quote(str(plain.with_name(f"{plain.stem}.utf8{plain.suffix}")))
    if kind := KINDS.get(Path(name).suffix):
        return f"{UNPACK[kind]} {shlex.quote(name)} | {convert} > {output}"
    return f"{convert} {shlex.quote(name)} > {output}"
