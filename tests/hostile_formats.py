"""Foreign model folders and archives with something wrong in them: each comes in right, or is refused in a sentence.

    python tests/hostile_formats.py [COUNT [FORMAT]]     1,000 of all formats if not given

Random models of each format are mutated: bytes changed, cut, doubled or zeroed; numbers and keys of JSON files changed;
files removed, swapped or emptied; archives with other members. Whatever comes in must load and translate. Memory is
limited, and nothing may appear outside the folder that was asked for. tests/test_hostile_formats.py runs some of them.
"""

from __future__ import annotations

import json
import pickle
import resource
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import transformers
from foreign import bart_folder, many_folder, marian_folder
from test_ctranslate2 import as_old, theirs
from test_fairseq import make as make_fairseq
from test_marian import as_marian
from test_pytorch import as_joey, make
from test_tokenizer_json import nllb, saved_anew

import transduce
from transduce.commands.convert import convert
from transduce.errors import UserError
from transduce.formats.argos import ENDING
from transduce.formats.pickled import MAGIC, PROTOCOL

MEMORY = 12 * 2**30  # bytes of address space, most of which PyTorch asks for and never touches
VALUES: list[Any] = [0, -1, 1, 7, 10**9, 2**63, 1e308, "x", "", None, True, [], {}, [1, 2], "nan"]


def change_bytes(content: bytes, random: Random) -> bytes:
    """Anywhere; mostly near the begin, where headers are."""
    changed = bytearray(content)
    place = random.randrange(min(len(changed), random.choice([100, 3000, len(changed)])) or 1)
    kind, length = random.randrange(5), random.randrange(1, 200)
    if kind == 0 and changed:
        changed[place] = random.randrange(256)
    elif kind == 1:
        del changed[place : place + length]
    elif kind == 2:
        changed[place:place] = changed[:length]
    elif kind == 3:
        changed[place : place + length] = bytes(length)
    else:
        changed[place : place + 4] = random.choice([b"\xff" * 4, b"\0\0\xc0\x7f", b"\xff\xff\xff\x7f"])  # large; NaN
    return bytes(changed)


def change_json(content: bytes, random: Random) -> bytes:
    """One key, or one place of a list, anywhere in it."""
    try:
        found = json.loads(content)
    except ValueError:
        return change_bytes(content, random)
    value, whole = random.choice(VALUES), found
    while isinstance(found, dict) and random.random() < 0.6:  # deeper, where there is something below
        below = [inner for inner in found.values() if isinstance(inner, dict | list) and inner]
        if not below:
            break
        found = random.choice(below)
    if isinstance(found, dict) and found:
        key = random.choice(sorted(found))
        if random.random() < 0.3:
            del found[key]
        else:
            found[random.choice([key, "model_type", "d_model"]) if random.random() < 0.3 else key] = value
    elif isinstance(found, list) and found:
        found[random.randrange(len(found))] = random.choice([value, found[0]])
    return json.dumps(whole).encode()


def add_keys_in_keys(path: Path, random: Random) -> None:
    """The older form of torch.save, with keys of storages that hold one another: a hash of them takes for ever."""
    begin = b"".join(pickle.dumps(part, 2) for part in (MAGIC, PROTOCOL, {}, {}))
    nested = b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * random.randrange(20, 60)
    path.write_bytes(begin + nested + b"\x85.")


def add_no_array(path: Path, random: Random) -> None:
    """What is no array, in an archive of arrays; or damage to what is packed in it."""
    if random.random() < 0.5:
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(random.choice(["readme.txt", "a.npy", "\x1b[2J"]), "no array")
        return
    arrays = dict(np.load(path))
    np.savez_compressed(path, **arrays)
    content = bytearray(path.read_bytes())
    place = random.randrange(len(content))
    content[place : place + 50] = b"\xff" * 50
    path.write_bytes(content)


def add_no_text(path: Path, random: Random) -> None:
    """Pieces that are no UTF-8."""
    content = path.read_bytes()
    path.write_bytes(content.replace("▁".encode(), b"\xff\xfe\xfd", random.choice([1, 5, -1])))


def add_steering(path: Path, random: Random) -> None:
    """Escape sequences in names."""
    path.write_bytes(path.read_bytes().replace(b"weight", b"w\x1b[2J\x9b", random.choice([1, 5, -1])))


ADDED: dict[str, Callable[[Path, Random], None]] = {
    ".bin": add_keys_in_keys,
    ".npz": add_no_array,
    ".spm": add_no_text,
    ".model": add_no_text,
    ".safetensors": add_steering,
}


def mutate(folder: Path, random: Random) -> None:
    """One thing about a folder, or two."""
    for _ in range(random.choice([1, 1, 1, 2])):
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        path, action = random.choice(paths), random.random()
        if action < 0.05:
            path.unlink()
        elif action < 0.1:
            path.write_bytes(b"")
        elif action < 0.15:
            path.write_bytes(random.choice(paths).read_bytes())
        elif action < 0.18:
            path.unlink()
            path.symlink_to(random.choice(["/dev/zero", path.name]))  # a device, or a link to itself
        elif action < 0.3 and path.suffix in ADDED:
            ADDED[path.suffix](path, random)
        else:
            change = change_json if path.suffix == ".json" and random.random() < 0.7 else change_bytes
            path.write_bytes(change(path.read_bytes(), random))


