"""Hierarchical softmax: a binary tree with a word at each leaf, frequent ones near the root (Huffman, 1952).

The probability of a word is the product of the turns on the way to it, so an update touches log V nodes, not V words:

    p(w | h) = Π σ(±u_node · h)   over the nodes from the root to w; + where the way turns right (code 1)

and because σ(x) + σ(-x) = 1 at every node, the probabilities of all words sum to 1 by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Tree(NamedTuple):
    """The way to each leaf, from the leaf upwards, one behind the other: those of leaf i are starts[i]:starts[i+1]."""

    starts: NDArray[np.int64]
    nodes: NDArray[np.int32]  # inner nodes, as rows of the output matrix
    codes: NDArray[np.bool_]  # whether the way turns right there

    def way(self, leaf: int) -> list[tuple[int, bool]]:
        some = slice(self.starts[leaf], self.starts[leaf + 1])
        return list(zip(self.nodes[some].tolist(), self.codes[some].tolist(), strict=True))


NO_TREE = Tree(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.bool_))


def huffman(counts: NDArray[np.int64]) -> Tree:
    """The tree of leaves with these counts, which must fall. Ties are broken as in fastText, whose files do not hold
    the tree: whoever reads one builds it anew, and must come to the same."""
    leaves = len(counts)
    weight = np.full(2 * leaves - 1, np.iinfo(np.int64).max)
    weight[:leaves] = counts
    parent = np.zeros(2 * leaves - 1, np.int32)
    right = np.zeros(2 * leaves - 1, np.bool_)
    leaf, node = leaves - 1, leaves  # the rarest leaf, and the lightest inner node, that have no parent yet
    for new in range(leaves, 2 * leaves - 1):
        lightest = []
        for _ in range(2):
            if leaf >= 0 and weight[leaf] < weight[node]:
                lightest.append(leaf)
                leaf -= 1
            else:
                lightest.append(node)
                node += 1
        weight[new] = weight[lightest[0]] + weight[lightest[1]]
        parent[lightest] = new
        right[lightest[1]] = True
    return _ways(parent, right, leaves)


def _ways(parent: NDArray[np.int32], right: NDArray[np.bool_], leaves: int) -> Tree:
    starts, nodes, codes = [0], [], []
    root = len(parent) - 1
    for leaf in range(leaves):
        place = leaf
        while place != root:
            nodes.append(parent[place] - leaves)
            codes.append(right[place])
            place = parent[place]
        starts.append(len(nodes))
    return Tree(np.array(starts, np.int64), np.array(nodes, np.int32), np.array(codes, np.bool_))
