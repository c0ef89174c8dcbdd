"""How many tokens of a batch fit into a GPU: batch.tokens=auto."""

from __future__ import annotations

from collections.abc import Callable

import torch

FIRST = 4096  # slots that are tried, and twice as many; the rest follows in proportion
MOST = 65_536  # beyond this a GPU is no faster, and updates become few
SHARE = 0.85  # of the memory that is free
STEP = 1024


def find_budget(try_update: Callable[[int], None], first: int = FIRST) -> int:
    """`try_update` makes one update with the largest batch of a budget, and keeps nothing.

    What a batch needs grows in proportion to its slots: two tries tell how fast.
    """
    free, _ = torch.cuda.mem_get_info()
    needs = [_peak(try_update, slots) for slots in (first, 2 * first)]
    a_slot = max((needs[1] - needs[0]) / first, 1.0)
    room = SHARE * free - needs[0]
    fitting = int(first + room / a_slot)
    return max(STEP, min(MOST, fitting) // STEP * STEP)


def _peak(try_update: Callable[[int], None], slots: int) -> int:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try_update(slots)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()
