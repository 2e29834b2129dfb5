"""The targets of admission: reviews, specs of our kinds, and bodies of requests."""

import base64
import json
from asyncio import Runner
from collections import deque
from functools import cache
from random import Random
from typing import Any

from defaulter.contract import API_VERSION, DEFAULTS_PATH
from defaulter.handler import LONE_SURROGATE, HandlerConfig, handle
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import by_gvk
from poolhouse.manifests.crd import object_schema
from tests.fuzz import documents
from tests.fuzz.mutations import encode, mutate, mutate_bytes
from tests.fuzz.oracles import (
    Finding,
    check_has_path,
    check_problems,
    check_status,
    check_values_kept,
    schema_violations,
)
from tests.fuzz.services import SEED, LocalDefaulter, NoLibvirt, Workers, create_webhook, post
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


def is_object(given: Any) -> bool:
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
        return {"document": document, "old": old} if is_object(document) and (old is None or is_object(old)) else None

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
