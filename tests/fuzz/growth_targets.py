"""What grows: the cost of a large object in admission, and that of a pool with a large spec and many VMs."""

import json
import time
from asyncio import Runner
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any, cast

from controllers.pool.decide import conclude, decide_rest
from controllers.pool.hypothetical_snapshot import hypothetical_snapshot
from controllers.pool.list_stores import list_stores
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.stores import Stores
from controllers.pool.template import build_vm
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import POOL
from poolhouse.runtime.api import Api
from poolhouse.service.request_body import MAX_BODY_BYTES
from tests.cost import instructions
from tests.fuzz import documents
from tests.fuzz.admission_targets import PATHS, is_object, review
from tests.fuzz.mutations import at_path, encode, paths
from tests.fuzz.oracles import Finding, check_status
from tests.fuzz.services import NAMESPACE, POOL_NAME, LocalDefaulter, PoolCluster, create_webhook, post
from tests.fuzz.structures import STRUCTURES, data_volumes


class Growth:
    """Makes one part of a document many times as large. The time must not grow faster than the size."""

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
        if not isinstance(value, dict) or not how % 2:
            return value
        name = {"name": f"n{number}"}
        metadata = value.get("metadata")
        return {**value, **({"metadata": metadata | name} if isinstance(metadata, dict) else name)}

    if how == 3:
        parent[key] = "a/" * count * 10
    elif isinstance(parent, list):
        parent[key:] = [named(number) for number in range(count)]
    elif how == 2:
        parent.update({f"{key}{number}": value for number in range(count)})
    else:
        parent[key] = [named(number) for number in range(count)]
    return copied


STATES: Mapping[str, Json] = {
    "ready": {},
    "outdated": {"vm": {"metadata": {"labels": {meta.REVISION: "web-1"}}}},
    "protected": {"vm": {"metadata": {"annotations": {meta.SCALE_IN: "Protect"}}}},
    "deleting": {"vm": {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [meta.KEEP_DISKS]}}},
    "replaced disk": {"vm": {"metadata": {"annotations": {meta.REPLACED_DISKS: "n1-ORDINAL=h1,n2-ORDINAL=h1"}}}},
    "failing": {
        "vm": {
            "status": {
                "ready": False,
                "printableStatus": "CrashLoopBackOff",
                "startFailure": {"consecutiveFailCount": 9},
            }
        },
        "vmi": {"status": {"phase": "Failed", "conditions": []}},
    },
    "starting": {"vm": {"status": {"ready": False}}, "vmi": {"status": {"phase": "Scheduled", "conditions": []}}},
}
"""changes of a VM that runs, and of its VMI, in which ORDINAL stands for the VM's"""

NOW = datetime(2026, 1, 2, tzinfo=UTC)
BURST = 10**6
"""no limit, so that a plan has actions for all VMs"""


def reconcile(stores: Stores, document: Json) -> None:
    """A reconcile of the pool without its writes."""
    snapshot = hypothetical_snapshot(stores, document, BURST)
    if isinstance(snapshot, PoolSnapshot):
        conclude(decide_rest(snapshot, NOW), (), None, None, NOW)


class Costs:
    """Pools whose spec has a part that is many times as large, with many times as many VMs: the instructions of a
    reconcile must grow no faster than the part does, and no faster than the number of VMs does. They are the same in
    each run, unlike the time, but leave out what a function in C does, such as `in` for a tuple."""

    name, share = "cost", 2
    VMS, FACTOR, MOST_GROWTH = 16, 4, 4.2
    COUNTS, REPLICAS = (1, 2, 4, 20), (0, 0.5, 1, 1.5)

    def __init__(self, runner: Runner, reconcile: Callable[[Stores, Json], None] = reconcile) -> None:
        self._runner, self._reconcile = runner, reconcile

    def generate(self, random: Random) -> Json:
        structures = [each for each in STRUCTURES.values() if each.kind == POOL]
        while True:
            document = random.choice(structures).generate(random)
            if random.random() < 0.3:
                document["spec"]["template"]["spec"]["dataVolumeTemplates"] = data_volumes(random)
            for _ in range(random.randrange(4)):
                documents.add_by_schema(random, document["spec"], POOL.spec_schema)
            found = list(paths(document["spec"]))
            entries = [path for path in found if isinstance(path[-1], int)]
            path = random.choice(entries if entries and random.random() < 0.7 else found)
            given: Json = {"document": document, "path": list(path)}
            given |= {"how": random.randrange(4), "count": random.choice(self.COUNTS)}
            if all(_pool(given, given["count"] * factor) for factor in (1, self.FACTOR)):
                break
        states = [random.choice(sorted(STATES)) for _ in range(random.choice((1, 2, 3)))]
        return {**given, "replicas": random.choice(self.REPLICAS), "states": states}

    def repair(self, given: Any) -> Json | None:
        try:
            at_path(given["document"]["spec"], given["path"])
            fits = given["path"] and given["how"] in range(4) and given["count"] in self.COUNTS
            fits = fits and given["replicas"] in self.REPLICAS and given["states"] and {*given["states"]} <= {*STATES}
        except (KeyError, IndexError, TypeError):
            return None
        return given if fits and is_object(given["document"]) and given["document"]["kind"] == POOL.kind else None

    def run(self, given: Json) -> None:
        sizes, numbers = ((least, least * self.FACTOR) for least in (given["count"], self.VMS))
        costs = {(size, vms): self._cost(given, size, vms) for size in sizes for vms in numbers}
        for size in sizes:
            self._compare(f"VMs with {size} copies", *(costs[size, vms] for vms in numbers))
        for vms in numbers:
            self._compare(f"copies with {vms} VMs", *(costs[size, vms] for size in sizes))

    def _compare(self, what: str, small: int, large: int) -> None:
        if small and large > self.MOST_GROWTH * small:
            raise Finding("growth", f"{self.FACTOR} times the {what}: {large} instructions instead of {small}")

    def _cost(self, given: Json, size: int, vms: int) -> int:
        """The instructions of a reconcile; 0 for an invalid pool."""
        document = _pool(given, size)
        if document is None:
            return 0
        document["spec"]["replicas"] = int(given["replicas"] * vms)
        stores = self._stores(document, vms, given["states"])
        self._reconcile(stores, document)  # The hashes of a template, for example, are computed once.
        return instructions(lambda: self._reconcile(stores, document))

    def _stores(self, document: Json, vms: int, states: list[str]) -> Stores:
        """The stores in which the pool has as many VMs, made from its template, which are in these states in turn."""
        cluster = PoolCluster(0, document["spec"])
        api = Api(cast(Any, cluster), "fuzz")
        empty = hypothetical_snapshot(self._runner.run(list_stores(api, NAMESPACE)), document, BURST)
        if isinstance(empty, PoolSnapshot):
            for number in range(vms):
                state = json.dumps(STATES[states[number % len(states)]]).replace("ORDINAL", str(number))
                change, vm = json.loads(state), build_vm(empty.pool, number, empty.revision)
                cluster.add_vm(vm, change.get("vm", {}), change.get("vmi", {}))
        return self._runner.run(list_stores(api, NAMESPACE))


def _pool(given: Json, count: int) -> Json | None:
    """The pool with so many copies, if it is valid."""
    spec = _grown(given["document"]["spec"], given["path"], given["how"], count)
    document = POOL.normalize(
        {**given["document"], "metadata": {"name": POOL_NAME, "namespace": NAMESPACE}, "spec": spec}
    )
    return None if len(encode(document)) > MAX_BODY_BYTES or any(POOL.problems(document)) else document
