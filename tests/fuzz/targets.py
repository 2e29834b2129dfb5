"""What is attacked. Each target makes inputs of its own form, and says what must hold for them."""

import contextlib
import json
import time
from asyncio import Runner
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.service.request_body import MAX_BODY_BYTES
from tests.fuzz import documents
from tests.fuzz.admission_targets import PATHS, Admission, Bodies, Specs, is_object, review
from tests.fuzz.campaign import Target
from tests.fuzz.command_targets import Commands
from tests.fuzz.hardware_targets import Domains, Records
from tests.fuzz.mutations import at_path, encode, paths
from tests.fuzz.oracles import Finding, check_status
from tests.fuzz.plan_targets import Plans, Structured, Views
from tests.fuzz.services import LocalDefaulter, create_webhook, post, running
from tests.fuzz.structures import STRUCTURES


class Growth:
    """Documents with a part that is many times as large: the time must grow as the size does."""

    name, share = "growth", 1
    SMALL, FACTOR = 400, 4
    LEAST_SECONDS, MOST_GROWTH = 0.2, 9.0

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._webhook = create_webhook(LocalDefaulter(None))

    def generate(self, random: Random) -> Json:
        document = (documents.vm if random.random() < 0.5 else documents.ours)(random)
        found = [path for path in paths(document) if path[0] in ("spec", "metadata")]
        return {"document": document, "path": list(random.choice(found)), "how": random.randrange(4)}

    def repair(self, given: Any) -> Json | None:
        try:
            at_path(given["document"], given["path"])
        except (KeyError, IndexError, TypeError):
            return None
        return given if is_object(given["document"]) and given["path"] and given.get("how") in range(4) else None

    def run(self, given: Json) -> None:
        for path in PATHS[:2]:
            small, large = (self._seconds(path, given, self.SMALL * factor) for factor in (1, self.FACTOR))
            if large > self.LEAST_SECONDS and large > self.MOST_GROWTH * small:
                # Once more, because a collection of garbage or another process may have disturbed.
                small, large = (
                    min(self._seconds(path, given, self.SMALL * factor) for _ in range(3))
                    for factor in (1, self.FACTOR)
                )
                if large > self.LEAST_SECONDS and large > self.MOST_GROWTH * small:
                    raise Finding("growth", f"{path}: {large:.2f} s instead of {small:.2f} s for {self.FACTOR} times")

    def _seconds(self, path: str, given: Json, count: int) -> float:
        body = encode(review(_grown(given["document"], given["path"], given["how"], count)))
        if len(body) > MAX_BODY_BYTES:
            return 0.0
        began = time.process_time()
        check_status(*self._runner.run(post(self._webhook, path, body)))
        return time.process_time() - began


def _grown(document: Json, path: list[Any], how: int, count: int) -> Json:
    """The document with many copies of the value at a path, under other names."""
    copied: Json = json.loads(json.dumps(document))
    *parents, key = path
    parent, value = at_path(copied, tuple(parents)), at_path(copied, tuple(path))

    def named(number: int) -> Any:
        return {**value, "name": f"n{number}"} if isinstance(value, dict) and how % 2 else value

    if how == 3:
        parent[key] = "a/" * count * 10
    elif isinstance(parent, list):
        parent[key:] = [named(number) for number in range(count)]
    elif how == 2:
        parent.update({f"{key}{number}": value for number in range(count)})
    else:
        parent[key] = [named(number) for number in range(count)]
    return copied


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
        ]
        if workers is not None:
            found.append(Admission("libvirt", 20, runner, workers))
        yield found
