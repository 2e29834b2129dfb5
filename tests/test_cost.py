"""The count of instructions is the same for each call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = "from tests.cost import instructions; f = lambda: sum(range(9)); print(*(instructions(f) for _ in range(3)))"


def test_the_first_call_that_a_process_measures_counts_as_the_others() -> None:
    counted = subprocess.run(
        [sys.executable, "-c", CODE], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    first, *others = map(int, counted.stdout.split())
    assert first > 0
    assert others == [first, first]
