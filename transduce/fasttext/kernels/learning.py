"""The updates of plain.py, and the walks through text that make them: skip-gram, CBOW, labels.

Shapes: V words, R input rows, O output rows, D numbers a row. `state` is one number of 64 bits, to draw from. What is
infinite or no number, as after a rate that was too high, stays so in compiled code (compiled.py) and is found later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transduce.compiled import kernel

NS, HS, SOFTMAX, OVA = 0, 1, 2, 3
LONGEST_LINE = 1024  # words that fastText reads as one line
MOST = np.float32(30.0)
ONE = np.float32(1.0)


class Out(NamedTuple):
    """The output side: what is predicted, and how."""

    loss: int
    U: Any  # (O, D)
    negatives: int
    table: Any  # rows, as often as they are to be drawn
    starts: Any  # of the tree
    nodes: Any
    codes: Any
    own: Any  # (H, D): a thread's own copies of the first H rows of U, those of the most frequent words


class In(NamedTuple):
    """The input side: the rows of a word are row_starts[w]:row_starts[w + 1] of rows; the word's own is the first."""

    E: Any  # (R, D)
    row_starts: Any
    rows: Any


@kernel
def draw(state):
    """A number of 32 bits, all equally probable (a linear congruential generator, its upper half)."""
    state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return state[0] >> np.uint64(32)


@kernel
def below(state, limit):
    return np.int64((draw(state) * np.uint64(limit)) >> np.uint64(32))


@kernel
def share(state):
    """Between 0 and 1."""
    return np.float32(draw(state)) * np.float32(2.3283064e-10)


@kernel
def sigmoid(x):
    return ONE / (ONE + np.exp(-min(max(x, -MOST), MOST)))


@kernel
def logistic(h, U, row, truth, rate, g):
    """One row is asked "is it you?"."""
    score = np.float32(0)
    for d in range(h.shape[0]):
        score += U[row, d] * h[d]
    p = sigmoid(score)
    step = rate * (truth - p)
    for d in range(h.shape[0]):
        u = U[row, d]
        g[d] += step * u
        U[row, d] = u + step * h[d]
    return -np.log((p if truth > 0 else ONE - p) + np.float32(1e-10))


@kernel
def softmax(h, U, target, rate, g, scores):
    most = np.float32(-1e30)
    for row in range(U.shape[0]):
        score = np.float32(0)
        for d in range(h.shape[0]):
            score += U[row, d] * h[d]
        scores[row] = score
        most = max(most, score)
    total = np.float32(0)
    for row in range(U.shape[0]):
        scores[row] = np.exp(scores[row] - most)
        total += scores[row]
    for row in range(U.shape[0]):  # a total of 0 or no number comes of a rate that is too high, which is found later
        step = rate * ((ONE if row == target else np.float32(0)) - scores[row] / total)
        for d in range(h.shape[0]):
            u = U[row, d]
            g[d] += step * u
            U[row, d] = u + step * h[d]
    return -np.log(scores[target] / total + np.float32(1e-10))


@kernel
def learn(out, h, target, rate, g, scores, state):
    """Predict one target from h: changes U, adds to g, gives the loss."""
    if out.loss == SOFTMAX:
        return softmax(h, out.U, target, rate, g, scores)
    loss = np.float32(0)
    if out.loss == HS:
        for place in range(out.starts[target], out.starts[target + 1]):
            loss += logistic(h, out.U, out.nodes[place], ONE if out.codes[place] else np.float32(0), rate, g)
        return loss
    own = out.own.shape[0]  # asked here, not in a function of its own: the compiler would not unfold that one
    if target < own:
        loss += logistic(h, out.own, target, ONE, rate, g)
    else:
        loss += logistic(h, out.U, target, ONE, rate, g)
    for _ in range(out.negatives):
        row = out.table[below(state, out.table.shape[0])]
        while row == target and out.U.shape[0] > 1:
            row = out.table[below(state, out.table.shape[0])]
        if row < own:
            loss += logistic(h, out.own, row, np.float32(0), rate, g)
        else:
            loss += logistic(h, out.U, row, np.float32(0), rate, g)
    return loss


