"""What hostile.py does to models, runs and texts: one small function a mutation, one list a kind.

A mutation gets a folder and a source of random numbers, and changes the folder. `must` says what a command then has to
do: REFUSED is exit code 2, ACCEPTED is 0, EITHER is both but no crash; SAME is refused, or trained as if nothing had
happened, to the same weights. "Signed" mutations bring the manifest up to date, so that other checks must find them.

Around the folder lie ../../victim.txt and ../../../outside, with files that nobody may write to (hostile.lay_out).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

REFUSED, ACCEPTED, EITHER, SAME = "refused", "accepted", "either", "same"
UNTOUCHED = "must not change"  # the content of every victim.txt
Change = Callable[[Path, Random], Any]
Damage = Callable[[bytes, Random], bytes]
Wrap = Callable[[Any], Change]  # makes a change of a damage, say
Table = list[tuple[str, str, Any]]  # title, what must happen, how
Names = tuple[str, ...]


class Mutation(NamedTuple):
    name: str
    must: str
    change: Change
    only: Names = ()  # commands that it is tried with; none: all of its kind
    spared: Names = ()  # commands that need not look at it: either is right


def mutations(
    name: str, entries: Table, wrap: Wrap | None = None, must: str = "", only: Names = (), spared: Names = ()
) -> list[Mutation]:
    """One for each entry of a table, which `wrap` makes a change of; `must` is stronger than what the table says."""
    return [
        Mutation(f"{name} {title}".strip(), must or its, wrap(how) if wrap else how, only, spared)
        for title, its, how in entries
    ]


def table(must: str, **entries: Any) -> Table:
    """Entries that all must end alike; their titles with _ for a space."""
    return [(title.replace("_", " "), must, how) for title, how in entries.items()]


def wrong(entries: Table) -> Table:
    """Those that nobody may accept."""
    return [entry for entry in entries if entry[1] == REFUSED]


STEERING = "\x1b[2J\x1b]0;title\x07\x9b31m"  # clears a screen, names a window, makes red
NOTHING = Mutation("nothing", ACCEPTED, lambda folder, random: None)  # the control

# ---- any file --------------------------------------------------------------------------------------------------------


def _splice(content: bytes, random: Random, removed: int, inserted: int) -> bytes:
    place = random.randrange(max(1, len(content) - removed))
    return content[:place] + random.randbytes(inserted) + content[place + removed :]


def _flip(content: bytes, random: Random) -> bytes:
    place = random.randrange(len(content))
    return content[:place] + bytes([content[place] ^ random.randrange(1, 256)]) + content[place + 1 :]


DAMAGES = table(
    EITHER,
    flipped=_flip,
    inserted=lambda content, random: _splice(content, random, 0, random.randint(1, 16)),
    taken_out=lambda content, random: _splice(content, random, random.randint(1, 16), 0),
    cut=lambda content, random: content[: random.randrange(len(content))],
    emptied=lambda content, random: b"",
    noise=lambda content, random: random.randbytes(len(content) + 1),
)


def outside(path: Path) -> Path:
    """The folder beside all that a command is given."""
    return next(parent / "outside" for parent in path.parents if (parent / "outside").is_dir())


def linked(name: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(outside(path) / name)


def make_sparse(path: Path, size: int = 100 << 30) -> None:
    path.touch()
    os.truncate(path, size)


STAND_INS: Table = [  # what takes the place of a file, which is moved to the outside
    *table(
        REFUSED,
        deleted=lambda path: None,
        a_folder=Path.mkdir,
        a_pipe=os.mkfifo,
        a_link_to_a_device=linked("zero"),
        a_link_to_another_file=linked("victim.txt"),
        a_link_to_itself=lambda path: path.symlink_to(path),
        of_100_GB=make_sparse,
    ),
    ("a link to the same elsewhere", EITHER, linked("moved")),
]


def instead(name: str) -> Wrap:
    def change(put: Callable[[Path], None], folder: Path) -> None:
        (folder / name).rename(outside(folder) / "moved")
        put(folder / name)

    return lambda put: lambda folder, random: change(put, folder)


def unsigned(name: str) -> Wrap:
    def change(damage: Damage, folder: Path, random: Random) -> None:
        content = (folder / name).read_bytes()
        damaged = damage(content, random)
        assert damaged != content, f"{name} is as it was"
        (folder / name).write_bytes(damaged)

    return lambda damage: lambda folder, random: change(damage, folder, random)


def signed(name: str) -> Wrap:
    return lambda damage: lambda folder, random: [unsigned(name)(damage)(folder, random), sign(folder)]


def sign(folder: Path) -> None:
    """Make manifest.json, or store.json, say what the files are now; it may keep checksums, sizes, or both."""

    def now(name: str, old: Any) -> Any:
        return _fact(old, (folder / name).read_bytes()) if (folder / name).is_file() else old

    for path in (folder / name for name in ("manifest.json", "store.json") if (folder / name).is_file()):
        _edit_lists(path, lambda names: {name: now(name, old) for name, old in names.items()})


def _fact(like: Any, content: bytes) -> Any:
    """A checksum or a size, whichever is kept of others."""
    if isinstance(like, dict):
        return {key: _fact(value, content) for key, value in like.items()}
    return len(content) if isinstance(like, int) else hashlib.sha256(content).hexdigest()


def _edit_lists(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Something else for what is said of files by their names."""
    parts = json.loads(path.read_text())
    edited = {key: edit(names) if isinstance(names, dict) else names for key, names in parts.items()}
    path.write_text(json.dumps(edited, indent=1))


