"""Models of other systems with random weights, in three sizes: do they compute and write the same here?

    python benchmarks/imports.py [--lines 200] [--kinds marian m2m_100 nllb mbart bart] [--activations relu]

Builds folders of Hugging Face's (the builders of the tests, tests/foreign.py), converts them, and compares logits, and
the tokens that both write, line by line with `generate`: greedy, with a beam of 4, and with a beam of 4 and
early_stopping (search.stop=usual). Then each goes back to Hugging Face and comes in once more: are weights and
vocabularies the same, byte by byte? Writes JSON to benchmarks/results and prints a table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import write

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import foreign
import transformers
from conftest import bundled_pairs

import transduce
from transduce.commands.convert import convert
from transduce.core.layout import lay_out
from transduce.core.special import BEGIN, END
from transduce.model import Model

HERE = Path(__file__).parent
SIZES = {
    "24": foreign.sizes(24, 2, 1, 3, 40),
    "64": foreign.sizes(64, 3, 3, 4, 128),
    "128": foreign.sizes(128, 4, 2, 8, 256),
}
ACTIVATIONS = ("swish", "relu", "gelu")
COMPARED = 20  # sentences whose logits are compared
SEARCHES = {"greedy": (1, False), "beam 4": (4, False), "beam 4, early": (4, True)}  # the beam, and early_stopping


class Case(NamedTuple):
    """A folder of theirs, and what is to be said to `generate`."""

    name: str
    folder: Path
    model: Any
    languages: tuple[str | None, str | None]
    never: list[int]  # ids that are not written
    first: int | None  # the id that a translation is forced to begin with


def cases(kinds: list[str], activations: list[str], place: Path) -> Iterator[Case]:
    for size, given in SIZES.items():
        for activation in activations:
            for kind in kinds:
                folder = place / f"{kind}-{size}-{activation}"
                if kind == "marian":
                    for shared in (True, False):
                        own = folder.with_name(f"{folder.name}-{'shared' if shared else 'separate'}")
                        foreign.marian_folder(own, shared, activation, sizes=given)
                        theirs = transformers.MarianMTModel.from_pretrained(own).eval()
                        yield Case(own.name, own, theirs, (None, None), [theirs.config.pad_token_id, 1], None)
                elif kind == "bart":
                    foreign.bart_folder(folder, activation, sizes=given)
                    theirs = transformers.BartForConditionalGeneration.from_pretrained(folder).eval()
                    yield Case(folder.name, folder, theirs, (None, None), [1, 3], 0)
                else:
                    listed = foreign.OF_M2M if kind == "m2m_100" else foreign.CODES[kind]
                    foreign.many_folder(folder, kind, activation, sizes=given, codes=listed)
                    codes = [code.strip("_") for code in listed]
                    languages = (codes[0], codes[1])
                    yield Case(folder.name, folder, foreign.many_model(folder, kind), languages, [0, 1, 3], 202)


def numbers(case: Case, model: Model) -> tuple[dict[int, int], dict[int, int]]:
    """Our ids of source and target, and theirs."""
    sides = (model.tokenizers.source, model.tokenizers.target)
    names = foreign.names_of(case.folder)
    found = []
    for side, known in zip(sides, names, strict=True):
        known = known | {f"<unused {i}>": i for i in range(case.model.config.vocab_size)}  # rows without a piece
        pieces = enumerate(foreign.raw_pieces(side))
        found.append({i: known[piece] for i, piece in pieces if piece in known} | {END: case.model.config.eos_token_id})
    return found[0], found[1]


def compare(case: Case, lines: list[tuple[str, str]], place: Path) -> dict[str, Any]:
    ours = place / f"{case.name}-ours"
    convert(case.folder, ours)
    model = transduce.load(ours, "cpu", languages=case.languages, extra=8)
    source, target = numbers(case, model)
    worst, equal = 0.0, dict.fromkeys(SEARCHES, 0)
    start = case.model.config.decoder_start_token_id
    pieces = enumerate(model.tokenizers.target.pieces(range(model.tokenizers.target.size)))
    names = {target[i]: piece for i, piece in pieces if i in target}
    end = case.model.config.eos_token_id
    answers = {}
    for name, (beam, early) in SEARCHES.items():
        searching = model.with_search(beam=beam, stop="usual" if early else "likely")
        answers[name] = searching.translate([line for line, _ in lines])
    for number, (line, other) in enumerate(lines):
        ids, written = model.tokenizers.source.encode([line])[0], model.tokenizers.target.encode([other])[0]
        there = torch.tensor([[source[i] for i in ids] + [end]])
        if number < COMPARED:
            with torch.no_grad():
                logits = model.model(lay_out([[[*ids, END]]]), lay_out([[[BEGIN, *written]]]))[0]
                decoder = torch.tensor([[start, *(target[i] for i in written)]])
                wanted = case.model(input_ids=there, decoder_input_ids=decoder).logits[0]
            here = sorted(target)
            worst = max(worst, float((logits[:, here] - wanted[:, [target[i] for i in here]]).abs().max()))
        for name, (beam, early) in SEARCHES.items():
            answer = answers[name][number]
            given = {} if case.first is None else {"forced_bos_token_id": case.first}
            out = case.model.generate(
                there, num_beams=beam, do_sample=False, early_stopping=early, max_length=None,
                max_new_tokens=foreign.limit(model, ids) + len(given),
                bad_words_ids=[[i] for i in case.never], **given,
            )[0].tolist()[1 + len(given) :]  # fmt: skip
            expected = [names.get(i) for i in out if i not in (end, *case.never)]
            equal[name] += list(answer.candidates[0].tokens) == expected
    return {"logits": worst, **equal, "lines": len(lines), "goes back": goes_back(ours, case.languages)}


def goes_back(ours: Path, languages: tuple[str | None, str | None]) -> bool:
    """Whether what is sent out and brought in again is the same."""
    spoken = {"source_language": languages[0], "target_language": languages[1]}
    out, again, text = (ours.with_name(f"{ours.name}-{name}") for name in ("out", "again", "text"))
    text.write_text("das haus ist alt\n")  # what is compared at the end of an export; above it was, with many
    convert(ours, out, to="huggingface", text=str(text), **spoken)
    convert(out, again)
    names = [path.name for path in ours.iterdir() if path.name not in ("config.yaml", "manifest.json")]
    return all((ours / name).read_bytes() == (again / name).read_bytes() for name in names)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--lines", type=int, default=200)
    words.add_argument("--kinds", nargs="+", default=["marian", *foreign.CODES, "bart"])
    words.add_argument("--activations", nargs="+", choices=ACTIVATIONS, default=list(ACTIVATIONS))
    words.add_argument("--name", default="imports", help="of the file of results")
    words.add_argument("--output", type=Path, default=HERE / "results")
    given = words.parse_args()
    transformers.utils.logging.set_verbosity_error()
    lines = bundled_pairs(given.lines)
    result: dict[str, Any] = {}
    print(
        "| model | largest difference of logits |",
        " | ".join(f"equal, {name}" for name in SEARCHES),
        "| of | goes back |",
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for case in cases(given.kinds, given.activations, Path(place)):
            found = compare(case, lines, Path(place))
            result[case.name] = found
            shown = " | ".join(str(found[name]) for name in (*SEARCHES, "lines"))
            back = "yes" if found["goes back"] else "no"
            print(f"| {case.name} | {found['logits']:.1e} | {shown} | {back} |", flush=True)
    write(given.output, given.name, {"models": result})


if __name__ == "__main__":
    main()
