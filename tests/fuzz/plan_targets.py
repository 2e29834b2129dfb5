"""The targets of the controllers: objects of a cluster, from which they make views and plans."""

import json
from asyncio import Runner
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from random import Random
from typing import Any

from controllers.claim.snapshot import SOURCE as CLAIM_SOURCE
from controllers.pool import simulate as pool_plans
from controllers.pool import sources as pools
from controllers.pool.hypothetical_snapshot import hypothetical_snapshot
from controllers.pool.known_revisions import REVISION_SOURCE
from controllers.pool.list_stores import list_stores as list_pool_stores
from controllers.pool.vm_snapshots import RESTORE_SOURCE, SNAPSHOT_SOURCE
from controllers.replicaset import observe as replica_sets
from controllers.replicaset import simulate as set_plans
from controllers.shared.data_sources import DATA_SOURCES, parse_data_source
from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.sources import Source
from controllers.warmpool.cache import WARM_VMIS, WARM_VMS
from controllers.warmpool.warm_pool import SOURCE as WARM_POOL_SOURCE
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import object_key
from tests.fuzz import documents
from tests.fuzz.admission_targets import Admission, is_object
from tests.fuzz.mutations import at_path, mutate
from tests.fuzz.oracles import check_problems
from tests.fuzz.services import NAMESPACE, POOL_NAME, EmptyCluster, PoolCluster
from tests.fuzz.structures import STRUCTURES


class Plans:
    """Plans of pools and replica sets, which the controllers simulate for any document of a user who may list VMs."""

    name, share = "plans", 40
    KINDS = (POOL, REPLICA_SET)
    NOW = datetime(2026, 1, 1, tzinfo=UTC)
    BURST = 250

    def __init__(self, runner: Runner) -> None:
        transport: Any = PoolCluster()
        api = Api(transport, "fuzz")
        self._pools = runner.run(list_pool_stores(api, NAMESPACE))
        self._sets = runner.run(replica_sets.list_stores(api, NAMESPACE))

    def generate(self, random: Random) -> Json:
        document = documents.ours(random, *self.KINDS)
        if random.random() < 0.7:
            document = {**document, "metadata": {"name": POOL_NAME, "namespace": NAMESPACE}}
        if random.random() < 0.4:
            document = mutate(random, document, [documents.ours(random, *self.KINDS)])
        return document if self.repair(document) else documents.of_kinds(POOL.kind)[0]

    def repair(self, given: Any) -> Json | None:
        return given if isinstance(given, dict) and given.get("kind") in [kind.kind for kind in self.KINDS] else None

    def run(self, given: Json) -> None:
        kind = POOL if given["kind"] == POOL.kind else REPLICA_SET
        given = kind.normalize(given)
        if problems := kind.problems(given):
            check_problems([asdict(problem) for problem in problems])
            return
        found: Any
        answer: Callable[[Any, datetime], Json]
        if kind is POOL:
            found, answer = hypothetical_snapshot(self._pools, given, self.BURST), pool_plans.answer
        else:
            found, answer = set_plans.hypothetical_snapshot(self._sets, given, self.BURST), set_plans.answer
        if isinstance(found, InvalidSpec):
            check_problems([{"path": "spec", "message": found.problem}])
        else:
            json.dumps(answer(found, self.NOW))


class Structured:
    """Objects with a part that has a grammar or multiplies, through the webhook; pools also through their plan."""

    share = 40

    def __init__(self, name: str, admission: Admission, plans: Plans) -> None:
        self.name, self._structure = name, STRUCTURES[name]
        self._admission, self._plans = admission, plans

    def generate(self, random: Random) -> Json:
        document, other = self._structure.generate(random), self._structure.generate(random)
        if random.random() < 0.5:
            for path in self._structure.parts:
                *parents, key = ("spec", *path)
                inner = at_path(document, tuple(parents))
                inner[key] = mutate(random, inner[key], [at_path(other, ("spec", *path))])
        return {"document": document, "old": other if random.random() < 0.2 else None}

    def repair(self, given: Any) -> Json | None:
        return self._admission.repair(given)

    def run(self, given: Json) -> None:
        self._admission.run(given)
        if self._plans.repair(given["document"]) is not None:
            self._plans.run(given["document"])


class Views:
    """Objects of tenants in the informers of the controllers, which skip and log what they cannot read. An object that
    stops an informer would stop the controllers for all tenants."""

    name, share = "views", 150
    SOURCES: Mapping[str, tuple[str, Source[Any]]] = {
        "pool": (POOL.kind, pools.POOL_SOURCE),
        "pool/vm": ("VirtualMachine", pools.VM_SOURCE),
        "pool/vmi": ("VirtualMachineInstance", pools.VMI_SOURCE),
        "pool/revision": ("ControllerRevision", REVISION_SOURCE),
        "pool/disk": ("PersistentVolumeClaim", pools.DISK_SOURCE),
        "pool/snapshot": ("VirtualMachineSnapshot", SNAPSHOT_SOURCE),
        "pool/restore": ("VirtualMachineRestore", RESTORE_SOURCE),
        "replicaset": (REPLICA_SET.kind, replica_sets.SET_SOURCE),
        "replicaset/vmi": ("VirtualMachineInstance", replica_sets.VMI_SOURCE),
        "warmpool": (WARM_POOL.kind, WARM_POOL_SOURCE),
        "warmpool/vm": ("VirtualMachine", WARM_VMS),
        "warmpool/vmi": ("VirtualMachineInstance", WARM_VMIS),
        "claim": (CLAIM.kind, CLAIM_SOURCE),
        "data-source": ("DataSource", Source(DATA_SOURCES, parse_data_source)),
    }

    def __init__(self) -> None:
        transport: Any = EmptyCluster()
        api = Api(transport, "fuzz")
        self._informers = {name: source.informer(api) for name, (_, source) in self.SOURCES.items()}

    def generate(self, random: Random) -> Json:
        name = random.choice(sorted(self.SOURCES))
        document = documents.stored(random, self.SOURCES[name][0])
        changed = mutate(random, document, [documents.stored(random, self.SOURCES[name][0])])
        return {"source": name, "document": changed if is_object(changed) and _is_stored(changed) else document}

    def repair(self, given: Any) -> Json | None:
        document = given.get("document")
        known = str(given.get("source")) in self.SOURCES
        return given if known and is_object(document) and _is_stored(document) else None

    def run(self, given: Json) -> None:
        document, informer = given["document"], self._informers[given["source"]]
        informer.change(object_key(document), document)


def _is_stored(document: Json) -> bool:
    """Whether an API server may hold the object: it checks owner references, and sets UID, version and times."""
    metadata = document["metadata"]
    owners = metadata.get("ownerReferences") or []
    if not isinstance(owners, list) or not all(isinstance(owner, dict) for owner in owners):
        return False
    texts = [metadata.get(key) for key in ("name", "uid", "resourceVersion", "creationTimestamp")]
    texts += [owner.get(key) for owner in owners for key in ("apiVersion", "kind", "name", "uid")]
    return all(isinstance(text, str) for text in texts)
