"""What may go wrong in an update: no numbers, noticed without waiting for the GPU; or a loss that jumps."""

from __future__ import annotations

from torch import Tensor

from transduce.errors import UserError

JUMP = 1.5  # a loss this many times the usual one is a spike
SETTLED = 5  # lines of metrics.jsonl before one is expected to be like those before it


def is_bad(total: Tensor, norm: Tensor) -> Tensor:
    """1.0 where loss or gradient is infinite or no number, else 0.0; stays on the device."""
    return (~(total.isfinite() & norm.isfinite())).float()


class UsualLoss:
    """A running mean of the losses in metrics.jsonl, to tell a spike from noise."""

    def __init__(self, mean: float = 0.0, lines: int = 0) -> None:
        self.mean, self.lines = mean, lines

    def jumps_to(self, loss: float) -> bool:
        """Whether this is a spike; it then counts for little in the mean."""
        jump = self.lines >= SETTLED and loss > JUMP * self.mean
        share = 0.02 if jump else max(0.2, 1 / (self.lines + 1))
        self.mean, self.lines = self.mean + share * (loss - self.mean), self.lines + 1
        return jump


def too_many_skipped(most: int, step: int, saved_step: int) -> UserError:
    return UserError(
        f"{most} batches in a row gave no number, up to step {step:,}; go on from the checkpoint of step "
        f"{saved_step:,} with a lower optimizer.rate or a smaller optimizer.clip, or mend the text"
    )