@kernel
def gather(E, rows, count, h):
    """h = the mean of some rows."""
    h[:] = 0
    for place in range(count):
        row = rows[place]
        if row >= 0:  # an n-gram that training has not seen has none, and is 0
            for d in range(h.shape[0]):
                h[d] += E[row, d]
    scale = ONE / np.float32(max(count, 1))
    for d in range(h.shape[0]):
        h[d] *= scale


@kernel
def scatter(E, rows, count, g):
    """Give every row g."""
    for place in range(count):
        row = rows[place]
        for d in range(g.shape[0]):
            E[row, d] += g[d]


@kernel
def read_words(ids, place, end, keep, state, line):
    """The known words of a line from `place` on that chance keeps: (their number, where to go on)."""
    count = 0
    end = min(end, place + LONGEST_LINE)
    for here in range(place, end):
        if ids[here] >= 0 and share(state) <= keep[ids[here]]:
            line[count] = ids[here]
            count += 1
    return count, end


@kernel
def skipgram_line(line, count, inputs, out, window, rate, h, g, scores, state):
    """Each word predicts its neighbours, up to a distance that is drawn. fastText sums the rows of a word anew for each
    neighbour and gives each row what that one says, g. Then the mean of the rows, h, is greater by g too: so h is
    summed once, follows its rows, and they are given the sum of all at the end. (A word in which an n-gram comes twice,
    as `ana` in banana, would grow a little more there.)"""
    loss, pairs = np.float32(0), 0
    total = np.empty_like(g)
    for centre in range(count):
        reach = 1 + below(state, window)
        some = inputs.rows[inputs.row_starts[line[centre]] : inputs.row_starts[line[centre] + 1]]
        gather(inputs.E, some, some.shape[0], h)
        total[:] = 0
        for other in range(max(0, centre - reach), min(count, centre + reach + 1)):
            if other != centre:
                g[:] = 0
                loss += learn(out, h, line[other], rate, g, scores, state)
                for d in range(g.shape[0]):
                    h[d] += g[d]
                    total[d] += g[d]
                pairs += 1
        scatter(inputs.E, some, some.shape[0], total)
    return loss, pairs


@kernel
def cbow_line(line, count, inputs, out, window, rate, h, g, scores, state):
    """The neighbours of a word, with all their n-grams, predict it together."""
    loss, pairs = np.float32(0), 0
    for centre in range(count):
        reach = 1 + below(state, window)
        first, last = max(0, centre - reach), min(count, centre + reach + 1)
        rows = 0
        h[:] = 0
        for other in range(first, last):
            if other != centre:
                some = inputs.rows[inputs.row_starts[line[other]] : inputs.row_starts[line[other] + 1]]
                rows += some.shape[0]
                for row in some:
                    for d in range(h.shape[0]):
                        h[d] += inputs.E[row, d]
        if rows == 0:
            continue
        for d in range(h.shape[0]):
            h[d] /= np.float32(rows)
        g[:] = 0
        loss += learn(out, h, line[centre], rate, g, scores, state)
        pairs += 1
        for other in range(first, last):
            if other != centre:
                some = inputs.rows[inputs.row_starts[line[other]] : inputs.row_starts[line[other] + 1]]
                scatter(inputs.E, some, some.shape[0], g)
    return loss, pairs


@kernel
def merge(U, own, base):
    """Add what a thread has learned since the last time to what all know, and begin from there."""
    for row in range(own.shape[0]):
        for d in range(own.shape[1]):
            known = U[row, d] + own[row, d] - base[row, d]
            U[row, d] = known
            own[row, d] = known
            base[row, d] = known


@kernel
def words(text, first, last, inputs, out, forwards, window, keep, rates, merged_every, state):
    """Lines first:last of a text, by skip-gram (`forwards`) or CBOW: (the loss in all, of how many predictions).

    Threads would often write into the rows of the same few words, and wait for each other's caches. So each has its own
    copies of the rows that `out.own` names, which after `merged_every` words are merged with those of the others."""
    D = inputs.E.shape[1]
    ids, starts = text[0], text[2]
    h, g, scores = np.empty(D, np.float32), np.empty(D, np.float32), np.empty(out.U.shape[0], np.float32)
    line = np.empty(LONGEST_LINE, np.int32)
    loss, pairs = 0.0, 0
    out = Out(out.loss, out.U, out.negatives, out.table, out.starts, out.nodes, out.codes, out.own.copy())
    base, merged = out.own.copy(), starts[first]
    for number in range(first, last):
        rate = np.float32(rates[0] + (rates[1] - rates[0]) * (number - first) / (last - first))
        place = starts[number]
        while place < starts[number + 1]:
            if place - merged > merged_every:
                merge(out.U, out.own, base)
                merged = place
            count, place = read_words(ids, place, starts[number + 1], keep, state, line)
            if forwards:
                found = skipgram_line(line, count, inputs, out, window, rate, h, g, scores, state)
            else:
                found = cbow_line(line, count, inputs, out, window, rate, h, g, scores, state)
            loss += found[0]
            pairs += found[1]
    merge(out.U, out.own, base)
    return loss, pairs


