"""Objects with the parts that have a grammar or that multiply: steps, analyses, windows, hooks, user data, applications
and DataSources. `documents` adds fields one by one, and seldom makes a whole part that admission accepts."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.warmpool import WARM_POOL
from tests.fuzz.mutations import WORDS, Path

NAMES = ("a", "drain", "errors", "x-1", "0", "a" * 30)
SECONDS = (60, 61, 300, 3600)
ODD_SECONDS = (0, 1, 29, 30, 59, 172_801, 604_800, 604_801, 2**31)
NUMBERS = (1, 2, 3, "10%", "33%", "100%")
ODD_NUMBERS = (0, "0%", "101%", "1", -1)
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Asia/Kathmandu")
ODD_ZONES = ("posixrules", "../UTC", "Mars", "utc", "localtime")
QUERIES = ("up", "sum(rate(errors[5m])) / sum(rate(requests[5m]))", 'a{b="}"}', "1 / 0", "sum by (a) (b", "{" * 99)
OPERATORS = ("<", "<=", ">", ">=", "==", "!=")
USER_DATA = (
    *("#cloud-config\n", "#cloud-config\nusers: [default]\nssh_authorized_keys:\n- ssh-ed25519 AAAA a\n"),
    *("#!/bin/sh\necho a\n", "Content-Type: multipart/mixed; boundary=a\n\n--a\n", "#include\nhttps://a\n"),
    *("#cloud-config\na: &a [*a]\n", "#cloud-config\n" + "- [" * 200, "#cloud-config\r\nusers:\t- a\n"),
)
ODD_SHARE = 0.02


def pick(random: Random, good: Sequence[Any], odd: Sequence[Any] = WORDS) -> Any:
    """A value that admission accepts, and seldom one that it may refuse."""
    return random.choice(odd if random.random() < ODD_SHARE else good)


def maybe(random: Random, **fields: Any) -> Json:
    """Half of the fields."""
    return {name: value for name, value in fields.items() if random.random() < 0.5}


def some(random: Random, most: int, make: Callable[[Random], Any]) -> list[Any]:
    return [make(random) for _ in range(pick(random, (1, 1, 2, 3, most), (0, most + 1)))]


def named(random: Random, most: int, make: Callable[[Random], Json]) -> list[Json]:
    """Entries with names that differ, as lists with the key `name` need."""
    made = enumerate(some(random, most, make))
    names = ((f"n{index}-{random.choice(NAMES)[:20]}", entry) for index, entry in made)
    return [{"name": pick(random, (name,)), **entry} for name, entry in names]


# Updates


def step(random: Random) -> Json:
    match random.randrange(4):
        case 0 | 1:
            return {"setReplicas": pick(random, NUMBERS, ODD_NUMBERS)}
        case 2:
            return {"pause": maybe(random, durationSeconds=pick(random, SECONDS, ODD_SECONDS))}
    return {"analysis": {}}


def comparison(random: Random) -> str:
    number = pick(random, ("0", "0.05", "-1", "9" * 15, "0." + "0" * 15), ("1e3", "9" * 16, "NaN", "1."))
    return f"result {random.choice(OPERATORS)} {number}"


def check(random: Random) -> Json:
    if random.random() < 0.3:
        return {"job": {"cronJob": pick(random, NAMES)}}
    conditions = {random.choice(("successCondition", "failureCondition")): comparison(random)}
    limits = maybe(
        random,
        intervalSeconds=pick(random, SECONDS, ODD_SECONDS),
        initialDelaySeconds=pick(random, SECONDS, ODD_SECONDS),
        count=pick(random, (1, 100), (0, 101)),
        failureLimit=pick(random, (0, 100), (-1, 101)),
    )
    return {"prometheus": {"query": pick(random, QUERIES), **conditions, **limits}}


def analysis(random: Random) -> Json:
    return {"checks": named(random, 8, check)}


def steps(random: Random) -> Json:
    found = maybe(random, partition=pick(random, NUMBERS, ODD_NUMBERS), maxSurge=pick(random, NUMBERS), rollback={})
    return {**found, "steps": some(random, 32, step), "analysis": analysis(random)}


# Times


def cron(random: Random) -> str:
    """A schedule of five fields, each of which may have lists, ranges and steps."""

    def field(least: int, most: int) -> str:
        first, last = sorted((random.randint(least, most), random.randint(least, most)))
        step = random.randint(1, most)
        forms = ("*", str(first), f"{first}-{last}", f"*/{step}", f"{first},{last}", f"{first}-{last}/{step}")
        return str(pick(random, forms, ("L", "?", f"{last}-{first}", "*/0", str(most + 1), "1,,2")))

    fields = [field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)]
    whole = pick(random, (" ".join(fields),), (" ".join(fields[:4]), "@daily", "0 0 30 2 *", "0 0 29 2 *"))
    return str(whole)


def window(random: Random) -> Json:
    zone = maybe(random, timeZone=pick(random, ZONES, ODD_ZONES))
    return {"schedule": cron(random), "durationSeconds": pick(random, SECONDS, ODD_SECONDS), **zone}


def hook(random: Random) -> Json:
    results = maybe(random, defaultResult=pick(random, ("Continue", "Abandon"), ("Retry",)))
    limits = maybe(random, timeoutSeconds=pick(random, SECONDS, ODD_SECONDS))
    return {"transition": pick(random, ("Terminating", "Restarting"), ("Pausing",)), **results, **limits}


# Guests


def user_data(random: Random) -> list[Json]:
    source = random.choice(("cloudInitNoCloud", "cloudInitConfigDrive"))
    text = random.choice((*USER_DATA, *WORDS[:8])) * random.choice((1, 1, 4))
    if random.random() < 0.3:
        given: Json = {"userDataBase64": base64.b64encode(text.encode(errors="replace")).decode()}
    else:
        given = {pick(random, ("userData",), ("userDataBase64", "networkDataBase64")): text}
    given |= maybe(random, networkData=random.choice(USER_DATA))
    return [{"name": "init", source: given}]


def variable(random: Random) -> Json:
    if random.random() < 0.5:
        return {"value": "$(A)" * random.choice((1, 9))}
    return {"valueFrom": {"secretKeyRef": {"name": pick(random, NAMES), "key": pick(random, ("k", "a.b"), ("a/b",))}}}


def container(random: Random) -> Json:
    program = {"image": "quay.io/a/b:c"} if random.random() < 0.5 else {"command": ["sh", "-c", "true"]}
    ports = [{"containerPort": pick(random, (1, 80, 65535), (0, 65536)), **maybe(random, name="http", protocol="UDP")}]
    return {**program, **maybe(random, env=named(random, 256, variable), ports=ports, workingDir="/")}


def application(random: Random) -> Json:
    return {"containers": named(random, 16, container), **maybe(random, restartPolicy="Never")}


def data_volumes(random: Random) -> list[Json]:
    def one(random: Random) -> Json:
        where = maybe(random, namespace=pick(random, ("images", "shop")))
        reference = {"kind": pick(random, ("DataSource",)), "name": pick(random, NAMES), **where}
        source = {"sourceRef": reference} if random.random() < 0.8 else {"source": {"blank": {}}}
        return {"spec": {"storage": {"resources": {"requests": {"storage": "1Gi"}}}, **source}}

    return [{"metadata": {"name": each.pop("name")}, **each} for each in named(random, 8, one)]


def data_source(random: Random) -> Json:
    """A DataSource of CDI as an API server holds it."""
    kind = random.choice(("pvc", "snapshot", "dataSource", "http"))
    source = {kind: {"name": random.choice((*NAMES, "", None, 7)), **maybe(random, namespace=random.choice(NAMES))}}
    condition = {"type": random.choice(("Ready", "Running")), "status": random.choice(("True", "False", "Unknown"))}
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataSource",
        "metadata": {"name": "fedora", "namespace": "images", "resourceVersion": "7", "uid": "u1"},
        "spec": {"source": source},
        "status": maybe(random, source=source, conditions=[condition, random.choice((condition, {}, None))]),
    }


# Objects


def pool(random: Random) -> Json:
    disk = {"name": "init", "disk": {"bus": "virtio"}}
    guest = {"domain": {"devices": {"disks": [disk]}, "memory": {"guest": "64Mi"}}}
    volumes = [{"name": "init", "containerDisk": {"image": "quay.io/a/b:c"}}]
    template = {"spec": {"runStrategy": "Always", "template": {"spec": {**guest, "volumes": volumes}}}}
    return {"replicas": random.choice((0, 3, 100)), "template": template}


def warm_pool(random: Random) -> Json:
    found = pool(random)
    del found["template"]["spec"]["runStrategy"]
    return found


def claim(random: Random) -> Json:
    return {"poolName": "web"}


@dataclass(frozen=True)
class Structure:
    """A part of the objects of a kind."""

    kind: Kind
    spec: Callable[[Random], Json]
    parts: Mapping[Path, Callable[[Random], Any]]
    """what is made, by its path in the spec"""

    def generate(self, random: Random) -> Json:
        document: Json = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
        document |= {"metadata": {"name": "web", "namespace": "shop"}, "spec": self.spec(random)}
        for path, make in self.parts.items():
            document["spec"] = _with(document["spec"], path, make(random))
        return document


def _with(value: Json, path: Path, part: Any) -> Json:
    key, *below = path
    return {**value, str(key): _with(at(value, str(key)) or {}, tuple(below), part) if below else part}


PROACTIVE: Path = ("updateStrategy", "proactive")
VM_SPEC: Path = ("template", "spec")
STRUCTURES: Mapping[str, Structure] = {
    "steps": Structure(POOL, pool, {PROACTIVE: steps}),
    "analysis": Structure(POOL, pool, {(*PROACTIVE, "analysis"): analysis}),
    "windows": Structure(POOL, pool, {("maintenanceWindows",): lambda random: some(random, 16, window)}),
    "hooks": Structure(POOL, pool, {("lifecycleHooks",): lambda random: named(random, 16, hook)}),
    "user-data": Structure(POOL, pool, {(*VM_SPEC, "template", "spec", "volumes"): user_data}),
    "application": Structure(CLAIM, claim, {("application",): application}),
    "data-sources": Structure(
        WARM_POOL,
        warm_pool,
        {
            ("updateStrategy", "trackDataSources"): lambda random: random.random() < 0.8,
            (*VM_SPEC, "dataVolumeTemplates"): data_volumes,
        },
    ),
}