def _names(edit: Callable[[dict[str, Any]], Any]) -> Change:
    """Something else for the names of a manifest."""
    return lambda folder, random: _edit_lists(folder / "manifest.json", edit)


def unlist(name: str) -> Change:
    """Take a name out of the manifest."""
    return _names(lambda names: {other: names[other] for other in names if other != name})


def unchecked(name: str, must: str = "", only: Names = (), spared: Names = ()) -> list[Mutation]:
    """Whatever can happen to a file while its manifest stays as it is."""
    damages = mutations(name, DAMAGES, unsigned(name), must or REFUSED, only, spared)
    return damages + mutations(name, STAND_INS, instead(name), must, only, spared)


# ---- manifest.json ---------------------------------------------------------------------------------------------------


def _deep(depth: int = 100_000) -> str:
    return "[" * depth + "]" * depth


def _also(name: str) -> Change:
    """One more name in the manifest, OUTSIDE for that folder, with the right checksum of a victim.txt."""

    def change(folder: Path, random: Random) -> None:
        real = name.replace("OUTSIDE", str(outside(folder)))
        fact = lambda names: _fact(next(iter(names.values())), UNTOUCHED.encode())  # noqa: E731
        _names(lambda names: {**names, real: fact(names)})(folder, random)

    return change


def _also_made(name: str, make: Callable[[Path], Any]) -> Change:
    return lambda folder, random: [make(folder / name), _also(name)(folder, random)]


def _whole(make: Callable[[str], str]) -> Change:
    """Another text for the manifest."""
    return unsigned("manifest.json")(lambda content, random: make(content.decode()).encode())


def _twice(words: str) -> str:
    """The same names once more, in JSON."""
    return f"{words.rstrip()[:-1]}, {words.lstrip()[1:]}"


_WHOLE = ("[]", "7", "null", '{"sha256": "abc"}', "{}", _deep(), '{"sha256": {"config.yaml": ' + _deep() + "}}", "NaN")
MANIFESTS: Table = [
    *((f"is {text[:32]}", REFUSED, _whole(lambda old, text=text: text)) for text in _WHOLE),
    *(
        (f"says {value}", REFUSED, _names(lambda names, v=value: dict.fromkeys(names, v)))
        for value in (7, None, [], {})
    ),
    *table(
        REFUSED,
        a_name_above=_also("../../victim.txt"),
        a_name_far_above=_also("weights/../../../../outside/victim.txt"),
        an_absolute_name=_also("OUTSIDE/victim.txt"),
        a_name_with_backslashes=_also("..\\..\\victim.txt"),
        a_name_with_NUL=_also("config\0.yaml"),
        a_name_with_a_line_feed=_also("config\ntransduce: all is well"),
        a_name_that_steers_the_terminal=_also(f"config{STEERING}.yaml"),
        half_a_character_as_a_name=_also("\ud800"),
        a_name_of_5000_characters=_also("a" * 5000),
        a_name_of_5000_folders=_also("a/" * 5000 + "b"),
        no_name=_also(""),
        a_device_as_a_name=_also("OUTSIDE/zero"),
        without_model=unlist("model.safetensors"),
        without_any_name=_names(lambda names: {}),
        a_list_of_names=_names(list),
        with_200000_names=_names(lambda names: {**names, **{f"file-{i}": "0" for i in range(200_000)}}),
    ),
    ("a folder as a name", EITHER, _also_made("some", Path.mkdir)),  # average need not look at it
    ("a pipe as a name", EITHER, _also_made("pipe", os.mkfifo)),
    ("20 MB of spaces", EITHER, _whole(lambda old: " " * 20_000_000 + old)),
    ("names said twice", EITHER, _whole(_twice)),
]

# ---- config.yaml -----------------------------------------------------------------------------------------------------


def _key(name: str, value: str) -> Damage:
    """Another value for a key, as it is written in the file."""
    line = re.compile(rf"(?m)^(  {name}:).*$")
    return lambda content, random: line.sub(lambda found: f"{found[1]} {value}", content.decode()).encode()


def _model(text: str) -> Damage:
    """Another text for the section `model`."""
    lines = re.compile(r"(?m)^model:\n(  .*\n)*")
    return lambda content, random: lines.sub(lambda found: text, content.decode(), count=1).encode()


def _alias_bomb() -> str:
    """One value of a billion words, in a few hundred characters."""
    value = "[lol]"
    for level in range(9):
        value = f"[&a{level} {value}" + f", *a{level}" * 9 + "]"
    return value


