from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from colibri.compute.plan import Codes
from colibri.compute.runtime import Row
from colibri.testing.interpreter import InterpretedRuntime

from ..native.plans import Draft


def test_codes_are_a_row_each_of_their_own_part_of_the_table(tmp_path: Path) -> None:
    d = Draft(vocab=2)
    x = d.node("embed", [], 2, [d.given(np.array([[7, 7], [8, 9]], np.float32))])
    table = np.array([[1, 0], [2, 0], [4, 0], [0, 1], [0, 2], [0, 4]], np.float32)
    y = d.node("codes", [], 2, [d.given(table)], each=2, stride=3)
    plan = d.plan(d.node("add", [x, y], 2))
    assert plan.codes == Codes(2, 3)
    runtime = InterpretedRuntime(plan, d.tensors(tmp_path))
    runtime.step([Row(1, 0, 0), Row(1, 0, 1, codes=struct.pack("<2H", 2, 0)), Row(0, 0, 2), Row(0, 0, 3, codes=bytes(4))])
    assert runtime.values[x].tolist() == [[8, 9], [0, 0], [7, 7], [0, 0]]
    assert runtime.values[y].tolist() == [[0, 0], [4, 1], [0, 0], [1, 1]]
