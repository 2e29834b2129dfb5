"""Explores models from a command line; see `make model`."""

from __future__ import annotations

import argparse
import time
from typing import Any

from tests.model.models import MODELS
from tests.model.search import explore

ROUNDS: tuple[dict[str, Any], ...] = (
    {"vms": 3, "faults": 0, "changes": 0},
    {"vms": 2, "faults": 1, "changes": 0},
    {"vms": 2, "faults": 0, "changes": 1},
)
"""Bounds of the default: from all states with three VMs, and from those with two a fault or a change at any moment."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--model", choices=MODELS, action="append", help="repeatable; the default is all models")
    for name in ("vms", "faults", "changes"):
        parser.add_argument(f"--{name}", type=int, help="a bound; the default is several rounds")
    parser.add_argument("--most", type=int, help="visit no more states in a round")
    options = parser.parse_args()
    given = {name: value for name in ("vms", "faults", "changes") if (value := getattr(options, name)) is not None}
    failed = False
    for name in options.model or MODELS:
        for bounds in [{"vms": 2, "faults": 0, "changes": 0, **given}] if given else ROUNDS:
            began = time.process_time()
            explored = explore(MODELS[name](**bounds), options.most)
            shown = ", ".join(f"{value} {key}" for key, value in bounds.items())
            print(
                f"{name} ({shown}): {explored.states} states{'' if explored.complete else ' of more'},"
                f" {explored.transitions} transitions, {time.process_time() - began:.0f} s,"
                f" {len(explored.found)} found",
                *explored.found,
                sep="\n",
                flush=True,
            )
            failed = failed or bool(explored.found)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
