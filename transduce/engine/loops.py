"""What lies between the products of a step, on a CPU: loops that numba compiles.

PyTorch makes a product of its own for every head of every sentence, a thousand small ones a step, and hides by a mask
what other beams wrote. Here a hypothesis goes through its own slots, and nothing is hidden.

Letters: R sentences, A beams that are followed (one at the first step), B beams, n steps so far, T capacity for steps,
S capacity for the source, H heads, K width of a head, V vocabulary. In arrays of keys and values [0] are the keys.
"""

from __future__ import annotations

import numpy as np

from transduce.compiled import kernel
from transduce.text.special import BEGIN, END, PAD, UNKNOWN

CHUNK = 64  # logits whose best is looked at before they are
# of a polynomial that is 2^r between 0 and 1, to 2e-7; the first belongs to r^5
P5, P4, P3, P2, P1, P0 = (
    np.polynomial.Chebyshev.interpolate(np.exp2, 5, [0, 1])
    .convert(kind=np.polynomial.Polynomial)
    .coef[::-1]
    .astype(np.float32)
)


@kernel
def embed(tokens, n, table, positions, scale, x):
    """x = table[tokens] * scale + positions[n]: what all hypotheses wrote last, at step n."""
    at = positions[n]
    for row in range(len(tokens)):
        vector, out = table[tokens[row]], x[row]
        for i in range(len(out)):
            out[i] = vector[i] * np.float32(scale) + at[i]


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
        for b in range(following):
            for t in range(n):
                slots[b, t] = t * beams + ancestors[r, b, t]
            slots[b, n] = n * beams + b
            for h in range(heads):
                for part in range(2):
                    new, place = qkv[r * following + b, part + 1, h], past[r, slots[b, n], part, h]
                    for k in range(d_k):
                        place[k] = new[k]
        first = r * following
        attend(qkv[first : first + following, 0], past[r], slots, scale, weights, bits, read[first : first + following])


@kernel
def look_at_memory(q, memory, lengths, active, scale, read):
    """Every hypothesis looks at its source: q and read (R * A, H, K), memory (R, S, 2, H, K), lengths (R,)."""
    following, most, heads = len(q) // len(active), memory.shape[1], q.shape[1]
    slots = np.empty((following, most), np.int64)
    slots[:] = np.arange(most)
    weights, bits = np.empty(heads * slots.size, np.float32), np.empty(heads * slots.size, np.int32)
    for r in range(len(active)):
        if active[r]:
            first, seen = r * following, slots[:, : lengths[r]]
            attend(q[first : first + following], memory[r], seen, scale, weights, bits, read[first : first + following])


@kernel
def attend(queries, cache, slots, scale, weights, bits, read):
    """read = softmax(queries · keys * scale) · values: hypotheses of one sentence, each over its slots of the cache.

    queries (A, H, K), slots (A, count). The exponentials of all of them are taken in one go.
    """
    hypotheses, heads, d_k = queries.shape
    count, place = slots.shape[1], 0
    for b in range(hypotheses):
        for h in range(heads):
            query, highest = queries[b, h], np.float32(-np.inf)
            for i in range(count):
                key, score = cache[slots[b, i], 0, h], np.float32(0)
                for k in range(d_k):
                    score += query[k] * key[k]
                weights[place + i] = score * np.float32(scale)
                highest = max(highest, weights[place + i])
            for i in range(place, place + count):
                weights[i] -= highest
            place += count
    exponentials(weights, place, bits)
    place = 0
    for b in range(hypotheses):
        for h in range(heads):
            out, total = read[b, h], np.float32(0)
            for i in range(place, place + count):
                total += weights[i]
            for k in range(d_k):
                out[k] = 0
            for i in range(count):
                value, weight = cache[slots[b, i], 1, h], weights[place + i] / total
                for k in range(d_k):
                    out[k] += weight * value[k]
            place += count


