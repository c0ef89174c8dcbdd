"""Several files of validation text, such as of an old domain and a new one: the score of each when a run ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

from transduce.data.corpus import parts_of
from transduce.decoding.translator import Translator
from transduce.engine.auto import make_steps
from transduce.evaluate import bleu, exact_match
from transduce.models.load import load
from transduce.report import Report
from transduce.settings.sections import SearchSettings, listed
from transduce.settings.task import task_of
from transduce.text.normalise import normalise
from transduce.training.prepare import validation_text_of

MOST = 500  # lines of each


def score_each_file(run: Path, device: str, report: Report) -> None:
    """Tell how good the model that a run has chosen is on each file: greedy, as in validation."""
    model, tokenizers, settings = load(run, device)
    data, task, tokenize = settings.data, task_of(settings), settings.training.bleu_tokenizer
    greedily = replace(settings, search=SearchSettings(beam=1, extra=settings.search.extra, split=False))
    translator = Translator(model, tokenizers, greedily, device, make_steps(model, device))
    told = []
    for source, part in zip(listed(data.valid_source), parts_of(validation_text_of(data, task.labels)), strict=True):
        pairs = list(islice(part, MOST))
        if not pairs:
            continue
        texts, references = [t.text for t in translator.translate([p.source for p in pairs])], [p.target for p in pairs]
        if task.labels:
            score = 100 * exact_match(texts, [normalise(label) for label in references])
        else:
            score = bleu(texts, references, tokenize, settings.text.lowercase)
        told.append(f"{source} {score:.1f}")
    report.say(f"validation {task.measure} by file, up to {MOST} lines of each: {', '.join(told)}")
