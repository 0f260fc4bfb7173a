"""What each operation of a plan computes, in numpy: a table by name."""

from __future__ import annotations

from . import elementwise, experts, ngram, norms, pooling, products, recurrent, sequences, streams, values
from .step import Operation

OPERATIONS: dict[str, Operation] = {
    **values.OPERATIONS,
    **elementwise.OPERATIONS,
    **norms.OPERATIONS,
    **products.OPERATIONS,
    **sequences.OPERATIONS,
    **pooling.OPERATIONS,
    **streams.OPERATIONS,
    **recurrent.OPERATIONS,
    **ngram.OPERATIONS,
    **experts.OPERATIONS,
}