_WRONG = {  # values that no model can have
    "layers": "[1, 2]|{a: 1}|2001-99-99|2001-01-01|!!int abc|!!float x|''|-1|0|1000|1e9|.nan|.inf|true|!!binary ä",
    "d_model": "15|1048576|1e15|-16|!!python/object/apply:os.system ['touch owned']|" + "9" * 5000,
    "heads": "3|0|1000000|&a [*a]",
    "max_positions": "0|-5",
    "dropout": ".nan|.inf|-0.5|2|a: b|" + _alias_bomb(),
    "tokenizer": "words|labels|[bpe]|../../victim",
    "kind": "rnn|classifier|[transformer]|{}|os.system",
    "length_penalty": ".nan|.inf|-1|" + _deep(),
    "device": "floppy|[]",
    "seed": "-1|!!timestamp 7",
}
_ODD = {  # values that a model might have
    "beam": "100000000",
    "extra": "1000000000",
    "tokens": "1000000000000|1",
    "length_penalty": "1e30",
    "vocabulary": "7",
    "max_positions": "2147483647|100000000",
    "eps": "1e-300",
    "bleu_tokenizer": "nonsense",
}


def _keys(must: str, values: dict[str, str]) -> Table:
    pairs = ((key, value) for key, several in values.items() for value in several.split("|"))
    return [(f"{key}={value[:24]}", must, _key(key, value)) for key, value in pairs]


_PATTERNS = {  # that cannot be compiled, and that match in ways without number
    REFUSED: ["a{4294967295}", "(" * 5000 + "a" + ")" * 5000, "(", "a*", "(?R)"],
    EITHER: [
        r"(\w+\s?)+\d",
        "(a|a)*b",
        "(?:e|er|r)*[0-9]",
        r"\s*\s*\s*[0-9]",
        r"(.*)*\1[0-9]",
        "(?:(?:x{999}){999}){999}",
    ],
}
CONFIGS: Table = [
    *_keys(REFUSED, _WRONG),
    *_keys(EITHER, _ODD),
    *(
        (f"protect_pattern={pattern[:24]}", must, _key("protect_pattern", f"'{pattern}'"))
        for must, patterns in _PATTERNS.items()
        for pattern in patterns
    ),
    *(
        (f"{key} that steers the terminal", REFUSED, _key(key, json.dumps(STEERING).replace("\\u00", "\\x")))
        for key in ("tokenizer", "kind", "layers", "device")
    ),
    *table(
        REFUSED,
        without_model=_model(""),
        model_a_list=_model("model: [1]\n"),
        keys_that_are_lists=_model("model: {[1]: 2, ? {a: b} : 3}\n"),
        keys_that_are_numbers=_model("7: 8\n1.5: {2: 3}\n"),
        an_unknown_key=lambda content, random: content + b"  nonsense: 1\n",
        an_unknown_section=lambda content, random: content + b"nonsense: {a: 1}\n",
        NUL=lambda content, random: content + b"\0",
        a_word=lambda content, random: b"hello\n",
        a_date=lambda content, random: b"2001-99-99\n",
        nested_deep=lambda content, random: _deep().encode(),
        keys_nested_deep=lambda content, random: b"? " * 50_000,
        a_key_of_10_MB=lambda content, random: content + b"k" * 10_000_000 + b": 1\n",
    ),
    *table(
        EITHER,
        sections_said_twice=lambda content, random: content + content,
        anchors=lambda content, random: content.replace(b"model:", b"model: &model", 1),
        without_text=lambda content, random: re.sub(rb"(?m)^text:\n(  .*\n)*", b"", content),
        UTF16=lambda content, random: content.decode().encode("utf-16"),
        comments_of_10_MB=lambda content, random: content + b"# and another comment\n" * 500_000,
    ),
]

# ---- *.safetensors ---------------------------------------------------------------------------------------------------


def _joined(header: object, data: bytes, size: int | None = None) -> bytes:
    words = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(words) if size is None else size).to_bytes(8, "little") + words + data


def _tensors(edit: Callable[[dict[str, Any], bytes, Random], bytes]) -> Damage:
    """Something else for header and data."""

    def damage(content: bytes, random: Random) -> bytes:
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        header.pop("__metadata__", None)
        return edit(header, content[end:], random)

    return damage


def _header(words: bytes | None = None, size: int | None = None) -> Damage:
    return _tensors(lambda header, data, random: _joined(words or header, data, size))


def _with(key: str, make: Callable[[Any], Any]) -> Damage:
    """Another shape, type or place for one matrix."""

    def edit(header: dict[str, Any], data: bytes, random: Random) -> bytes:
        name = random.choice([name for name, facts in header.items() if len(facts["shape"]) == 2])
        header[name][key] = make(header[name][key])
        return _joined(header, data)

    return _tensors(edit)


