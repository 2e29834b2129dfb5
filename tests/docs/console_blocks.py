"""Runs the commands of `console` blocks and compares their output with the block.

    KUBECONFIG=... python -m tests.docs.console_blocks docs/tasks/*.md      # updates the output in the pages

In a block, lines that begin with `$ ` are commands, and other lines are their output. Values that differ between runs
(ages, times, revisions) are compared by their kind. `...` stands for any number of lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from poolhouse.generate.recording import BLOCK
from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent
VARIABLE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?(s|m|h)\b"), "AGE"),
    (re.compile(r"\b[0-9a-f]{10}\b"), "REVISION"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"/[0-9a-f]{8}\b"), "/UID"),
    # until the controller saw them, and the status at that moment: the VM waits for its next start, or starts
    (re.compile(r"\b\d+ starts in a row failed \((CrashLoopBackOff|Starting)\)"), "STARTS failed"),
    (re.compile(r'" deleted from \S+ namespace'), '" deleted'),  # newer releases of kubectl print the namespace
    (re.compile(r"\s+"), " "),
)
READ_COMMANDS = ("kubectl get ", "kubectl diff ", "kubectl wait ", "kubectl poolhouse ")
"""commands that are repeated until their output matches"""
BUSY = re.compile(
    "context deadline exceeded|request timed out|TLS handshake timeout|i/o timeout|was unable to return a response"
    "|cannot determine whether .*; try again"
)
"""what a busy API server answers; nothing was written, so the command is repeated"""
LATE = re.compile(
    "^Warning: .*(the defaulting webhook did not answer in time|the dry run of a VM of the template failed: no answer)"
    "|^Poolhouse itself has an outage: webhook: a dry run by the API server fails: no answer within"
)
"""what a write prints beside its result if a service is too busy to answer the API server; later commands of a page
show that the object is as it should be all the same"""
WRITE_COMMANDS = ("detach", "attach", "undo", "pause", "resume", "promote", "restart", "retry", "abort")


@dataclass(frozen=True)
class Step:
    command: str
    printed: tuple[str, ...]


def sessions(page: str) -> list[list[Step]]:
    return [list(_steps(match[1].splitlines())) for match in BLOCK.finditer(page)]


def _steps(lines: list[str]) -> Iterator[Step]:
    command, printed = "", list[str]()
    for line in lines:
        if not line.startswith("$ "):
            printed.append(line)
            continue
        if command:
            yield Step(command, tuple(printed))
        command, printed = line[2:], []
    if command:
        yield Step(command, tuple(printed))


def output(command: str, environment: Mapping[str, str]) -> list[str]:
    """Returns the output of a command. Its exit code does not matter, because pages show errors too."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return [line.rstrip() for line in done.stdout.rstrip().splitlines() if not LATE.match(line)]


def plain(line: str) -> str:
    for pattern, word in VARIABLE:
        line = pattern.sub(word, line)
    return line.strip()


def matches(shown: tuple[str, ...], printed: list[str]) -> bool:
    wanted = [".*" if line.strip() == "..." else re.escape(plain(line) + "\n") for line in shown]
    return re.fullmatch("".join(wanted), "".join(plain(line) + "\n" for line in printed), re.DOTALL) is not None


def is_repeatable(command: str) -> bool:
    return command.startswith(READ_COMMANDS) and not any(word in command.split() for word in WRITE_COMMANDS)


def follow(step: Step, environment: Mapping[str, str]) -> str:
    """Returns the difference between the page and the output, or nothing."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not matches(step.printed, printed := output(step.command, environment)):
        again = is_repeatable(step.command) or BUSY.search("\n".join(printed))
        if not again or time.monotonic() >= deadline:
            return "\n".join([f"$ {step.command}", "--- page", *step.printed, "--- output", *printed])
        time.sleep(1)  # all pages run at once, and each attempt is a new process
    return ""


def rewritten(page: str, environment: Mapping[str, str]) -> str:
    """Returns the page with the current output of its commands."""

    def session(match: re.Match[str]) -> str:
        lines = []
        for step in _steps(match[1].splitlines()):
            printed = output(step.command, environment)
            deadline = time.monotonic() + 20
            while step.printed and is_repeatable(step.command) and not matches(step.printed, printed):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.3)
                printed = output(step.command, environment)
            kept = step.printed if matches(step.printed, printed) and step.printed else tuple(printed)
            lines += [f"$ {step.command}", *kept]
        return "```console\n" + "".join(f"{line}\n" for line in lines) + "```"

    return BLOCK.sub(session, page)


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        path.write_text(rewritten(path.read_text(), {}))


if __name__ == "__main__":
    main()
