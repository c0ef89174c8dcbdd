"""The recorded search of a GPU, its encoder and its kernels, on a CPU through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from conftest import small_model
from test_engine import fast, requests

from transduce.core.hypotheses import Request
from transduce.core.search import Roles
from transduce.errors import SettingsError

pytest.importorskip("triton", reason="the recorded search is made of its kernels")

RECORDED = """
import torch
from conftest import small_model
from test_engine import fast, lively, requests
from transduce.decoding.batches import PlainEngine
from transduce.core.hypotheses import Penalty
from transduce.core.search import Roles
from transduce.engine import refill

refill.SIZES = ({places},)
model = lively(small_model(4, output_bias={biased}, norm={norm!r}, layers=1, decoder_layers=2))
some = [request._replace(source=request.source[:5], most=4) for request in requests()[:3]]
penalty = Penalty(0.6, plain={plain}, forced_end={stop!r} != "exact")
roles = Roles({size}, {n_best}, penalty, stop={stop!r}, ended_first={stop!r} == "exact")
found = refill.RefillEngine(fast(model), "cpu").find(some, roles, lambda _: None)
expected = PlainEngine(model, "cpu").find(some, roles, lambda _: None)
for one, two in zip(found, expected, strict=True):
    assert [(h.tokens, h.complete) for h in one] == [(h.tokens, h.complete) for h in two], (one, two)
    assert all(abs(a.score - b.score) < 1e-4 for a, b in zip(one, two, strict=True))
assert not {biased} or any(h.complete for hypotheses in found for h in hypotheses)
"""


ENCODED = """
import torch
from conftest import small_model
from test_engine import MODELS, fast, requests
from transduce.engine.recorded_encoder import RecordedEncoder
from transduce.core.rows import Rows
from transduce.core.special import END

torch.manual_seed(0)
tokens, lengths = torch.randint(4, 29, (3, 7)), torch.tensor([7, 1, 4], dtype=torch.int32)
segments = (torch.arange(7) < lengths[:, None]).long()
source = Rows(tokens * segments, segments, torch.arange(7) * segments)
for changes, is_known in [*((model, model.get("score") != "dot") for model in MODELS), ({{"heads": 1, "d_k": 65}}, False)]:
    for source_end in (True, False):
        model = fast(small_model(2, **changes))
        model.source_end = source_end
        with torch.inference_mode():
            encoder = RecordedEncoder(model)
            assert (encoder.weights is not None) == is_known, changes
            found, expected = encoder.states(tokens.int(), lengths), model.encode(source).states
        assert (found - expected)[segments == 1].abs().max() < 1e-5, changes
"""

WALKED = """
import numpy as np
import torch
from transduce.core.hypotheses import Penalty
from transduce.core.search import Roles
from transduce.engine.recorded import Shape, _empty_slots
from transduce.engine.walk_back import Found, Only, of_lengths
from transduce.fast.kernels.walk_back import columns, walk_back

rng = np.random.default_rng(0)
for beams in (1, 2, 3, 5):
    penalty = Penalty([0.6, -0.5, 1.0, 0.0][beams % 4], plain=beams == 3, forced_end=beams > 2)
    slots = _empty_slots(Shape(12, beams, 8, 8, 1, 1, penalty, "exact", True), "cpu")
    length, most = rng.integers(1, 9, 12), rng.integers(1, 9, 12)
    totals = -rng.random((12, 8, beams)) * 9
    ends = np.where(rng.random(totals.shape) < 0.2, totals, -np.inf)
    if beams == 1:  # greedy search is over with the first end
        ends[:] = -np.inf
        ends[np.arange(12), length - 1, 0] = np.where(rng.random(12) < 0.5, -1.0, -np.inf)
    ends[:4] = -np.inf
    most = np.where(np.isinf(ends).all((1, 2)), length, np.maximum(most, length))  # cut, where nothing ended
    given = dict(length=length, most=most, history=rng.integers(4, 99, totals.shape), scores=-rng.random((12, beams)),
                 parents=rng.integers(0, beams, totals.shape), end_totals=ends,
                 end_parents=rng.integers(0, beams, totals.shape))
    for name, table in given.items():
        getattr(slots, name).copy_(torch.from_numpy(table))
    places = torch.from_numpy(rng.permutation(12)[:11])
    tables = [getattr(slots, name)[places].numpy() for name in Found._fields]
    complete = []
    for ended_first in (True, False):
        roles = Roles(beams, 1, penalty, ended_first=ended_first)
        found = walk_back(slots, places, torch.from_numpy(of_lengths(penalty, 9)), ended_first, penalty.forced_end)
        ours = Only(*columns(found.numpy())).hypotheses(roles)
        assert ours == Found(*tables).hypotheses(roles), beams
        complete.append(sum(h[0].complete for h in ours if h))
        assert 0 < complete[-1] < sum(bool(h) for h in ours)
    assert complete[1] < complete[0] or beams in (1, 2)
