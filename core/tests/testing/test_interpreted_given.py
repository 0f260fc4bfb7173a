from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec.structs import replace

from colibri.compute.runtime import Row
from colibri.testing.interpreter import InterpretedRuntime

from ..native.plans import Draft


def test_a_row_brings_its_numbers_along(tmp_path: Path) -> None:
    d = Draft(vocab=2)
    x = d.node("add", [d.node("embed", [], 2, [d.given(np.array([[1, 1], [2, 3]], np.float32))]), d.node("given", [], 2)], 2)
    runtime = InterpretedRuntime(replace(d.plan(x), hidden=x), d.tensors(tmp_path))
    assert runtime.given == 2
    brought = np.array([[0.5, -1], [10, 20]], np.float32)
    runtime.step([Row(token, 0, i, given=brought[i].tobytes()) for i, token in enumerate((1, 0))])
    assert [list(runtime.hidden(i)) for i in range(2)] == [[2.5, 2], [11, 21]]
