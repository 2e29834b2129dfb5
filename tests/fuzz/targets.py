"""What is attacked. Each target makes inputs of its own form, and says what must hold for them."""

import base64
import contextlib
import hashlib
import io
import json
import os
import time
import xml.etree.ElementTree as ET
from asyncio import Runner
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from controllers.claim.snapshot import SOURCE as CLAIM_SOURCE
from controllers.pool import observe as pools
from controllers.pool import simulate as pool_plans
from controllers.pool.list_stores import list_stores as list_pool_stores
from controllers.pool.vm_snapshots import RESTORE_SOURCE, SNAPSHOT_SOURCE
from controllers.replicaset import observe as replica_sets
from controllers.replicaset import simulate as set_plans
from controllers.shared.data_sources import DATA_SOURCES, parse_data_source
from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.sources import Source
from controllers.warmpool.cache import WARM_VMIS, WARM_VMS
from controllers.warmpool.warm_pool import SOURCE as WARM_POOL_SOURCE
from defaulter import libvirt_schema, libvirt_vm, vm_paths, xml
from defaulter.contract import API_VERSION, DEFAULTS_PATH
from defaulter.handler import LONE_SURROGATE, HandlerConfig, handle
from defaulter.hook import InvalidHardwareRecord, build_record, is_sealed, restore_hardware
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import by_gvk
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.main import main as poolhouse
from poolhouse.manifests.crd import object_schema
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import object_key
from poolhouse.service.request_body import MAX_BODY_BYTES
from tests.fuzz import documents
from tests.fuzz.campaign import Target
from tests.fuzz.mutations import WORDS, at_path, encode, mutate, mutate_bytes, paths, scalar
from tests.fuzz.oracles import (
    Finding,
    check_has_path,
    check_problems,
    check_status,
    check_values_kept,
    schema_violations,
)
from tests.fuzz.services import (
    NAMESPACE,
    POOL_NAME,
    SEED,
    EmptyCluster,
    LocalDefaulter,
    NoLibvirt,
    PoolCluster,
    Workers,
    create_webhook,
    post,
    running,
)
from tests.fuzz.structures import STRUCTURES
from tests.webhook.json_patch import apply

PATHS = ("/mutate", "/validate", "/apis/vms/dryrun", "/apis/policies/explain")


MAX_STORED = 40
"""number of objects of earlier inputs that further inputs update"""


