"""Layers and choices of a search on a CPU: loops that numba compiles, and products of BLAS between them.

PyTorch makes a product of its own for every head of every sentence, a thousand small ones a step, and hides by a mask
what other beams wrote. Here a hypothesis goes through its own slots, and nothing is hidden. Batches are searched beside
each other in threads, and Python runs one of them at a time: so a layer calls its products itself. All in one file:
numba keeps compiled code on the disk until the file of a kernel changes, not that of one it calls. Scores of -inf mean
that nobody follows a hypothesis; compiled code keeps them (compiled.py).

Letters: R sentences, A beams that are followed (one at the first step), B beams, n steps so far, T capacity for steps,
S capacity for the source, H heads, K width of a head, V vocabulary. In arrays of keys and values [0] are the keys.
"""

from __future__ import annotations

import numpy as np

from transduce.compiled import external, kernel
from transduce.core.special import BEGIN, END, PAD, UNKNOWN
from transduce.engine.blas import address_of_sgemm

QUERIES = 64  # of a source at a time, so that a long one takes little memory
COLUMNS = 128  # whose highest logit is looked at before the others are
# of a polynomial that is 2^r between 0 and 1, to 2e-7; the first belongs to r^5
P5, P4, P3, P2, P1, P0 = (
    np.polynomial.Chebyshev.interpolate(np.exp2, 5, [0, 1])
    .convert(kind=np.polynomial.Polynomial)
    .coef[::-1]
    .astype(np.float32)
)
sgemm = external("sgemm_of_pytorch", address_of_sgemm() or 0, 13)


@kernel
def embed(tokens, n, table, positions, scale, x):
    """x = table[tokens] * scale + positions[n]: what all hypotheses wrote last, at step n."""
    at = positions[n]
    for row in range(len(tokens)):
        for i in range(len(at)):
            x[row, i] = table[tokens[row], i] * np.float32(scale) + at[i]


@kernel
def look_back(qkv, past, ancestors, active, n, scale, read):
    """Write keys and values of step n, then let every hypothesis look at its history.

    qkv (R * A, 3, H, K), past (R, T * B, 2, H, K), ancestors (R, B, T), read (R * A, H, K).
    """
    heads, d_k, beams, following = past.shape[3], past.shape[4], ancestors.shape[1], len(qkv) // len(active)
    slots = np.empty((following, n + 1), np.int64)
    weights, bits = np.empty(following * heads * (n + 1), np.float32), np.empty(following * heads * (n + 1), np.int32)
    for r in range(len(active)):
        if not active[r]:
            continue
        first = r * following
        for b in range(following):
            for t in range(n):
                slots[b, t] = t * beams + ancestors[r, b, t]
            new = n * beams + b
            slots[b, n] = new
            for part in range(2):
                for h in range(heads):
                    for k in range(d_k):
                        past[r, new, part, h, k] = qkv[first + b, part + 1, h, k]
        mine, out = qkv[first : first + following], read[first : first + following]
        attend(mine, past[r], slots[:, : n + 1], scale, (weights, bits), out)


@kernel
def look_at_memory(q, memory, lengths, active, scale, read):
    """Every hypothesis looks at its source: q (R * A, 1, H, K), memory (R, S, 2, H, K), lengths (R,)."""
    following, most, heads = len(q) // len(active), memory.shape[1], q.shape[2]
    slots = in_order(following, most)
    weights, bits = np.empty(heads * slots.size, np.float32), np.empty(heads * slots.size, np.int32)
    for r in range(len(active)):
        if active[r]:
            mine, out = q[r * following : (r + 1) * following], read[r * following : (r + 1) * following]
            attend(mine, memory[r], slots[:, : lengths[r]], scale, (weights, bits), out)


@kernel
def in_order(rows, count):
    """0, 1, 2, ... in every row. (`np.arange` would take eight seconds to compile.)"""
    slots = np.zeros((rows, count), np.int64)
    for row in range(rows):
        for i in range(count):
            slots[row, i] = i
    return slots