def _number(value: float, share: float = 0) -> Damage:
    """Put a number in one place, or in a share of all."""

    def edit(header: dict[str, Any], data: bytes, random: Random) -> bytes:
        numbers = np.frombuffer(data, "<f4").copy()
        numbers[[random.randrange(len(numbers)) for _ in range(max(1, int(share * len(numbers))))]] = value
        return _joined(header, numbers.tobytes())

    return _tensors(edit)


def _of_type(dtype: str, width: int) -> Damage:
    """The same shapes of another type, all zeros."""

    def edit(header: dict[str, Any], data: bytes, random: Random) -> bytes:
        end = 0
        for facts in header.values():
            begin, end = end, end + width * int(np.prod(facts["shape"]))
            facts.update(dtype=dtype, data_offsets=[begin, end])
        return _joined(header, bytes(end))

    return _tensors(edit)


def _without_last(header: dict[str, Any], data: bytes, random: Random) -> bytes:
    last = max(header, key=lambda name: header[name]["data_offsets"][1])
    return _joined(header, data[: header.pop(last)["data_offsets"][0]])


def _renamed(header: dict[str, Any], data: bytes, random: Random) -> bytes:
    name = random.choice(sorted(header))
    return _joined({f"{name}{STEERING}": header.pop(name), **header}, data)


def _with_another(header: dict[str, Any], data: bytes, random: Random) -> bytes:
    more = {"another": {"dtype": "F32", "shape": [2], "data_offsets": [len(data), len(data) + 8]}}
    return _joined({**header, **more}, data + bytes(8))


TENSORS: Table = [
    *((f"header length {size}", REFUSED, _header(size=size)) for size in (0, 1, 7, 10**8, 10**12, 2**63, 2**64 - 1)),
    *(
        (f"type {dtype}", REFUSED, _of_type(dtype, size))
        for dtype, size in {"I64": 8, "U8": 1, "C64": 8, "BOOL": 1}.items()
    ),
    *((f"type {dtype}", EITHER, _of_type(dtype, size)) for dtype, size in {"F64": 8, "BF16": 2, "F16": 2}.items()),
    *((f"a {value}", REFUSED, _number(value)) for value in (np.nan, np.inf, -np.inf)),
    *((f"all {value}", REFUSED, _number(value, 5)) for value in (np.nan, np.inf)),
    *table(
        REFUSED,
        header_nested_deep=_header(_deep().encode()),
        header_a_list=_header(b"[]"),
        header_no_JSON=_header(b"{" * 64),
        header_empty=_header(b"{}"),
        place_beyond_the_end=_with("data_offsets", lambda old: [old[0], old[1] + 10**6]),
        place_far_beyond=_with("data_offsets", lambda old: [2**62, 2**63]),
        place_negative=_with("data_offsets", lambda old: [-4, old[1]]),
        place_backwards=_with("data_offsets", lambda old: old[::-1]),
        places_overlap=_with("data_offsets", lambda old: [0 if old[0] else 4, old[1]]),
        place_a_word=_with("data_offsets", lambda old: "here"),
        a_name_that_steers_the_terminal=_tensors(_renamed),
        shape_a_column=_with("shape", lambda old: [old[0] * old[1], 1]),
        shape_flat=_with("shape", lambda old: [old[0] * old[1]]),
        shape_too_large=_with("shape", lambda old: [2**32, 2**32]),
        shape_negative=_with("shape", lambda old: [-old[0], -old[1]]),
        type_unknown=_with("dtype", lambda old: "F7"),
        a_tensor_missing=_tensors(_without_last),
        another_tensor=_tensors(_with_another),
        data_cut=lambda content, random: content[:-4],
        bytes_after_the_end=lambda content, random: content + b"more",
        an_html_page=lambda content, random: b"<!DOCTYPE html><html>not found</html>",
    ),
    *table(
        EITHER,
        numbers_of_1e38=_number(1e38, 0.1),
        metadata_of_numbers=_tensors(lambda header, data, random: _joined({**header, "__metadata__": {"a": 1}}, data)),
        names_said_twice=_tensors(lambda header, data, random: _joined(_twice(json.dumps(header)).encode(), data)),
        header_of_50_MB=_tensors(lambda h, data, random: _joined(json.dumps(h).encode() + b" " * 50_000_000, data)),
    ),
]

# ---- models ----------------------------------------------------------------------------------------------------------

_BEST = "weights/best.safetensors"
_BY_NAME = ("translate best", "inspect best")  # commands with --weights best
_AVERAGE = ("average",)  # copies some files, and of others looks at the shapes only
_WORDS = "\n".join(["<pad>", "<unk>", "<s>", "</s>", *(f"word{i}" for i in range(300))]).encode()
_TOKENIZERS = table(
    REFUSED,
    of_words=lambda content, random: _WORDS,
    of_text=lambda content, random: b"hello\n" * 99,
    with_pieces_that_are_no_text=lambda content, random: content.replace("▁d".encode(), b"\xff" * 4),
)