@kernel
def exponentials(x, count, bits):
    """x = exp(x) in place, for x <= 0, and their sum. To call `exp` for each would keep the processor from taking
    several at once.

    exp(x) = 2^(n + r), n whole, 0 <= r < 1: 2^r by a polynomial, 2^n by writing n where a float has its exponent.
    """
    powers = bits.view(np.float32)
    for i in range(count):
        z = max(x[i], np.float32(-87)) * np.float32(1.44269504)
        n = np.floor(z)
        r = z - n
        x[i] = ((((P5 * r + P4) * r + P3) * r + P2) * r + P1) * r + P0
        bits[i] = np.int32((n + np.float32(127)) * np.float32(8388608))
    total = 0.0
    for i in range(count):
        x[i] *= powers[i]
        total += x[i]
    return total


@kernel
def add_norm(x, written, gamma, beta, eps, out):
    """x += written, and out = (x - μ) / √(σ² + ε) · γ + β; out may be x."""
    width = np.float32(x.shape[1])
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
def best_continuations(logits, scores, active, totals, parents, tokens):
    """Of all continuations of a sentence's hypotheses the best, as many as `totals` (R, count) has room for.

    logits (R * A, V), scores (R, B). Log-probabilities are not stored: one pass finds the best of every chunk, one the
    sum for the softmax, and then only those chunks are read that can have something better than what is found already.
    """
    size, following = logits.shape[1], len(logits) // len(active)
    chunks = (size + CHUNK - 1) // CHUNK
    highest, shifted, bits = np.empty(chunks, np.float32), np.empty(size, np.float32), np.empty(size, np.int32)
    totals[:] = -np.inf
    parents[:] = 0
    tokens[:] = PAD
    for r in range(len(active)):
        for b in range(following if active[r] else 0):
            if scores[r, b] == -np.inf:
                continue
            x, best = logits[r * following + b], np.float32(-np.inf)
            for c in range(chunks):
                high = np.float32(-np.inf)
                for v in range(c * CHUNK, min((c + 1) * CHUNK, size)):
                    high = max(high, x[v])
                highest[c] = high
                best = max(best, high)
            for v in range(size):
                shifted[v] = x[v] - best
            offset = scores[r, b] - best - np.log(exponentials(shifted, size, bits))
            for c in range(chunks):
                if highest[c] + offset > totals[r, -1]:
                    for v in range(c * CHUNK, min((c + 1) * CHUNK, size)):
                        if x[v] + offset > totals[r, -1] and v != PAD and v != BEGIN and v != UNKNOWN:
                            insert(x[v] + offset, b, v, totals[r], parents[r], tokens[r])


@kernel
def insert(total, parent, token, totals, parents, tokens):
    """Among the best of a sentence, in its place; the last one is no longer among them."""
    place = len(totals) - 1
    while place > 0 and totals[place - 1] < total:
        totals[place], parents[place], tokens[place] = totals[place - 1], parents[place - 1], tokens[place - 1]
        place -= 1
    totals[place], parents[place], tokens[place] = total, parent, token


@kernel
def advance(best, n, table, lengths, exact):
    """Of the 2 B best continuations of a sentence B go on, and those among the first B that are ends have ended; a
    sentence that has what it needs, or is at its limit, is done. `table`: see `Table` in loop_search.py."""
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
        hope = scores[r, 0] / lengths[most[r]]  # the first is the best: could it still win?
        done = finished[r, -1] >= hope if exact and beams > 1 else ended[r] >= beams
        active[r] = not (done or n + 1 >= most[r] or scores[r, 0] == -np.inf)


@kernel
def keep_highest(highest, new):
    """Of these and a new one, highest first, all but the lowest."""
    place = len(highest) - 1
    if new <= highest[place]:
        return
    while place > 0 and highest[place - 1] < new:
        highest[place] = highest[place - 1]
        place -= 1
    highest[place] = new