def review(document: Json, old: Json | None = None) -> Json:
    """The AdmissionReview of an API server, which has checked the object's metadata."""
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    kind = by_gvk(str(document.get("apiVersion")), str(document.get("kind")))
    namespace = "" if kind is not None and not kind.namespaced else metadata.get("namespace") or "shop"
    group, _, version = str(document.get("apiVersion")).rpartition("/")
    request = {
        "uid": "f",
        "operation": "CREATE" if old is None else "UPDATE",
        "kind": {"group": group, "version": version, "kind": str(document.get("kind"))},
        "namespace": str(namespace),
        "name": str(metadata.get("name", "")),
        "object": document,
        "oldObject": old,
        "userInfo": {"username": "mallory"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _is_object(given: Any) -> bool:
    """Whether an API server would send the document: it checks the metadata of each object before admission."""
    if not isinstance(given, dict):
        return False
    if not all(isinstance(text := given.get(key), str) and text for key in ("apiVersion", "kind")):
        return False
    metadata = given.get("metadata")
    return isinstance(metadata, dict) and _is_metadata(metadata)


def _is_metadata(metadata: Json) -> bool:
    texts = all(isinstance(metadata.get(key, ""), str) for key in ("name", "namespace", "generateName", "uid"))
    maps = [metadata.get(key) for key in ("labels", "annotations")]
    return texts and all(
        value is None or (isinstance(value, dict) and all(isinstance(text, str) for text in value.values()))
        for value in maps
    )


class Admission:
    """Objects through the webhook: mutated, mutated again, and validated."""

    def __init__(self, name: str, share: int, runner: Runner, workers: Workers | None) -> None:
        self.name, self.share = name, share
        self._runner, self._workers = runner, workers
        self._webhook = create_webhook(LocalDefaulter(workers.app if workers is not None else None))
        self._stored: deque[tuple[Json, Json]] = deque(maxlen=MAX_STORED)

    def generate(self, random: Random) -> Json:
        make = documents.vm if self._workers is not None or random.random() < 0.4 else documents.ours
        document = make(random)
        given: Json = {"document": document, "old": None}
        if self._stored and random.random() < 0.25:
            # An edit of a stored object, or another manifest for it.
            manifest, given["old"] = random.choice(self._stored)
            given["document"] = mutate(random, random.choice((manifest, given["old"])), [document])
        elif random.random() < 0.3:
            given["old"] = document
            given["document"] = mutate(random, document, [])
        elif random.random() < 0.5:
            given["document"] = mutate(random, document, [make(random)])
        return given if self.repair(given) else {"document": document, "old": None}

    def repair(self, given: Any) -> Json | None:
        document, old = given.get("document"), given.get("old")
        return {"document": document, "old": old} if _is_object(document) and (old is None or _is_object(old)) else None

    def run(self, given: Json) -> None:
        self._runner.run(self._run(given["document"], given["old"]))
        if self._workers is not None:
            self._workers.check()

    async def _review(self, path: str, document: Json, old: Json | None) -> Json:
        status, content = await post(self._webhook, path, encode(review(document, old)))
        check_status(status, content)
        if status != 200:
            raise Finding("invalid output", f"{path} answered {status}: {content[:200]!r}")
        response: Json = json.loads(content)["response"]
        if not response["allowed"]:
            causes = response["status"]["details"]["causes"]
            check_problems(causes)
            if response["status"]["code"] == 422:
                check_has_path(causes)
        return response

    async def _run(self, document: Json, old: Json | None) -> None:
        response = await self._review("/mutate", document, old)
        kind = by_gvk(document["apiVersion"], document["kind"])
        if not response["allowed"]:
            if kind is not None and (await self._review("/validate", document, old))["allowed"]:
                raise Finding(
                    "not idempotent", f"/mutate denies what /validate allows: {response['status']['message']}"
                )
            return
        patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
        stored = apply(document, patch)
        check_values_kept(document, stored, old)
        again = await self._review("/mutate", stored, old)
        if not again["allowed"] or "patch" in again:
            what = base64.b64decode(again["patch"]) if "patch" in again else again["status"]["message"]
            raise Finding("not idempotent", f"the second time: {what!r:.300}")
        verdict = await self._review("/validate", stored, old)
        if not verdict["allowed"]:
            raise Finding("not idempotent", f"/validate denies what /mutate made: {verdict['status']['message']:.300}")
        if old is None:
            self._stored.append((document, stored))
        if kind is not None and old is None:
            for violation in schema_violations(_schema(kind.crd_name), stored):
                raise Finding("invalid output", violation)


@cache
def _schema(name: str) -> Json:
    from poolhouse.api.kinds import KINDS

    kind = next(kind for kind in KINDS if kind.crd_name == name)
    schema = object_schema(kind)
    return {**schema, "x-kubernetes-preserve-unknown-fields": True} if not kind.spec_required else schema


class Specs:
    """Specs through the defaulter's own code, which asks no libvirt."""

    name, share = "specs", 120

    def __init__(self) -> None:
        self._config = HandlerConfig({"video": "fill", "record": True}, SEED)
        self._host: Any = NoLibvirt()

    def generate(self, random: Random) -> Json:
        document = documents.vm(random)
        given: Json = {"apiVersion": API_VERSION, "kind": "DefaultingRequest", "object": document}
        if random.random() < 0.3:
            given["oldObject"] = documents.vm(random) if random.random() < 0.3 else document
        if random.random() < 0.1:
            given["vmi"] = {"metadata": {}, "spec": document["spec"].get("template", {}).get("spec", {})}
        if random.random() < 0.1:
            given["kubevirt"] = {"spec": {"configuration": {"machineType": "q35"}}, "status": {}}
            given["preference"] = {"devices": {"preferredDiskBus": "sata", "preferredInterfaceModel": "e1000e"}}
            given["instancetype"] = {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}
        if random.random() < 0.6:
            given = mutate(random, given, [documents.vm(random)])
        return given

    def repair(self, given: Any) -> Json | None:
        return given if isinstance(given, dict) else None

    def run(self, given: Json) -> None:
        check_answer(*handle(encode(given), self._config, self._host))


def check_answer(status: int, content: bytes) -> None:
    """The form of an answer of the defaulter."""
    check_status(status, content)
    if status == 200:
        json.loads(content)
        return
    problems = json.loads(content)["problems"]
    check_problems(problems)
    about_whole = ("no libvirt is asked", LONE_SURROGATE)
    if status == 422 and not any(problem["message"].endswith(about_whole) for problem in problems):
        check_has_path(problems)


class Bodies:
    """Bodies of any bytes, at every path that reads one."""

    name, share = "bodies", 860

    def __init__(self, runner: Runner, workers: Workers | None) -> None:
        self._runner, self._workers = runner, workers
        self._webhook = create_webhook(LocalDefaulter(None))

    def generate(self, random: Random) -> Json:
        document = random.choice(documents.manifests())
        path = random.choice((*PATHS, DEFAULTS_PATH))
        body = encode(review(document, random.choice((None, document))) if path in PATHS[:2] else document)
        if path == "/apis/policies/explain":
            policies = documents.of_kinds("MigrationPolicy")
            body = encode({"namespace": "a", "name": "b", "withLabels": {"c": "d"}, "withPolicies": policies})
        if random.random() < 0.4:
            body = encode(mutate(random, json.loads(body), [document]))
        return {"path": path, "body": mutate_bytes(random, body).decode("latin-1")}

    def repair(self, given: Any) -> Json | None:
        path, body = str(given.get("path")), given.get("body")
        valid = path in (*PATHS, DEFAULTS_PATH) and isinstance(body, str) and all(ord(c) < 256 for c in body)
        return {"path": path, "body": body} if valid else None

    def run(self, given: Json) -> None:
        self._runner.run(self._run(given["path"], given["body"].encode("latin-1")))

    async def _run(self, path: str, body: bytes) -> None:
        if path == DEFAULTS_PATH:
            no_libvirt: Any = NoLibvirt()
            check_answer(*handle(body, HandlerConfig({}, SEED), no_libvirt))
            return
        status, content = await post(self._webhook, path, body)
        check_status(status, content)
        answer = json.loads(content)
        if status != 200:
            check_problems(answer["problems"])
        elif path in PATHS[:2] and not answer["response"]["allowed"]:
            check_problems(answer["response"]["status"]["details"]["causes"])


class Records:
    """Hardware records: forged, damaged and excessive ones, in the hook and in the check of seals."""

    name, share = "records", 760

    def __init__(self) -> None:
        folder = documents.ROOT / "tests/defaulter/golden"
        self._domains = {path.stem: path.read_text() for path in sorted(folder.glob("*.xml"))}
        self._sealed = {
            name: build_record(xml.read(text), "9.0.0", "7.2.0", SEED) for name, text in self._domains.items()
        }

    def generate(self, random: Random) -> Json:
        name = random.choice(sorted(self._domains))
        content = json.loads(self._sealed[name])
        if random.random() < 0.9:
            content = mutate(random, content, [json.loads(self._sealed[random.choice(sorted(self._sealed))])])
        return {"domain": name, "record": content, "digest": random.random() < 0.8}

    def repair(self, given: Any) -> Json | None:
        valid = str(given.get("domain")) in self._domains and "record" in given
        return {**given, "domain": str(given["domain"]), "digest": given.get("digest") is True} if valid else None

    def run(self, given: Json) -> None:
        record, domain = given["record"], self._domains[given["domain"]]
        if given["digest"] and isinstance(record, dict):
            record = {key: value for key, value in record.items() if key != "digest"}
            text = json.dumps(record, separators=(",", ":"), sort_keys=True)
            record["digest"] = hashlib.sha256(text.encode()).hexdigest()[:16]
        text = json.dumps(record, separators=(",", ":"), sort_keys=True)
        try:
            if is_sealed(text, SEED) and text not in self._sealed.values():
                raise Finding("value changed", "a record that this cluster did not write passes as its own")
            restored = restore_hardware(text, domain)
        except InvalidHardwareRecord:
            return
        ET.fromstring(restored)
        if restore_hardware(text, restored) != restored:
            raise Finding("not idempotent", "the record restores other hardware the second time")


class Domains:
    """The VM with a libvirt domain as spec: no value that names something of the host reaches libvirt."""

    name, share = "domains", 60

    def __init__(self, runner: Runner, workers: Workers | None) -> None:
        self._runner, self._workers = runner, workers

    def generate(self, random: Random) -> Json:
        spec = _element(random, libvirt_schema.DOMAIN, 0)
        if random.random() < 0.7:
            spec = {
                "memory": {"unit": "MiB", "value": 64},
                "vcpu": {"value": 1},
                "os": {"type": {"os": "hvm", "arch": "x86_64", "machine": "q35"}},
                **(spec if isinstance(spec, dict) else {}),
            }
        for name in random.sample(("commandline", "qemu:commandline", "loader", "nvram", "seclabel"), 2):
            spec[name] = {"value": "/bin/sh", "arg": ["-chardev"]}
        return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VM", "metadata": {"name": "a"}, "spec": {"domain": spec}}

    def repair(self, given: Any) -> Json | None:
        return given if isinstance(given, dict) and vm_paths.is_libvirt_vm(given) else None

    def run(self, given: Json) -> None:
        if self._workers is None:
            no_libvirt: Any = NoLibvirt()
            check_answer(*handle(encode(given), HandlerConfig({}, SEED), no_libvirt))
        else:
            check_answer(*self._runner.run(post(self._workers.app, DEFAULTS_PATH, encode(given))))
            self._workers.check()
        domain = at(given, *libvirt_vm.SPEC)
        if not isinstance(domain, dict) or any(libvirt_vm.validate(domain)):
            return
        for element in libvirt_vm.build(domain).iter():
            for text in (element.text, *element.attrib.values()):
                if text and "/" in text and text not in PLACEHOLDERS:
                    raise Finding("exec", f"{element.tag} has {text!r}")


PLACEHOLDERS = ("/source", "/kernel", "/initrd", "/dev/urandom", "/loader", "/tpm")
DOMAIN_WORDS = (
    "virtio",
    "sata",
    "pci",
    "file",
    "block",
    "q35",
    "unix",
    "bridge",
    "disk",
    "lun",
    "hvm",
    "mount",
    "subsystem",
    "virtiofs",
    "x86_64",
    "vda",
)
HOST_FILES = ("/bin/sh", "/etc/passwd", "/dev/kvm", "../../x", "file:///x", "/proc/self/exe")


def _element(random: Random, schema: libvirt_schema.ElementSchema, depth: int) -> Any:
    found: Json = {}
    rows = {**schema.attributes, **({schema.text: schema.content} if schema.text else {})}
    for name, row in rows.items():
        if random.random() < 0.4:
            fitting = [word for word in (*DOMAIN_WORDS, "0", "1", "2", "64") if row.accepts(word)]
            found[name] = random.choice(fitting if random.random() < 0.95 else (*HOST_FILES, 1, 2, scalar(random)))
    for name, inner in schema.below.items():
        if inner.withheld and random.random() < 0.4:
            found[name] = random.choice(HOST_FILES)
        elif random.random() < (0.6 if depth < 2 else 0.25):
            some = [_element(random, inner, depth + 1) for _ in range(random.choice((0, 1, 1, 2)))]
            found[name] = some if inner.many else (some or [{}])[0]
    return found


class Commands:
    """The command line, with files, kubeconfigs and options of any content. No cluster answers."""

    name, share = "commands", 6

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file, self._kubeconfig = folder / "input.yaml", folder / "kubeconfig"

    def generate(self, random: Random) -> Json:
        some = random.sample(documents.manifests(), random.choice((1, 1, 2)))
        if random.random() < 0.6:
            some = [mutate(random, each, some) for each in some]
        text = yaml.safe_dump_all(some, sort_keys=False)
        if random.random() < 0.4:
            text = mutate_bytes(random, text.encode()).decode("latin-1")
        if random.random() < 0.2:
            text = random.choice(YAML_TRAPS)
        arguments = [*random.choice(COMMANDS)]
        if random.random() < 0.3:
            where = random.randrange(len(arguments))
            arguments[where] = random.choice((*WORDS, "-h", "--bogus", "-o")).replace("\x00", "")
        if random.random() < 0.4:
            arguments += ["-o", random.choice(("json", "yaml", "text", "name", "x"))]
        return {"arguments": arguments, "file": text, "kubeconfig": random.choice(("", "", "", text[:2000]))}

    def repair(self, given: Any) -> Json | None:
        arguments = given.get("arguments") if isinstance(given, dict) else None
        texts = [given.get("file"), given.get("kubeconfig"), *(arguments or ())] if isinstance(arguments, list) else [0]
        whole = all(isinstance(each, str) and "\x00" not in each for each in texts)
        return given if whole and arguments and arguments[0] in ALLOWED else None

    def run(self, given: Json) -> None:
        if given["arguments"][0] not in ALLOWED:
            given = {**given, "arguments": ["plan", *given["arguments"][1:]]}
        self._file.write_bytes(given["file"].encode("utf-8", "surrogateescape"))
        self._kubeconfig.write_text(given["kubeconfig"] or NOWHERE)
        arguments = [
            word.replace("FILE", str(self._file)).replace("KUBECONFIG", str(self._kubeconfig))
            for word in given["arguments"]
        ]
        output, errors = io.StringIO(), io.StringIO()
        before = os.getcwd()
        os.chdir(self._folder)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                poolhouse(arguments)
        except SystemExit as ended:
            code = ended.code
        finally:
            os.chdir(before)
        if code not in (0, 1, 2, 3):
            raise Finding("crash", f"exit code {code}")
        if "Traceback" in errors.getvalue():
            raise Finding("crash", errors.getvalue()[-300:])
        if code and not errors.getvalue().strip():
            raise Finding("no path", f"exit code {code} without a message")


NOWHERE = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {token: a}}]
current-context: a
"""
_CLUSTER = ("--kubeconfig", "KUBECONFIG")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("default", "-f", "FILE", "--server", "http://127.0.0.1:9"),
    ("default", "-f", "FILE", "--kubevirt", "FILE", "--server", "http://127.0.0.1:9"),
    ("plan", "-f", "FILE", *_CLUSTER),
    ("plan", "-f", "FILE", "-n", "shop", *_CLUSTER),
    ("policy", "explain", "vm/a", "--with-policy", "FILE", *_CLUSTER),
    ("policy", "impact", "-f", "FILE", *_CLUSTER),
    ("warmpool", "import", "FILE"),
    ("warmpool", "import", "FILE", "--to", "vm", "-n", "shop"),
    ("hardware", "diff", "-f", "FILE", "--server", "http://127.0.0.1:9", "--against", "http://127.0.0.1:9"),
    ("hook", "--plugin", "--image", "a/b:c"),
    ("why", "vm/a", *_CLUSTER),
    ("tree", "vmpool/a", *_CLUSTER),
    ("overview", *_CLUSTER),
    ("doctor", *_CLUSTER),
    ("disks", "a", *_CLUSTER),
    ("claim", "a", "--ttl", "10m", "--no-wait", *_CLUSTER),
    ("release", "a", "--no-wait", *_CLUSTER),
    ("rollout", "undo", "a", "--to-revision", "3", *_CLUSTER),
    ("detach", "a", *_CLUSTER),
    ("crds",),
    ("completion", "bash"),
)
ALLOWED = {command[0] for command in COMMANDS}
YAML_TRAPS = (
    "a: &a [*a]\nkind: VirtualMachine",
    "a: &a {kind: VirtualMachinePool, b: *a}",
    "&a {apiVersion: kubevirt.io/v1, kind: VirtualMachinePool, metadata: {name: a}, spec: *a}",
    "a: &a [x,x,x,x,x,x,x,x]\n"
    + "".join(f"{n}: &{n} [{', '.join([f'*{m}'] * 8)}]\n" for m, n in zip("abcdefgh", "bcdefghi", strict=True)),
    "2001-99-99",
    "kind: 2001-01-01\nspec: {a: 2001-01-01T00:00:00Z}",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: 2001-01-01}\nspec: {a: !!binary aGk=}",
    "1: 2\n? [a]\n: b",
    "a: " + "9" * 5000,
    "[" * 3000,
    "{a: " * 1500,
    "!!python/object:os.system x",
    "kind: [List]\nitems: 3",
    "kind: List\nitems: [1, null, {kind: List, items: [2]}]",
    "kind: List\nitems: []",
    "\ufeffkind: x",
    "a\x00b",
    "- .inf\n- .nan",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a}\nspec: {template: {a: .nan, b: .inf}}",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachinePool\nmetadata: a\nspec: {1: 2, true: 3}",
    "",
    "---\n---\n",
    '"\\ud800"',
    "<<: *x",
    "? {a: b}\n: c",
    "a: 0x" + "f" * 400,
    "a: 1:99:99:99:99",
    "{AMI: ami-1, Pools: [{}]}",
    "Pools: [1, {NodePools: 3}]",
)


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
        plans: Any
        plans, stores = (pool_plans, self._pools) if kind is POOL else (set_plans, self._sets)
        found = plans.hypothetical_snapshot(stores, given, self.BURST)
        if isinstance(found, InvalidSpec):
            check_problems([{"path": "spec", "message": found.problem}])
        else:
            json.dumps(plans.answer(found, self.NOW))


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
        "pool/revision": ("ControllerRevision", pools.REVISION_SOURCE),
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
        return {"source": name, "document": changed if _is_object(changed) and _is_stored(changed) else document}

    def repair(self, given: Any) -> Json | None:
        document = given.get("document")
        known = str(given.get("source")) in self.SOURCES
        return given if known and _is_object(document) and _is_stored(document) else None

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
        return given if _is_object(given["document"]) and given["path"] and given.get("how") in range(4) else None

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