"""


def test_the_encoder_is_the_models_own(interpret: Callable[[str], None]) -> None:
    interpret(ENCODED.format())


def test_the_best_hypothesis_is_read_back_as_numpy_reads_it(interpret: Callable[[str], None]) -> None:
    interpret(WALKED)


@pytest.mark.parametrize(
    ("places", "size", "n_best", "norm", "plain", "stop", "biased"),
    [
        (2, 1, 1, "after", False, "exact", True),  # fewer places than sentences: some wait
        (2, 2, 2, "before", False, "exact", False),
        (16, 2, 1, "before", True, "exact", False),  # all arrive together
        (2, 3, 1, "after", True, "usual", True),
        (2, 3, 1, "after", True, "likely", True),
    ],
)
def test_a_recorded_search_is_the_plain_one(
    interpret: Callable[[str], None],
    places: int,
    size: int,
    n_best: int,
    norm: str,
    plain: bool,
    stop: str,
    biased: bool,
) -> None:
    how = {"places": places, "size": size, "n_best": n_best}
    interpret(RECORDED.format(**how, norm=norm, plain=plain, stop=stop, biased=biased))


def test_arrivals_are_filled_up_with_the_last_of_them() -> None:
    from transduce.engine.recorded import _fill  # noqa: PLC0415

    own = torch.full((4, 6), 9, dtype=torch.int32)
    _fill(own, torch.arange(10, dtype=torch.int32).view(2, 5))
    assert own[:, :5].tolist() == [[0, 1, 2, 3, 4], *[[5, 6, 7, 8, 9]] * 3]


def test_a_full_gpu_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from transduce.engine.refill import RefillEngine  # noqa: PLC0415

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(RefillEngine, "_find", full)
    with pytest.raises(SettingsError, match="the memory of this GPU is full.*--workers"):
        RefillEngine(fast(small_model(1)), "cpu").find(requests(), Roles(), lambda _: None)


def test_what_is_recorded_is_used_again_however_little_memory_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from transduce.engine import refill  # noqa: PLC0415

    room = [10**6]
    monkeypatch.setattr(refill, "RecordedSearch", lambda encoder, shape, device: shape)
    monkeypatch.setattr(refill.RefillEngine, "_room", lambda self: room[0])
    engine = refill.RefillEngine(fast(small_model(1)), "cpu")
    waiting = refill.Waiting([Request([5] * 20, 20)] * 5000, lambda x: x, True)
    halved = engine._recording(waiting, Roles(4))
    assert halved.sentences < 4096  # type: ignore[attr-defined]
    room[0] = 10
    assert engine._recording(waiting, Roles(4)) is halved


def test_long_sentences_arrive_in_smaller_parts() -> None:
    """They are padded to the longest of a part."""
    from transduce.engine.recorded import TOKENS  # noqa: PLC0415
    from transduce.engine.waiting import SLOTS, Waiting  # noqa: PLC0415

    some = [Request([5] * (300 if i < 3 else 9), 20) for i in range(3000)]
    waiting, parts = Waiting(some, lambda x: x, True), []
    waiting.part = 2048
    while waiting.next_size():
        expected = waiting.next_size()
        which, arrivals = waiting.take()
        assert len(which) == expected
        parts.append(arrivals[:, TOKENS:].shape)
    assert all(rows * width <= SLOTS for rows, width in parts)
    assert sum(rows for rows, _ in parts) == 3000
    assert max(rows for rows, _ in parts) == 2048