@kernel
def look_around(qkv, lengths, scale, read):
    """The tokens of each source look at one another: qkv (R * S, 3, H, K), lengths (R,), read (R * S, H, K)."""
    most, heads = len(qkv) // len(lengths), qkv.shape[2]
    slots = in_order(min(most, QUERIES), most)
    weights, bits = np.empty(heads * slots.size, np.float32), np.empty(heads * slots.size, np.int32)
    for r in range(len(lengths)):
        first, last = r * most, r * most + lengths[r]
        for begin in range(first, last, QUERIES):
            mine, out = qkv[begin : min(begin + QUERIES, last)], read[begin : min(begin + QUERIES, last)]
            attend(mine, qkv[first:last], slots[:, : last - first], scale, (weights, bits), out)


@kernel
def attend(queries, cache, slots, scale, room, read):
    """read = softmax(queries · keys * scale) · values: hypotheses of one sentence, each over its slots of the cache.

    queries (A, 1 or 3, H, K), of which the first; cache (slots, 2 or 3, H, K), of which the last two; slots (A, count);
    read (A, H, K). Inner loops are fast where numbers lie side by side, which all of these do, and where no array is
    made within them. The exponentials of all hypotheses are taken in one go.
    """
    (hypotheses, heads, d_k), count, place, (weights, bits) = read.shape, slots.shape[1], 0, room
    keys = cache.shape[1] - 2
    for b in range(hypotheses):
        for i in range(count):
            slot = slots[b, i]
            for h in range(heads):
                score = np.float32(0)
                for k in range(d_k):
                    score += queries[b, 0, h, k] * cache[slot, keys, h, k]
                weights[place + h * count + i] = score * np.float32(scale)
        for _ in range(heads):
            highest = np.float32(-np.inf)
            for i in range(place, place + count):
                highest = max(highest, weights[i])
            for i in range(place, place + count):
                weights[i] -= highest
            place += count
    exponentials(weights, place, bits)
    place = 0
    for b in range(hypotheses):
        for h in range(heads):
            total = np.float32(0)
            for i in range(place, place + count):
                total += weights[i]
            for k in range(d_k):
                read[b, h, k] = 0
            for i in range(count):
                slot, weight = slots[b, i], weights[place + i] / total
                for k in range(d_k):
                    read[b, h, k] += weight * cache[slot, keys + 1, h, k]
            place += count


@kernel
def exponentials(x, count, bits):
    """x = exp(x) in place, for x <= 0."""
    powers = bits.view(np.float32)
    for i in range(count):
        x[i], bits[i] = exponential(x[i])
    for i in range(count):
        x[i] *= powers[i]


@kernel
def sum_of_exponentials(x, highest, fractions, bits):
    """Σ exp(x - highest)."""
    powers, total = bits.view(np.float32), np.float32(0)
    for i in range(len(x)):
        fractions[i], bits[i] = exponential(x[i] - highest)
    for i in range(len(x)):
        total += fractions[i] * powers[i]
    return total


@kernel
def exponential(x):
    """exp(x) = 2^(r + n), n whole, 0 <= r < 1, for x <= 0: 2^r by a polynomial, and the bits of 2^n, made by writing n
    where a float has its exponent. To call `exp` would keep the processor from taking several at once."""
    z = max(x, np.float32(-87)) * np.float32(1.44269504)
    n = np.floor(z)
    r = z - n
    fraction = ((((P5 * r + P4) * r + P3) * r + P2) * r + P1) * r + P0
    return fraction, np.int32((n + np.float32(127)) * np.float32(8388608))