def mutate_archive(path: Path, random: Random) -> None:
    """Members renamed, doubled, changed; or the bytes of the archive itself."""
    if random.random() < 0.3:
        path.write_bytes(change_bytes(path.read_bytes(), random))
        return
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = random.choice(sorted(members))
    action, packing = random.randrange(6), random.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
    if action == 0:
        del members[name]
    elif action == 1:
        members[random.choice(["../../escaped", "/tmp/escaped", f"de_en/../../{name}"])] = members[name]
    elif action == 2:
        members[name] = bytes(30_000_000)  # packs to nothing
    elif action < 5:
        change = change_json if name.endswith(".json") else change_bytes
        members[name] = change(members[name], random)
    with zipfile.ZipFile(path, "w", packing) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    if action == 5:  # what is packed is damaged
        damaged = bytearray(path.read_bytes())
        place = random.randrange(len(damaged))
        damaged[place : place + 50] = b"\xff" * 50
        path.write_bytes(damaged)


def pickled(folder: Path) -> Path:
    """An older folder, with its weights as torch.save writes them."""
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def packed(folder: Path) -> Path:
    path = folder.with_suffix(ENDING)
    with zipfile.ZipFile(path, "w") as archive:
        for one in folder.iterdir():
            archive.write(one, f"de_en/{one.name if one.suffix == '.model' else f'model/{one.name}'}")
    return path


def unpacked(folder: Path) -> Path:
    """As Argos Translate keeps a package."""
    (folder / "model").mkdir()
    for one in [path for path in folder.iterdir() if path.is_file() and path.suffix != ".model"]:
        one.rename(folder / "model" / one.name)
    (folder / "metadata.json").write_text('{"from_code": "de", "to_code": "en", "target_prefix": ""}')
    return folder


def with_lists(folder: Path) -> Path:
    """Which says itself where its vocabularies are."""
    (folder / "decoder.yml").write_text("models: [opus.npz]\nvocabs: [/x/opus.vocab.yml, /x/opus.vocab.yml]\n")
    return folder


def bart(folder: Path) -> Path:
    """As the newest programs save it."""
    return saved_anew(folder, transformers.BartTokenizer.from_pretrained(bart_folder(folder)))


def made_of_pytorch(folder: Path) -> Path:
    make(folder, source_begin=False)
    return folder


def made_of_fairseq(folder: Path) -> Path:
    make_fairseq(folder)
    return folder


def originals(place: Path) -> dict[str, Path]:
    """One of each format."""
    return {
        "marian": marian_folder(place / "marian"),
        "marian, pickled": pickled(marian_folder(place / "pickled")),
        "m2m100": many_folder(place / "m2m", "m2m_100"),
        "mbart": many_folder(place / "mbart", "mbart"),
        "nllb, newer": nllb(place / "nllb")[0],
        "bart, newer": bart(place / "bart"),
        "ctranslate2": theirs(place / "ct2", norm="before")[0],
        "ctranslate2, old": as_old(theirs(place / "old", norm="before")[0], eos_token="</s>"),
        "argos": packed(theirs(place / "package", norm="before")[0]),
        "argos, unpacked": unpacked(theirs(place / "kept", norm="before")[0]),
        "torch.nn.Transformer": made_of_pytorch(place / "torch"),
        "joeynmt": as_joey(made_of_pytorch(place / "original"), place / "joey"),
        "fairseq": made_of_fairseq(place / "fairseq"),
        "marian's own": with_lists(as_marian(marian_folder(place / "opus"), place / "npz")),
    }


def outcome(path: Path, to: Path) -> str:
    """`right`, `refused`, or what should not have been."""
    known = {"m2m": ("de", "en"), "mbart": ("de_DE", "en_XX"), "nllb": ("deu_Latn", "eng_Latn")}
    spoken = next((both for name, both in known.items() if name in path.name), (None, None))
    try:
        convert(path, to, source_language=spoken[0], target_language=spoken[1])
        found = transduce.load(to, "cpu", beam=1, extra=3).translate("das haus ist alt")
        return "right" if found.status in ("ok", "length", "empty", "failed") else f"status {found.status}"
    except UserError as error:
        if "\n" in str(error):
            return f"not one sentence: {error}"
        return "refused" if not to.exists() or (to / "manifest.json").exists() else "half-written"
    except MemoryError:
        return "out of memory"
    except BaseException as error:  # noqa: BLE001  (that is what is looked for)
        return f"{type(error).__name__}: {str(error)[:200]}"


def run(count: int, seed: int, say: Callable[[str], None] = lambda _: None, only: str = "") -> Counter[str]:
    """So many mutated ones, of formats with `only` in their names; how they ended."""
    random, ends = Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        formats = originals(place)
        around = {path.name for path in place.iterdir()}
        for number in range(count):
            name = random.choice(sorted(name for name in formats if only in name))
            original = formats[name]
            copy = place / f"copy-{original.name}"
            if original.is_dir():
                shutil.copytree(original, copy)
                mutate(copy, random)
            else:
                shutil.copy(original, copy)
                mutate_archive(copy, random)
            end = outcome(copy, place / "ours")
            ends[end] += 1
            if end not in ("right", "refused"):
                say(f"{number} {name}: {end}")
            for path in (copy, place / "ours"):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            assert {path.name for path in place.iterdir()} == around, "something was written elsewhere"
    return ends


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    count, only = int(sys.argv[1]) if sys.argv[1:] else 1000, "".join(sys.argv[2:])
    found = run(count, seed=1, say=print, only=only)
    print(dict(found), f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")
