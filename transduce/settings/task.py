"""What a task is: translate, or classify. All that depends on it and is no model's business stands here.

A classifier's target is a label: a whole line, one token, a name that is compared to the letter and never lower-cased.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from transduce.settings.sections import Overrides, Settings, TextSettings


@dataclass(frozen=True)
class Task:
    """What is asked of a model."""

    name: str
    measure: str  # of validation text, in percent, as reports call it; in metrics.jsonl in lower case
    labels: bool  # whether a line of the target is a label, one token
    settings: Overrides = field(default_factory=dict)  # between preset and file in strength

    @property
    def key(self) -> str:
        """The measure's name in metrics.jsonl."""
        return self.measure.lower()


TRANSLATE = Task("translate", "BLEU", labels=False)
CLASSIFY = Task(
    "classify",
    "accuracy",
    labels=True,
    settings={
        "model": {"kind": "classifier", "tie_output": False, "tie_source": False, "output_bias": True},
        "text": {"joint": False, "target_tokenizer": "labels"},
        "training": {"label_smoothing": 0.0},
    },
)
TASKS = {task.name: task for task in (TRANSLATE, CLASSIFY)}


def task_of(settings: Settings | TextSettings) -> Task:
    """The task that settings are for: the one place that asks."""
    text = settings.text if isinstance(settings, Settings) else settings
    return CLASSIFY if text.target_tokenizer == "labels" else TRANSLATE
