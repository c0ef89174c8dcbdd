"""transduce backtranslate: text of the target language alone, made into pairs by a model of the other direction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from transduce.commands import Hidden
from transduce.commands.lines import check_files, write_translations
from transduce.core.special import MADE
from transduce.report import SILENT

if TYPE_CHECKING:
    from transduce.decoding.results import Translation


def backtranslate(
    model: Path,
    text: str,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    beam: int | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    tag: str = MADE,
    resume: bool = False,
    force: bool = False,
    seed: int = 1,
    device: str = "auto",
    report: Hidden = SILENT,
) -> None:
    """Translate text of the target language back, as sources for training: as many lines out as in, in order.

    Example: transduce backtranslate runs/en-zh mono.en -o mono.zh

    Then: transduce train runs/zh-en --source a.zh --target a.en --source mono.zh --target mono.en

    Parameters
    ----------
    model
        Model folder of the other direction: from the language of the text into that of the sources.
    text
        Sentences of the target language, one a line (.gz also).
    output
        File of sources to write; a line that cannot be translated is empty there, and training leaves its pair out.
    beam
        Take the best of a beam; without it sentences are drawn at random, which is more varied.
    source_language
        Of a model that knows many languages: that of the text, such as en.
    target_language
        That of the sources that are wanted, such as de.
    tag
        What every source begins with, so that the model can tell made sentences from real ones; "" for nothing. For
        validation only real pairs are set aside: what begins with this tag is not, nor is a file of which every source
        begins with a tag of your own, beside files of which not every one does.
    resume
        Go on where an interrupted run with the same --output stopped.
    force
        Replace the output if it is there already.
    seed
        Of the draws.
    device
        auto, cpu, cuda or mps.
    """
    from transduce.model import Model

    check_files([text], output, force or resume)
    search: dict[str, Any] = {"method": "sample", "seed": seed} if beam is None else {"beam": beam}
    translator = Model.load(model, device, languages=(source_language, target_language), **search)

    def source(t: Translation) -> str:
        usable = t.text if t.status not in ("failed", "length") else ""
        return f"{tag} {usable}".strip() if usable else ""

    asked = tag, source_language, target_language
    write_translations(translator, model, text, output, source, asked, report, resume)
    report.say(f"train with: --source {output} --target {text}, beside your own pairs")
