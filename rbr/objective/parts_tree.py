"""Sums that do not depend on who adds them: leaves are added along a binary tree over their numbers.

The sum of floats depends on the order of its terms. Here the order is fixed by the numbers of the leaves alone: two
sums are added if and only if they are the two halves of a run of 2^level leaves that begins at a multiple of 2^level.
Whoever holds a run of leaves adds what it can and passes on the rest, at most two sums a level. So merging is
associative to the bit, for any numbers, infinite ones included, without a common scale.
"""

from __future__ import annotations

from collections.abc import Iterable

Sums = tuple  # of arrays or numbers, added one by one


class Tree:
    """The sums of some leaves, as {(level, index): sums of the leaves index * 2^level to (index + 1) * 2^level - 1}.

    Examples
    --------
    >>> one, other = Tree(), Tree()
    >>> for leaf in (0, 1, 2):
    ...     one.add(0, leaf, (1.0,))
    >>> for leaf in (3, 4):
    ...     other.add(0, leaf, (1.0,))
    >>> sorted(one.nodes), sorted(other.nodes)
    ([(0, 2), (1, 0)], [(0, 3), (0, 4)])
    >>> one.merge(other)
    >>> sorted(one.nodes.items())
    [((0, 4), (1.0,)), ((2, 0), (4.0,))]
    >>> one.total()
    (5.0,)
    """

    def __init__(self, nodes: dict[tuple[int, int], Sums] | None = None):
        self.nodes: dict[tuple[int, int], Sums] = {} if nodes is None else nodes

    def add(self, level: int, index: int, sums: Sums) -> None:
        """Add the sums of a run of leaves that is not in the tree yet."""
        while (level, index ^ 1) in self.nodes:
            other = self.nodes.pop((level, index ^ 1))
            left, right = (other, sums) if index & 1 else (sums, other)
            sums = tuple(a + b for a, b in zip(left, right, strict=True))
            level, index = level + 1, index >> 1
        self.nodes[level, index] = sums

    def merge(self, other: Tree) -> None:
        """Add the leaves of another tree."""
        for (level, index), sums in sorted(other.nodes.items(), key=lambda node: node[0]):
            self.add(level, index, sums)

    def total(self) -> Sums:
        """The sums of all leaves: what is left in the tree, from left to right."""
        in_order = sorted(self.nodes, key=lambda node: node[1] << node[0])
        total = self.nodes[in_order[0]]
        for node in in_order[1:]:
            total = tuple(a + b for a, b in zip(total, self.nodes[node], strict=True))
        return total


def merged(trees: Iterable[Tree]) -> Tree:
    """One tree of the leaves of several."""
    whole = Tree()
    for tree in trees:
        whole.merge(tree)
    return whole
