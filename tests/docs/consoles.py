"""Commands in documentation, run and held against the output that is printed below them.

    python -m tests.docs.consoles docs/tasks/*.md      # with KUBECONFIG of a stack: writes the output anew

A block of language `console` is a session: lines after `$ ` are commands, the others are what they print. What differs
from one run to the next is compared by its kind: ages, times, revisions. `...` stands for any number of lines.
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

from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIABLE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?(s|m|h)\b"), "AGE"),
    (re.compile(r"\b[0-9a-f]{10}\b"), "REVISION"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r'" deleted from \S+ namespace'), '" deleted'),  # as later releases of kubectl say it
    (re.compile(r"\s+"), " "),
)
LOOKING = ("kubectl get ", "kubectl diff ", "kubectl poolhouse ")
"""commands that may be asked again until the cluster has come to where the page is"""
DOING = ("detach", "attach", "undo", "pause", "resume")


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


def said(command: str, environment: Mapping[str, str]) -> list[str]:
    """What it prints, whatever its exit code: pages show refusals too."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, **environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return [line.rstrip() for line in done.stdout.rstrip().splitlines()]


def plain(line: str) -> str:
    for pattern, word in VARIABLE:
        line = pattern.sub(word, line)
    return line.strip()


def agree(shown: tuple[str, ...], printed: list[str]) -> bool:
    wanted = [".*" if line.strip() == "..." else re.escape(plain(line) + "\n") for line in shown]
    return re.fullmatch("".join(wanted), "".join(plain(line) + "\n" for line in printed), re.DOTALL) is not None


def asks(command: str) -> bool:
    return command.startswith(LOOKING) and not any(word in command.split() for word in DOING)


def follow(step: Step, environment: Mapping[str, str]) -> str:
    """What a page says that isn't so, or nothing."""
    deadline = time.monotonic() + (PATIENCE_SECONDS if asks(step.command) else 0)
    while not agree(step.printed, printed := said(step.command, environment)):
        if time.monotonic() >= deadline:
            return "\n".join([f"$ {step.command}", "--- the page", *step.printed, "--- it printed", *printed])
        time.sleep(1)  # all pages ask at once, each time by a new process
    return ""


def rewritten(page: str, environment: Mapping[str, str]) -> str:
    """The page with what its commands print now, where that differs."""

    def session(match: re.Match[str]) -> str:
        lines = []
        for step in _steps(match[1].splitlines()):
            printed = said(step.command, environment)
            deadline = time.monotonic() + 20
            while step.printed and asks(step.command) and not agree(step.printed, printed):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.3)
                printed = said(step.command, environment)
            kept = step.printed if agree(step.printed, printed) and step.printed else tuple(printed)
            lines += [f"$ {step.command}", *kept]
        return "```console\n" + "".join(f"{line}\n" for line in lines) + "```"

    return BLOCK.sub(session, page)


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        path.write_text(rewritten(path.read_text(), {}))


if __name__ == "__main__":
    main()