@kernel
def word_ngram_rows(hashes, begin, end, longest, bucket_rows, rows, count):
    """Add the rows of the word n-grams of a line; a bucket without a row (-1) is 0 everywhere, but counts."""
    buckets = np.uint64(bucket_rows.shape[0])
    for first in range(begin, end):
        value = np.uint64(np.int64(hashes[first]))
        for following in range(first + 1, min(end, first + longest)):
            value = np.uint64(value * np.uint64(116049371) + np.uint64(np.int64(hashes[following])))
            rows[count] = bucket_rows[np.int64(value % buckets)]
            count += 1
    return count


@kernel
def line_rows(ids, hashes, begin, end, inputs, longest, bucket_rows, rows):
    """The input rows of a line: its words with their n-grams, then its word n-grams; gives their number."""
    count = 0
    for place in range(begin, end):
        if ids[place] >= 0:
            for own in range(inputs.row_starts[ids[place]], inputs.row_starts[ids[place] + 1]):
                rows[count] = inputs.rows[own]
                count += 1
    if longest > 1:
        count = word_ngram_rows(hashes, begin, end, longest, bucket_rows, rows, count)
    return count


@kernel
def labels(text, first, last, inputs, out, longest, bucket_rows, weights, rates, merged_every, state):
    """Each line predicts its label: one of them, drawn, where it has several; all of them with one-against-all.

    Labels are few, so that threads would always write into the same output rows, and wait for each other's caches. With
    `merged_every` a thread has its own, which after so many lines are merged with those of the others."""
    D = inputs.E.shape[1]
    ids, hashes, starts, label_ids, label_starts = text
    h, g, scores = np.empty(D, np.float32), np.empty(D, np.float32), np.empty(out.U.shape[0], np.float32)
    truth = np.zeros(out.U.shape[0], np.float32)
    rows = np.empty(rows_of_longest(starts, first, last, inputs, longest), np.int32)
    loss, lines = 0.0, 0
    shared = out.U
    if merged_every > 0:
        out = Out(out.loss, shared.copy(), out.negatives, out.table, out.starts, out.nodes, out.codes, out.own)
    base = out.U.copy() if merged_every > 0 else shared
    for line in range(first, last):
        if merged_every > 0 and (line - first) % merged_every == 0:
            merge(shared, out.U, base)
        rate = np.float32(rates[0] + (rates[1] - rates[0]) * (line - first) / (last - first))
        count = line_rows(ids, hashes, starts[line], starts[line + 1], inputs, longest, bucket_rows, rows)
        some = label_ids[label_starts[line] : label_starts[line + 1]]
        if count == 0 or some.shape[0] == 0:
            continue
        gather(inputs.E, rows, count, h)
        g[:] = 0
        if out.loss == OVA:
            for label in some:
                truth[label] = 1
            for row in range(out.U.shape[0]):
                loss += logistic(h, out.U, row, truth[row], rate * weights[row], g)
            for label in some:
                truth[label] = 0
        else:
            target = some[below(state, some.shape[0])]
            loss += learn(out, h, target, rate * weights[target], g, scores, state)
        lines += 1
        for d in range(D):
            g[d] /= np.float32(count)
        scatter(inputs.E, rows, count, g)
    if merged_every > 0:
        merge(shared, out.U, base)
    return loss, lines


@kernel
def rows_of_longest(starts, first, last, inputs, longest):
    """Room for the rows of any of these lines."""
    words, rows = 0, 1
    for line in range(first, last):
        words = max(words, starts[line + 1] - starts[line])
    for word in range(inputs.row_starts.shape[0] - 1):
        rows = max(rows, inputs.row_starts[word + 1] - inputs.row_starts[word])
    return words * (rows + longest)
