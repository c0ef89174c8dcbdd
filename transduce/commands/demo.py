"""transduce demo: the tour, in the order a newcomer needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from transduce.commands import Hidden
from transduce.commands.train import train
from transduce.report import SILENT

SENTENCES = (
    "ich möchte ein bier",
    "ich möchte ein bier trinken",
    "morgen holt meine schwester den alten lehrer ab",
    "er bleibt zu hause, weil er müde ist",
    "hast du gestern das rote fahrrad repariert?",
)


def demo(run: Path = Path("runs/demo"), *, report: Hidden = SILENT) -> Iterator[str]:
    """The tour: train on the bundled corpus, score the result on held-out text, translate, look inside.

    Example: transduce demo

    Parameters
    ----------
    run
        Folder of the run; a finished one is used again.
    """
    from transduce import evaluate
    from transduce.bundled.corpus import bundled
    from transduce.files.run_folder import RunFolder
    from transduce.model import Model

    train(run, report=report)
    translator = Model.load(run, "cpu")
    test = bundled(train=0).test
    report.say(f"translating {len(test):,} held-out sentences")
    texts = [t.text for t in translator.translate(pair.source for pair in test)]
    references, half = [pair.target for pair in test], len(test) // 2
    parts = {"all": slice(None), "new sentences": slice(half), "new combinations": slice(half, None)}
    for name, part in parts.items():
        bleu = evaluate.evaluate(texts[part], references[part])["BLEU"]
        exact = evaluate.exact_match(texts[part], references[part])
        yield f"held-out test, {name + ':':18}BLEU {bleu.score:5.1f}   exact match {exact:6.1%}"
    yield f"({bleu.signature})"
    yield ""
    yield from (f"{sentence}  ->  {translator.translate(sentence).text}" for sentence in SENTENCES)
    page = translator.trace(SENTENCES[1]).save(RunFolder(run).attention_page)
    yield ""
    yield f"every attention head, for a browser:  {page.resolve()}"
    yield f"the learning curve:                   {RunFolder(run).curve.resolve()}"
    yield ""
    yield "Next (the command is .venv/bin/transduce where `make` installed it):"
    yield f'  echo "wir haben kein brot gekauft" | transduce translate {run}'
    yield f"  transduce translate {run} --n-best 3          # then type sentences, one a line"
    yield f'  transduce inspect {run} "hast du gestern das rote fahrrad repariert?" -o page.html'
    yield "  transduce train runs/bilinear --model.score bilinear      # another score; then inspect both"
    yield "  transduce train runs/mine --source your.de --target your.en --minutes 15"