@kernel
def add_norm(x, written, norm, out):
    """x += written, and out = (x - μ) / √(σ² + ε) · γ + β; out may be x."""
    width, (gamma, beta, eps) = np.float32(x.shape[1]), norm
    for row in range(len(x)):
        stream, new, normed, total = x[row], written[row], out[row], np.float32(0)
        for i in range(len(stream)):
            stream[i] += new[i]
            total += stream[i]
        mean, squares = total / width, np.float32(0)
        for i in range(len(stream)):
            squares += (stream[i] - mean) * (stream[i] - mean)
        scale = np.float32(1) / np.sqrt(squares / width + np.float32(eps))
        for i in range(len(stream)):
            normed[i] = (stream[i] - mean) * scale * gamma[i] + beta[i]


@kernel
def product(x, affine, out, say):
    """out = x W + b; affine is W (K, N) and b."""
    weight, bias = affine
    for row in range(len(out)):
        for i in range(len(bias)):
            out[row, i] = bias[i]
    say[0], say[1], say[2] = out.shape[1], out.shape[0], x.shape[1]
    columns = np.intp(say.ctypes.data)  # where the first is; the others behind it
    rows, inner, plain, one = columns + 4, columns + 8, columns + 12, columns + 16
    w, x_, y = np.intp(weight.ctypes.data), np.intp(x.ctypes.data), np.intp(out.ctypes.data)
    # BLAS counts down columns: what lies row by row here is its transpose there, and Yᵀ = Wᵀ Xᵀ
    sgemm(plain, plain, columns, rows, inner, one, w, columns, x_, inner, one, y, columns)


@kernel
def look(at, layer, caches, now, scales):
    """The residual stream through self-attention and attention over the memory."""
    x, h, qkv, q, read, written, _, say = at
    self_qkv, self_output, self_norm, cross_query, cross_output, cross_norm = layer
    past, memory, lengths = caches
    n, ancestors, active = now
    rows, heads, d_k = len(x), past.shape[3], past.shape[4]
    product(h, self_qkv, qkv, say)
    look_back(qkv.reshape(rows, 3, heads, d_k), past, ancestors, active, n, scales[0], read.reshape(rows, heads, d_k))
    product(read, self_output, written, say)
    add_norm(x, written, self_norm, h)

    heads, d_k = memory.shape[3:]
    product(h, cross_query, q, say)
    look_at_memory(q.reshape(rows, 1, heads, d_k), memory, lengths, active, scales[1], read.reshape(rows, heads, d_k))
    product(read, cross_output, written, say)
    add_norm(x, written, cross_norm, h)


@kernel
def look_into(at, layer, lengths, scale, heads):
    """The residual stream of R sources, each in as many rows, through self-attention."""
    x, h, qkv, _, read, written, _, say = at
    self_qkv, self_output, norm = layer
    rows, d_k = len(x), x.shape[1] // heads
    product(h, self_qkv, qkv, say)
    look_around(qkv.reshape(rows, 3, heads, d_k), lengths, scale, read.reshape(rows, heads, d_k))
    product(read, self_output, written, say)
    add_norm(x, written, norm, h)


@kernel
def widen(at, into, is_relu):
    """Into the feed-forward layer, and through its activation if that is a ReLU."""
    _, h, _, _, _, _, inner, say = at
    product(h, into, inner, say)
    if is_relu:
        for row in range(len(inner)):
            for i in range(inner.shape[1]):
                inner[row, i] = max(inner[row, i], np.float32(0))


@kernel
def narrow(at, out_of, norm):
    """Out of it."""
    x, h, _, _, _, written, inner, say = at
    product(inner, out_of, written, say)
    add_norm(x, written, norm, h)