def _other_tokenizer(folder: Path, random: Random) -> None:
    shutil.copy(outside(folder) / "other.model", folder / "tokenizer.model")
    sign(folder)


def _many_files(folder: Path, random: Random) -> None:
    for number in range(5000):
        (folder / f"extra-{number}.txt").write_text("nothing of the model's\n")


def _unlisted(name: str) -> list[Mutation]:
    """What is not in the manifest is not of the model, whatever lies there."""
    wrap: Wrap = lambda put: lambda folder, random: [instead(name)(put)(folder, random), unlist(name)(folder, random)]  # noqa: E731
    whole = Mutation(f"unlisted {name}", REFUSED, unlist(name))
    return [whole, *mutations(f"unlisted {name}", STAND_INS, wrap, REFUSED)]


MODELS: list[Mutation] = [
    NOTHING,
    *unchecked("config.yaml"),
    *unchecked("tokenizer.model"),
    *unchecked("model.safetensors", spared=_AVERAGE),
    *unchecked(_BEST, only=_BY_NAME),
    *unchecked("manifest.json", EITHER),
    *mutations("manifest.json", MANIFESTS),
    *_unlisted("config.yaml"),
    *_unlisted("tokenizer.model"),
    *mutations("signed config.yaml", DAMAGES + CONFIGS, signed("config.yaml"), spared=_AVERAGE),
    *mutations("signed model.safetensors", DAMAGES + TENSORS, signed("model.safetensors"), spared=_AVERAGE),
    *mutations(f"signed {_BEST}", DAMAGES + TENSORS, signed(_BEST), only=_BY_NAME),
    *mutations("signed tokenizer.model", DAMAGES + _TOKENIZERS, signed("tokenizer.model"), spared=_AVERAGE),
    Mutation("signed tokenizer.model of another size", REFUSED, _other_tokenizer, (), _AVERAGE),
    Mutation("5,000 more files", EITHER, _many_files),
    Mutation("50 GB more", EITHER, lambda folder, random: make_sparse(folder / "extra.txt", 50 << 30)),
]

# ---- runs ------------------------------------------------------------------------------------------------------------


def newest(run: Path) -> Path:
    """Its last checkpoint."""
    found = (path for path in (run / "training").iterdir() if re.fullmatch(r"step-[0-9]+", path.name))
    return max((path for path in found if path.is_dir()), key=lambda path: int(path.name[5:]))


def _some(pattern: str) -> Callable[[Path, Random], Path]:
    """A file of a run, by chance; STEP stands for its last checkpoint."""
    return lambda run, random: random.choice(sorted(run.glob(pattern.replace("STEP", f"training/{newest(run).name}"))))


def _state_file(run: Path, random: Random) -> Path:
    """The JSON that tells where the run stood."""
    return next(path for path in newest(run).glob("*.json") if path.name != "manifest.json")


def _at(pick: Callable[[Path, Random], Path], wrap: Callable[[str], Wrap]) -> Wrap:
    """A change to a file that is picked when the run is there."""

    def change(how: Any, run: Path, random: Random) -> None:
        path = pick(run, random)
        wrap(path.name)(how)(path.parent, random)

    return lambda how: lambda run, random: change(how, run, random)


def _signed_if_listed(name: str) -> Wrap:
    """Kept weights may have a manifest."""

    def change(damage: Damage, folder: Path, random: Random) -> None:
        unsigned(name)(damage)(folder, random)
        if (folder / "manifest.json").exists():
            sign(folder)

    return lambda damage: lambda folder, random: change(damage, folder, random)


def _in_each_checkpoint(damage: Damage) -> Change:
    each = unsigned("model.safetensors")(damage)
    return lambda run, random: [each(folder, random) for folder in (run / "training").glob("step-*")]


def _json(edit: Callable[[dict[str, Any], Random], Any]) -> Damage:
    return lambda content, random: json.dumps(edit(json.loads(content), random)).encode()


def _value(value: Any, kind: tuple[type, ...]) -> Damage:
    """Another value for one of the keys whose value is of that kind."""

    def edit(content: dict[str, Any], random: Random) -> dict[str, Any]:
        keys = [key for key, old in content.items() if isinstance(old, kind) and old != value]
        return {**content, random.choice(keys): value}

    return _json(edit)


_NUMBERS = ([], [1], {}, "8", "", None, -5, -0.5, 10**30, 1e308, float("nan"), float("inf"), 2**63, 10**6)
STATES: Table = [
    *((f"a number {json.dumps(value)[:24]}", SAME, _value(value, (int, float))) for value in _NUMBERS),
    *((f"a list {value}", SAME, _value(value, (list,))) for value in (7, "x", [1], [[1]], [["a", None, {}]])),
    *((f"a text {value!r}", SAME, _value(value, (str,))) for value in (7, None, "../../victim", "\ud800")),
    *table(
        SAME,
        one_key_more=_json(lambda content, random: {**content, "nonsense": 1}),
        in_a_list=_json(lambda content, random: [content]),
        nested_deep=lambda content, random: _deep().encode(),
        after_20_MB_of_spaces=lambda content, random: b" " * 20_000_000 + content,
    ),
    ("without any key", EITHER, lambda content, random: b"{}"),
    ("a key missing", EITHER, _json(lambda c, random: {k: c[k] for k in random.sample(sorted(c), len(c) - 1)})),
]

