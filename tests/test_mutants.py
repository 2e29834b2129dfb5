from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import percent
from tests.mutants.campaign import EQUIVALENT, Result
from tests.mutants.mutants import candidates
from tests.mutants.processes import KILLED, SURVIVED, TIMED_OUT
from tests.mutants.reasons import REASONS

ROOT = Path(__file__).resolve().parent.parent

TINY = """
LIMIT = 3


class Numbers:
    def is_larger(self, a, b):
        return a > b


def count():
    n = 0
    while n < LIMIT:
        n += 1
    return n


def uncalled():
    return 1
"""
TESTS = """
from tiny import Numbers, count

def test_one_is_larger():
    assert Numbers().is_larger(2, 1) and not Numbers().is_larger(1, 2)

def test_the_limit_ends_the_count():
    assert count() == 3
"""
OPTIONS = "[pytest]\naddopts = -p no:schemathesis -p no:hypothesispytest -p no:asyncio -p no:anyio"
"""without the plugins, whose imports take a second in the process of each mutant"""
RUN = """
import json, sys
from pathlib import Path
from tests.mutants.campaign import Campaign
from tests.mutants.targets import Target
root, copy = map(Path, sys.argv[1:])
campaign = Campaign(Target("tiny", ("tiny.py",), ("test_tiny.py",)), root, copy, cpu_seconds=1)
found = []
code = campaign.run("a", float("inf"), lambda each: found.append((each.outcome, each.diff)), root / "log")
print(json.dumps(sorted(found)))
sys.exit(code)
"""


def _outcomes(folder: Path) -> list[tuple[str, str]]:
    root, copy = folder / "root", folder / "copy"
    root.mkdir()
    (root / "tiny.py").write_text(TINY)
    (root / "test_tiny.py").write_text(TESTS)
    (root / "pytest.ini").write_text(OPTIONS)
    shutil.copytree(root, copy)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(root), str(copy)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (root / "tiny.py").read_text() == (copy / "tiny.py").read_text() == TINY
    return [(outcome, diff) for outcome, diff in json.loads(done.stdout)]


def test_a_mutant_that_no_test_notices_survives(tmp_path: Path) -> None:
    outcomes = _outcomes(tmp_path)
    assert [diff for outcome, diff in outcomes if outcome == SURVIVED] == [
        "tiny.py:11 count\n    - n = 0\n    + n = 1",
        "tiny.py:18 uncalled\n    - return 1\n    + return 2",
        "tiny.py:7 Numbers.is_larger\n    - return a > b\n    + return a >= b",
    ]
    # Two never end: n = 1 and n -= 1 in the loop.
    assert [outcome for outcome, _ in outcomes if outcome != SURVIVED] == [KILLED] * 5 + [TIMED_OUT] * 2


def test_tests_that_fail_without_a_mutant_are_no_measure(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "tiny.py").write_text(TINY.replace("LIMIT = 3", "LIMIT = 4"))
    (tmp_path / "root" / "test_tiny.py").write_text(TESTS)
    command = [sys.executable, "-c", RUN, str(tmp_path / "root"), str(tmp_path / "root")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.INTERNAL_ERROR
    assert json.loads(done.stdout) == []


def test_equivalent_mutants_do_not_count() -> None:
    outcomes = [KILLED, TIMED_OUT, SURVIVED, SURVIVED, EQUIVALENT]
    assert percent(Result("a.py", outcome) for outcome in outcomes) == 50


@pytest.mark.parametrize("path", sorted({key.split(": ", 1)[0] for key in REASONS}))
def test_each_reason_is_that_of_a_mutant(path: str) -> None:
    keys = {key for key in REASONS if key.startswith(f"{path}: ")}
    # A mutant takes long to write, so only those are written whose changed code is in a key.
    code = [(each, each.module.code_for_node(each.mutation.original_node).strip()) for each in candidates(ROOT, path)]
    found = [each for each, changed in code if any(changed in key for key in keys)]
    assert keys - {mutant.key for each in found if (mutant := each.mutant())} == set()
