"""Looking for a target: one loop over the model's four verbs, and the roles that make it one search or another.

    rules     what is forbidden or forced        rules.py
    choose    which hypotheses go on             choose.py, constrain.py
    stop      when a sentence is done            here

Greedy search is a beam of one. A sentence's result does not depend on the others in its batch: each has its own
limits, and finished sentences leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from transduce.core.choose import Best, Chooser, Chosen
from transduce.core.hypotheses import IMPOSSIBLE, Beams, Hypothesis, Penalty, Request, ranked
from transduce.core.layout import lay_out
from transduce.core.rules import Rule, never_written
from transduce.core.seq2seq import Seq2Seq
from transduce.core.special import BEGIN, END

# When a sentence is done: when no open hypothesis can win any more; when as many have ended as are followed; or when
# they have, and the best open one, were it to end now, would not be among them (Hugging Face's `generate`).
Stop = Literal["exact", "usual", "likely"]
LEAVING = 0.9  # finished sentences leave when no more than this share goes on: moving the others takes time too


class Roles(NamedTuple):
    """What makes a search."""

    size: int = 1  # hypotheses of a sentence
    n_best: int = 1  # that are wanted
    penalty: Penalty = Penalty()
    rules: Sequence[Rule] = ()
    choose: Chooser = Best()
    stop: Stop = "exact"
    slots: int = 5120  # of a batch, beams included
    begin: tuple[int, ...] = ()  # tokens that stand before every translation and are no part of it: its language
    room: int = 0  # hypotheses beyond `size` that are followed where terms must be written
    ended_first: bool = True  # before what its limit cut; or by score alone

    @property
    def needed(self) -> int:
        """Hypotheses that must have ended, with a score that those still open cannot reach."""
        return self.n_best if self.stop == "exact" else self.size


@torch.inference_mode()
def search(
    model: Seq2Seq, requests: list[Request], roles: Roles, device: str, watch: Callable[[Beams], None] | None = None
) -> list[list[Hypothesis]]:
    """The `n_best` best targets of each sentence, best first. `watch` sees the hypotheses after every step."""
    memory = model.encode(lay_out([[[*request.source, END]] for request in requests]).to(device))
    state = model.start(memory)
    width = roles.size + roles.room
    beams = Beams.begin(requests, width, device)
    tokens = torch.full((len(requests), 1), BEGIN, device=device)
    for token in roles.begin:
        _, state = model.step(tokens, memory, state)
        tokens = torch.full_like(tokens, token)
    while beams.sentences:
        looked: list[Tensor] | None = [] if roles.penalty.beta else None
        logits, state = model.step(tokens, memory, state, looked)  # (R, B, V)
        log_p = logits.float().log_softmax(-1)
        widens = log_p.size(1) < width
        if widens:  # the first step: what comes next is the same for all hypotheses
            log_p = log_p.repeat(1, width, 1)
        for rule in (never_written, *roles.rules):
            rule(log_p, beams)
        if looked:
            seen = looked[-1].expand(-1, width, -1)
            beams.looked = seen if beams.looked is None else beams.looked + seen
        chosen = roles.choose(log_p, beams)
        _advance(beams, chosen, roles.penalty)
        if watch is not None:
            watch(beams)
        going_on = _still_open(beams, roles)
        state, tokens = state.reorder(chosen.parents.clamp(max=0) if widens else chosen.parents), chosen.tokens
        if len(going_on) <= LEAVING * len(beams.sentences):
            rows = moved_up(going_on)
            beams.keep(rows)
            kept = torch.tensor(rows, dtype=torch.long, device=device)
            memory, state, tokens = memory.keep(kept), state.keep(kept), tokens[kept]
    return [ranked(hypotheses, roles.ended_first)[: roles.n_best] for hypotheses in beams.finished]


def moved_up(rows: list[int]) -> list[int]:
    """These rows, ascending, in an order in which few change their place: the last ones fill the gaps."""
    gaps = sorted(set(range(len(rows))) - set(rows))
    behind = [row for row in rows if row >= len(rows)]
    moved = dict(zip(gaps, behind, strict=True))
    return [moved.get(place, place) for place in range(len(rows))]


def _advance(beams: Beams, chosen: Chosen, penalty: Penalty) -> None:
    """Ended hypotheses move to `finished`; the others become one token longer."""
    for row, beam, total in chosen.ends:
        beams.finish(row, beam, total, penalty, complete=True)
    rows = torch.arange(len(beams.scores), device=beams.scores.device).unsqueeze(1)
    beams.tokens = torch.cat([beams.tokens[rows, chosen.parents], chosen.tokens.unsqueeze(-1)], 2)
    beams.scores = chosen.scores
    beams.looked = None if beams.looked is None else beams.looked[rows, chosen.parents]


def _still_open(beams: Beams, roles: Roles) -> list[int]:
    """Rows to go on with. At a sentence's limit its open hypotheses are taken as they are; to be given an end is one
    more step, which a sentence that is done does not take."""
    going_on = []
    for row, (request, scores) in enumerate(zip(beams.requests, beams.scores.tolist(), strict=True)):
        finished, is_last = beams.finished[beams.sentences[row]], beams.length >= request.most
        is_done = _is_done(finished, max(scores), beams.length, request.most, roles)
        if is_last and not (is_done and roles.penalty.forced_end):
            for beam, total in enumerate(scores):
                if total > IMPOSSIBLE:
                    beams.finish(row, beam, total, roles.penalty, complete=False)
        elif max(scores) > IMPOSSIBLE and not (is_done or is_last):
            going_on.append(row)
            continue
        beams.scores[row] = IMPOSSIBLE  # nobody follows it while it waits to leave
    return going_on


def _is_done(finished: list[Hypothesis], best: float, length: int, limit: int, roles: Roles) -> bool:
    """Whether a sentence has what it needs: as many ends as hypotheses are followed (usual, and greedy search), or
    enough that the best open hypothesis cannot beat: were it to reach the largest length penalty at no further cost
    (exact), or as it stands (likely)."""
    if roles.stop == "usual" or roles.size == 1:
        return len(finished) >= roles.size
    hope = best / roles.penalty.of_length(limit if roles.stop == "exact" else length)
    return sum(h.score >= hope for h in finished) >= roles.needed
