"""Rows of a table by hashes of the last tokens."""

from __future__ import annotations

import numpy as np

from ...compute.plan import Node
from .step import Matrix, Operation, Step, attrs


def _ngram(step: Step, node: Node) -> Matrix:
    how = attrs(node)
    multipliers, heads = how["multipliers"], how["heads"]
    table = np.concatenate([step.values(index) for index in node.weights])
    result = []
    for row in step.rows:
        tokens = step.state(node, 0, row)
        tokens[row.position] = row.token
        last = [int(token) for token in tokens[: row.position + 1, 0]][::-1][: len(multipliers)]  # the own one first
        if how["eos"] in last[1:]:
            last = last[: last.index(how["eos"], 1)]
        last += [how["eos"]] * (len(multipliers) - len(last))
        found = []
        for n in range(2, len(multipliers) + 1):
            products = np.array(last[:n], np.uint64) * np.array([m % 2**64 for m in multipliers[:n]], np.uint64)
            mixed = int(np.bitwise_xor.reduce(products))
            places = range((n - 2) * heads, (n - 1) * heads)
            found += [table[mixed % how["sizes"][i] + how["offsets"][i]] for i in places]
        result.append(np.concatenate(found))
    return np.stack(result)


OPERATIONS: dict[str, Operation] = {"ngram": _ngram}
