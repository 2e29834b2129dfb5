"""What is attacked. Each target makes inputs of its own form, and says what must hold for them."""

import contextlib
from asyncio import Runner
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.admission_targets import Admission, Bodies, Specs
from tests.fuzz.campaign import Target
from tests.fuzz.command_targets import Commands
from tests.fuzz.growth_targets import Costs, Growth
from tests.fuzz.hardware_targets import Domains, Records
from tests.fuzz.plan_targets import Plans, Structured, Views
from tests.fuzz.services import running
from tests.fuzz.structures import STRUCTURES


@contextlib.contextmanager
def all_targets(folder: Path, *, libvirt: bool) -> Iterator[list[Target]]:
    """The targets, with the workers of a defaulter unless they are left out."""
    with Runner() as runner, contextlib.ExitStack() as stack:
        workers = None
        if libvirt:
            workers = stack.enter_context(running(runner, folder / "qemu"))
        admission, plans = Admission("admission", 180, runner, None), Plans(runner)
        found: list[Target] = [
            Bodies(runner, workers),
            Records(),
            admission,
            Specs(),
            Domains(runner, workers),
            Commands(folder),
            plans,
            *(Structured(name, admission, plans) for name in STRUCTURES),
            Views(),
            Growth(runner),
            Costs(runner),
        ]
        if workers is not None:
            found.append(Admission("libvirt", 20, runner, workers))
        yield found