_LINE = '{"kind": "train", "step": 2, "seconds": 1, "loss": 2.5, "rate": 0.1}\n'
_VALID = _LINE.replace("train", "valid")
_LINES = {
    "no loss": '{"kind": "train", "step": 2, "seconds": 1}\n',
    "words for numbers": '{"kind": "train", "step": "two", "seconds": [], "loss": {}, "rate": null}\n',
    "averaged without loss": '{"kind": "averaged", "step": 2, "seconds": 1}\n',
    "a loss NaN": _LINE.replace("2.5", "NaN"),
    "a loss without end": _VALID.replace("2.5", "-Infinity"),
    "a huge loss": _LINE.replace("2.5", "1e400"),
    "a large loss": _VALID.replace("2.5", "9e17"),
    "a huge step": _LINE.replace("2,", "1" + "0" * 400 + ",", 1),
    "a large step": _LINE.replace("2,", "900000000000000000,", 1),
    "half a step": _LINE.replace("2,", "2.5,", 1),
    "true for a step": _LINE.replace("2,", "true,", 1),
    "negative seconds": _LINE.replace('"seconds": 1', '"seconds": -1e17'),
    "another kind": _LINE.replace("train", "[red]averaged[/red]"),
    "words for scores": _VALID.replace("}", ', "bleu": "high", "tokens_per_second": [1]}'),
    "NaN for speed": _LINE.replace("}", ', "tokens_per_second": NaN, "memory": Infinity, "empty": NaN}'),
    "odd epochs": "".join(_LINE.replace("}", f', "epoch": {epoch}}}') for epoch in (3, -1, 0, 2.5)),
    "nested deep": _deep() + "\n",
    "lists": "[1, 2]\n7\nnull\n",
    "10 MB in a line": '{"kind": "' + "a" * 10_000_000 + '"}\n',
    "100,000 lines": _LINE * 100_000,
}
METRICS: Table = [
    (f"with {title}", SAME, lambda content, random, line=line: b"".join(random.sample([content, line.encode()], 2)))
    for title, line in _LINES.items()
]


def _index(column: int, value: int) -> Damage:
    """Another number in a row of the index: where a sentence begins, or its length."""

    def damage(content: bytes, random: Random) -> bytes:
        rows = np.frombuffer(content, "int64").reshape(-1, 5).copy()
        rows[random.randrange(len(rows)), column] = value
        return rows.tobytes()

    return damage


