"""transduce shortlist: which target tokens a source token may become, for faster translation on a CPU."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.commands import Hidden
from transduce.commands.lines import check_files, deliver
from transduce.errors import SettingsError
from transduce.report import SILENT
from transduce.text.normalise import normalise

TOGETHER = 10_000  # pairs that are tokenized in one go


def shortlist(
    model: Path,
    *,
    source: str,
    target: str,
    output: Annotated[Path, Parameter(alias="-o")],
    partners: int = 50,
    frequent: int = 100,
    force: bool = False,
    report: Hidden = SILENT,
) -> Iterator[str]:
    """Learn a shortlist from parallel text, usually the text that the model was trained on.

    Example: transduce shortlist runs/mine --source train.de --target train.en -o shortlist.tsv

    Then: transduce translate runs/mine text.de --shortlist shortlist.tsv

    Parameters
    ----------
    model
        Model folder, whose vocabularies are taken.
    source
        Text file, one sentence a line (.gz also).
    target
        Its translation, line by line.
    output
        File to write: first what every sentence may use, then a source token a line with its target tokens.
    partners
        Target tokens for each source token.
    frequent
        Target tokens that every sentence may use.
    force
        Replace the output if it is there already.
    """
    from transduce.data.open import open_corpus
    from transduce.decoding.shortlist import learn
    from transduce.models.load import load_text

    if partners < 1 or frequent < 1:
        raise SettingsError(f"--partners {partners} and --frequent {frequent} must be at least 1")
    check_files([source, target], output, force)
    _, tokenizers = load_text(model)
    remaining = iter(open_corpus(source, target))

    def encoded() -> Iterator[tuple[list[int], list[int]]]:
        with report.progress("shortlist") as bar:
            done = 0
            while some := list(itertools.islice(remaining, TOGETHER)):
                sides = ([normalise(pair.source) for pair in some], [normalise(pair.target) for pair in some])
                yield from zip(tokenizers.source.encode(sides[0]), tokenizers.target.encode(sides[1]), strict=True)
                done += len(some)
                bar.update(done, pairs=f"{done:,}")

    return deliver(learn(encoded(), tokenizers, partners, frequent).lines(), output, report)
