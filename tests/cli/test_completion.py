"""Completion for shells and for kubectl."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from poolhouse.cli.completion import FILES, NO_FILES, kubectl_answers
from poolhouse.cli.main import COMMANDS, poolhouse


@pytest.mark.parametrize(
    ("words", "value", "last"),
    [
        pytest.param(["pol"], "policy", NO_FILES, id="a command"),
        pytest.param(["policy", "ex"], "explain", NO_FILES, id="a command of a command"),
        pytest.param(["crds", "-o", "j"], "json", NO_FILES, id="a choice"),
        pytest.param(["why", "--names"], "--namespace", NO_FILES, id="an option"),
        pytest.param(["crds", "-o", "x"], None, NO_FILES, id="nothing fits"),
        pytest.param(["default", "-f", "v"], None, FILES, id="a file"),
    ],
)
def test_kubectl_gets_candidates_and_a_directive(words: Sequence[str], value: str | None, last: str) -> None:
    *found, directive = kubectl_answers(words)
    assert directive == last
    assert [line.partition("\t")[0] for line in found] == ([value] if value else [])


def test_commands_are_completed_with_their_help() -> None:
    *found, _ = kubectl_answers([""])
    offered = dict(line.split("\t") for line in found)
    assert set(offered) == {name for name, entry in COMMANDS.items() if not entry.kind.startswith("hidden")}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    done = CliRunner().invoke(poolhouse, ["completion", shell])
    assert done.exit_code == 0
    assert "_POOLHOUSE_COMPLETE" in done.output


def test_bash_takes_the_script() -> None:
    script = CliRunner().invoke(poolhouse, ["completion", "bash"]).output
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=180)