def _token(content: bytes, random: Random) -> bytes:
    place = 2 * random.randrange(len(content) // 2)
    return content[:place] + b"\xff\xff" + content[place + 2 :]


_PLACES = ((0, 10**12), (0, -1), (1, -3), (1, 2**31 - 1), (2, 2**62), (3, -(2**62)))  # which are nowhere
_OTHERS = ((1, 5000), (3, 0), (4, -1))  # which could be somewhere
_FACTS: dict[str, list[Any]] = {
    "dtype": ["object", "float64", "S1", "int8", 7, None, "complex128"],
    "variants": [0, -1, 3, 10**9, "x", None],
    **dict.fromkeys(("sizes", "bytes"), [{}, [], {"../../victim.txt": 3}, {"index": "x"}]),
    "vocabularies": [[], [7, 7], None, ["x", {}]],
    "counts": [{}, [], {"read": 1}],
}
_STORES: Table = [
    *(
        (f"{key}={json.dumps(v)}", SAME, _json(lambda c, random, k=key, v=v: {**c, k: v}))
        for key in _FACTS
        for v in _FACTS[key]
    ),
    *((text[:8], SAME, lambda c, random, text=text: text.encode()) for text in (_deep(), "[]", "null", "NaN", "words")),
]


def _linked_out(pattern: str) -> Change:
    """A link where a checkpoint, or kept weights, lay, which are elsewhere now."""

    def change(run: Path, random: Random) -> None:
        path = _some(pattern)(run, random)
        instead(path.name)(linked("moved"))(path.parent, random)

    return change


_NAMES = ["step-x", "step-", "step--1", "step-99999999999999999999", "step-" + "9" * 200, "step-007", "step-١٢"]
_NAMES += ["step-8.before", "step-8.replaced", "step-12.part", "weights.part", "step-8 copy"]
_NAMED: Table = [(name[:40], SAME, name) for name in _NAMES]
_LINKS: Table = [(name, SAME, f"training/{name}") for name in ("step-4", "step-8", "weights/step-*")]
_NOWHERE, _ELSEWHERE = ([(f"{c} {v}", SAME, _index(c, v)) for c, v in some] for some in (_PLACES, _OTHERS))
_TOKENS = table(SAME, out_of_range=_token)
_WEIGHTS, _KEPT = _some("STEP/[mao][ovp]*.safetensors"), _some("training/weights/step-*.safetensors")
_RESUME = ("resume",)  # the only one that reads stores and most of a checkpoint
_CHECKPOINT = (*_RESUME * 3, "average best", "runs", "watch")


def _copy(name: str) -> Change:
    return lambda run, random: shutil.copytree(newest(run), run / "training" / name)


def _in_newest(change: Change) -> Change:
    return lambda run, random: change(newest(run), random)


RUNS: list[Mutation] = [
    NOTHING,
    *mutations("checkpoint", DAMAGES, _at(_some("STEP/*"), unsigned), SAME, _CHECKPOINT),
    *mutations("checkpoint", STAND_INS, _at(_some("STEP/*"), instead), SAME, _CHECKPOINT),
    *mutations("checkpoint signed", DAMAGES, _at(_some("STEP/*.safetensors"), signed), only=_RESUME),
    *mutations("checkpoint signed", wrong(TENSORS), _at(_WEIGHTS, signed), SAME, _RESUME),
    *mutations("checkpoint manifest.json", MANIFESTS, _in_newest, SAME, _CHECKPOINT),
    *mutations("each checkpoint", DAMAGES, _in_each_checkpoint, SAME, _CHECKPOINT),
    *mutations("state", DAMAGES, _at(_state_file, unsigned), SAME, _CHECKPOINT),
    *mutations("state signed", DAMAGES + STATES, _at(_state_file, signed), only=_CHECKPOINT),
    *mutations("metrics.jsonl", METRICS, unsigned("metrics.jsonl")),
    *unchecked("metrics.jsonl", SAME),
    *mutations("store", DAMAGES, _at(_some("data/*/*"), unsigned), SAME, _RESUME),
    *mutations("store", STAND_INS, _at(_some("data/*/*"), instead), SAME, _RESUME),
    *mutations("store.json", _STORES, _at(_some("data/*/store.json"), unsigned), only=_RESUME),
    *mutations("index", _NOWHERE + _ELSEWHERE, _at(_some("data/*/index"), unsigned), only=_RESUME),
    *mutations("index signed", _NOWHERE, _at(_some("data/*/index"), signed), only=_RESUME),
    *mutations("tokens", _TOKENS, _at(_some("data/*/*.tokens"), unsigned), only=_RESUME),
    *mutations("tokens signed", _TOKENS, _at(_some("data/*/*.tokens"), signed), only=_RESUME),
    *mutations("store signed", DAMAGES, _at(_some("data/*/[it]*"), signed), only=_RESUME),
    *mutations("kept weights", DAMAGES, _at(_KEPT, _signed_if_listed), SAME, ("resume", "average", "average best")),
    *mutations("kept weights", wrong(TENSORS), _at(_KEPT, _signed_if_listed), only=_AVERAGE),
    *(mutation for name in ("config.yaml", "tokenizer.model", "manifest.json") for mutation in unchecked(name, SAME)),
    *mutations("config.yaml signed", wrong(CONFIGS), signed("config.yaml"), SAME, ("resume", "runs", "watch")),
    *mutations("a copy named", _NAMED, _copy),
    *mutations("a folder named", _NAMED, lambda name: lambda run, random: (run / "training" / name).mkdir()),
    *mutations("a link at", _LINKS, _linked_out, only=_RESUME),
]

# ---- texts -----------------------------------------------------------------------------------------------------------

_NOT_TRANSLATE = ("score", "evaluate", "train", "train characters", "doctor")  # which may want another text


def _bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _text(text: str | bytes) -> Change:
    """Another text for the source."""
    return lambda folder, random: (folder / "source.txt").write_bytes(_bytes(text))


def _line(text: str | bytes) -> Change:
    """Another text for one line of the source."""

    def damage(content: bytes, random: Random) -> bytes:
        lines = content.splitlines()
        lines[random.randrange(len(lines))] = _bytes(text)
        return b"\n".join(lines) + b"\n"

    return unsigned("source.txt")(damage)


def _last(text: str) -> Damage:
    """Another text for the last line, without an end."""
    return lambda content, random: content[: content.rindex(b"\n", 0, -1) + 1] + text.encode()


def _as(name: str, make: Callable[[bytes], bytes]) -> Change:
    """Another file, made of the text, in place of the source."""

    def change(folder: Path, random: Random) -> None:
        (folder / name).write_bytes(make((folder / "source.txt").read_bytes()))
        (folder / "source.txt").unlink()

    return change


def _packed(make: Callable[[bytes], bytes]) -> Change:
    return _as("source.txt.gz", make)


def _jsonl(line: str) -> Change:
    good = '{"source": "ein Satz", "target": "a sentence"}\n' * 20
    return _as("source.jsonl", lambda content: _bytes(f"{good}{line}\n"))


_MARKS = "".join(chr(letter) + "\u0334\u0328\u035d" * 20 for letter in range(97, 123))
_HARMLESS = table(
    ACCEPTED,
    BOM=_line("\ufeffein Satz"),
    BOM_twice=_text("\ufeff\ufeffein Satz\n"),
    NUL=_line("ein\0 Satz \0"),
    ends_CRLF=_text("ein Satz\r\nnoch einer\r\n\r\n"),
    ends_CR=_text("ein Satz\rnoch einer\r"),
    ends_of_Unicode=_line("ein\u2028Satz\u2029und\x85noch\x0beiner\x0c"),
    no_end=_text("ein Satz\nnoch einer"),
    no_text=_text(""),
    blank_lines=_text("\n\n   \n\t\n\u3000\n\n"),
    letters_100000=_line("a" * 100_000),
    words_3000=_line("wort " * 3_000),  # all of them are translated, which takes its time
    spaces_1000000=_line(" " * 1_000_000),
    emoji_35000=_line("\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466" * 35_000),
    zalgo=_line(_MARKS * 20),
    right_to_left=_line("\u202eein\u202d \u2066Satz\u2069 \u200f\u061c שלום"),
    control_characters=_line("".join(map(chr, range(1, 32))).replace("\n", "") + "\x1b[2J\x7f\x9b"),
    no_characters=_line("\ufffe\uffff\U0010ffff\ue000"),
    special_tokens=_line("<s> </s> <pad> <unk> ▁ ⁇ <0x41>"),
    gz_of_nothing=_packed(lambda content: gzip.compress(b"")),
)
_UNREADABLE = table(
    REFUSED,
    not_UTF8=_line(b"caf\xe9 \xff\xfe"),
    half_a_character=_line("ein \ud800 Satz"),
    UTF16=_text("ein Satz\nnoch einer\n".encode("utf-16")),
    overlong_UTF8=_line(b"\xc0\xaf\xf8\x88\x80\x80\x80"),
    cut_within_a_character=_text("ein Satz\nschö".encode()[:-1]),
)
_UNPAIRED = table(
    REFUSED,
    fewer_lines=_text("ein Satz\n" * 39),
    more_lines=_text("ein Satz\n" * 41),
    tsv_without_tab=_as("source.tsv", lambda content: content),
    jsonl_nested_deep=_jsonl(_deep()),
    jsonl_nested_deep_within=_jsonl('{"source": "a", "target": ' + _deep() + "}"),
    jsonl_without_target=_jsonl('{"source": "a"}'),
    jsonl_of_numbers=_jsonl('{"source": 1, "target": NaN}'),
    jsonl_a_list=_jsonl('["source", "target"]'),
    jsonl_a_word=_jsonl("hello"),
)
_REFUSED = table(
    REFUSED,
    noise_without_end=instead("source.txt")(linked("urandom")),
    gz_cut=_packed(lambda content: gzip.compress(content)[:-20]),
    gz_of_plain_text=_packed(lambda content: content),
    gz_and_noise=_packed(lambda content: gzip.compress(content)[:30] + b"noise" * 100),
)
_LARGE = table(
    EITHER,
    line_of_20_MB=unsigned("source.txt")(_last("a" * 20_000_000)),
    line_of_20_MB_of_words=unsigned("source.txt")(_last("ein wort " * 2_200_000)),
    lines_200000=_text("\n" * 200_000),
    combining_marks=_line("a" + "\u0301" * 200_000),
    combining_marks_out_of_order=_line("a" + "\u0301\u0323" * 100_000),
    hangul=_line("\u1100\u1161\u11a8" * 50_000),
    jsonl_a_long_number=_jsonl('{"source": "a", "target": "b", "n": ' + "9" * 5000 + "}"),
    jsonl_half_characters=_jsonl('{"source": "\\ud800", "target": "\\udc00"}'),
    tsv_of_many_columns=_as("source.tsv", lambda content: content.replace(b"\n", b"\tx" * 60 + b"\n")),
    gz_bomb=_packed(lambda content: gzip.compress(content[: content.rindex(b"\n", 0, -1) + 1] + b"a" * 200_000_000, 1)),
    gz_of_no_bytes=_packed(lambda content: b""),
    gz_twice=_packed(lambda content: gzip.compress(content) * 2),
    null_device=instead("source.txt")(linked("null")),
)
_MAY_BE_TEXT = ("a pipe", "a link to another file", "a link to the same elsewhere")
_STAND_INS: Table = [(title, EITHER if title in _MAY_BE_TEXT else must, put) for title, must, put in STAND_INS]
TEXTS: list[Mutation] = [
    NOTHING,
    *mutations("", table(EITHER, words_100000=_line("wort " * 100_000)), only=_NOT_TRANSLATE),
    *mutations("", _HARMLESS, spared=_NOT_TRANSLATE),
    *mutations("", _UNREADABLE, spared=("doctor",)),
    *mutations("", _UNPAIRED, spared=("translate", "translate json", "doctor")),
    *mutations("", _REFUSED + _LARGE),
    *mutations("", _STAND_INS, instead("source.txt")),
]
