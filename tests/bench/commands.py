"""Measures the CPU time of commands, as a ratio to kubectl or to the import of click alone.

    python -m tests.bench.commands [--dir DIR] [--rounds 20]

The commands run in turns, so that other work on the machine slows all of them down alike. The CPU time of a command is
that of its process and its children.
"""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from controllers.pool.pools import POOLS
from poolhouse.runtime.errors import AlreadyExists
from tests.bench import harness
from tests.bench.pool import pool

SCRIPTS = Path(sys.executable).parent
BASE = "the base"


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(title: str, base: list[str], commands: dict[str, list[str]], rounds: int, kubeconfig: Path) -> None:
    # An installed command has its bytecode; the first run writes it here.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["KUBECONFIG"] = str(kubeconfig)
    every = {BASE: base, **commands}
    for command in every.values():  # fills the caches of files and of kubectl's discovery
        cpu_seconds(command, environment)
    found: dict[str, list[float]] = {name: [] for name in every}
    for _ in range(rounds):
        for name, command in every.items():
            found[name].append(cpu_seconds(command, environment))
    ms = {name: statistics.median(times) * 1000 for name, times in found.items()}
    harness.section(f"CPU time, as a ratio to {title}")
    harness.report(title, f"{ms[BASE]:.0f} ms", cpu_ms=ms[BASE])
    for name in commands:
        ratio = ms[name] / ms[BASE]
        harness.report(name, f"{ms[name]:.0f} ms, ratio {ratio:.1f}", ratio=ratio, cpu_ms=ms[name])


async def prepare(kubeconfig: Path) -> None:
    async with await harness.connect(kubeconfig) as api:
        await harness.prepare(api, POOLS)
        for number in range(5):
            with suppress(AlreadyExists):
                await api.create(POOLS, pool(f"web-{number}", 0))


def main() -> None:
    options = harness.parse_options(__doc__, dir=None, rounds=20)
    poolhouse, completion = str(SCRIPTS / "poolhouse"), str(SCRIPTS / "kubectl_complete-poolhouse")
    in_namespace = ["-n", harness.NAMESPACE]
    with harness.stack(options.dir) as directory:
        kubeconfig = directory / "kubeconfig"
        asyncio.run(prepare(kubeconfig))
        compare(
            "kubectl get vmpool",
            ["kubectl", "get", "vmpool", *in_namespace],
            {
                "poolhouse overview": [poolhouse, "overview", *in_namespace],
                "poolhouse tree vmpool/web-0": [poolhouse, "tree", "vmpool/web-0", *in_namespace],
                "poolhouse claim list": [poolhouse, "claim", "list", *in_namespace],
                "completing the name of a pool": [completion, "rollout", "status", *in_namespace, "web-"],
            },
            options.rounds,
            kubeconfig,
        )
        compare(
            "python -c 'import click'",
            [sys.executable, "-c", "import click"],
            {"poolhouse --help": [poolhouse, "--help"], "poolhouse --version": [poolhouse, "--version"]},
            options.rounds,
            kubeconfig,
        )


if __name__ == "__main__":
    main()