@kernel
def best_continuations(logits, scores, active, totals, parents, tokens):
    """The best continuations of a sentence's hypotheses, as many as `totals` (R, count) has room for.

    logits (R * A, V), scores (R, B). Log-probabilities are not stored: one pass finds the best of every column (logits
    of one hypothesis, written in lines of COLUMNS), one the sum for the softmax, and then only those columns are read
    that can have something better than what is found already.
    """
    size, following = logits.shape[1], len(logits) // len(active)
    highest, fractions, bits = np.empty(COLUMNS, np.float32), np.empty(size, np.float32), np.empty(size, np.int32)
    totals[:], parents[:], tokens[:] = -np.inf, 0, PAD
    for r in range(len(active)):
        for b in range(following if active[r] else 0):
            if scores[r, b] == -np.inf:
                continue
            x, best = logits[r * following + b], np.float32(-np.inf)
            highest_of_columns(x, highest)
            for c in range(COLUMNS):
                best = max(best, highest[c])
            offset = scores[r, b] - best - np.log(sum_of_exponentials(x, best, fractions, bits))
            for c in range(COLUMNS):
                if highest[c] + offset > totals[r, -1]:
                    for v in range(c, size, COLUMNS):
                        if x[v] + offset > totals[r, -1] and v != PAD and v != BEGIN and v != UNKNOWN:
                            insert(x[v] + offset, b, v, totals[r], parents[r], tokens[r])


@kernel
def highest_of_columns(x, highest):
    """The highest of every COLUMNS-th number. (The highest of neighbours would be found one by one.)"""
    highest[:] = -np.inf
    whole = len(x) // COLUMNS * COLUMNS
    for line in range(0, whole, COLUMNS):
        for c in range(COLUMNS):
            highest[c] = max(highest[c], x[line + c])
    for c in range(len(x) - whole):
        highest[c] = max(highest[c], x[whole + c])


@kernel
def insert(total, parent, token, totals, parents, tokens):
    """Among the best of a sentence, in its place; the last one is no longer among them."""
    place = len(totals) - 1
    while place > 0 and totals[place - 1] < total:
        totals[place], parents[place], tokens[place] = totals[place - 1], parents[place - 1], tokens[place - 1]
        place -= 1
    totals[place], parents[place], tokens[place] = total, parent, token


@kernel
def advance(best, n, table, lengths, exact, likely, forced_end):
    """B of a sentence's 2 B best continuations go on, and those among the first B that are ends have ended; when it has
    what it needs, or is at its limit, it is done. `table`: see `Table` in loop_search.py."""
    totals, parents, tokens = best
    active, length, most, history, came, end_totals, end_parents, scores, ancestors, finished, ended = table
    beams, fresh = scores.shape[1], np.empty_like(ancestors[0])
    for r in range(len(active)):
        if not active[r]:
            continue
        length[r], kept = n + 1, 0
        for b in range(beams):
            is_end = tokens[r, b] == END and totals[r, b] > -np.inf
            end_totals[r, n, b], end_parents[r, n, b] = totals[r, b] if is_end else -np.inf, parents[r, b]
            if is_end:
                ended[r] += 1
                keep_highest(finished[r], totals[r, b] / lengths[n + 1])
            scores[r, b] = -np.inf
        for i in range(2 * beams):
            if tokens[r, i] != END and kept < beams:
                scores[r, kept], history[r, n, kept], came[r, n, kept] = totals[r, i], tokens[r, i], parents[r, i]
                kept += 1
        for b in range(beams):
            for t in range(n):
                fresh[b, t] = ancestors[r, came[r, n, b], t]
            fresh[b, n] = came[r, n, b]
        ancestors[r, :, : n + 1] = fresh[:, : n + 1]
        hope = scores[r, 0] / lengths[most[r] if exact else n + 1]  # the first is the best: could it still win?
        done = finished[r, -1] >= hope if (exact or likely) and beams > 1 else ended[r] >= beams
        active[r] = not (done or n + 1 >= most[r] or scores[r, 0] == -np.inf)
        if done and forced_end:  # to be given an end would be one more step
            scores[r] = -np.inf


@kernel
def keep_highest(highest, new):
    """All but the lowest of these and a new one, highest first."""
    place = len(highest) - 1
    if new <= highest[place]:
        return
    while place > 0 and highest[place - 1] < new:
        highest[place] = highest[place - 1]
        place -= 1
    highest[place] = new
