"""A request's bytes in, a status and an answer's bytes out. Everything about JSON and nothing about processes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from apimachinery.problem import Problem
from defaulter import xml
from defaulter.defaulting import DefaultedVM, Hypervisor, VMRequest, set_defaults
from defaulter.document import decode, halves
from defaulter.errors import InvalidDocument, LibvirtUnavailable, MalformedBody
from defaulter.json_paths import Json
from defaulter.kubevirt_defaults import ClusterConfig
from defaulter.libvirt_cache import LibvirtCache
from defaulter.machine_types import MachineTypes

Answer = tuple[int, bytes]


@dataclass(frozen=True)
class HandlerConfig:
    cluster: ClusterConfig
    seed: str = ""
    shapes: LibvirtCache = field(default_factory=LibvirtCache)


def handle(body: bytes, policy: HandlerConfig, host: Hypervisor, *, as_domain: bool = False) -> Answer:
    """200 with the completed document, or its domain as XML; 400 or 422 with every problem; 503 where this libvirt
    cannot decide."""
    try:
        message = decode(body)
        wish = read_request(message, policy.seed)
        beside = {"oldObject": wish.old, "namespace": wish.namespace, "seed": wish.seed}
        if torn := [*halves(body, wish.document), *halves(body, beside)]:
            return 422, problems_body(torn)
        done = set_defaults(wish, policy.cluster, host, None if as_domain else policy.shapes)
        if as_domain:
            return 200, b"" if done.domain is None else xml.write(done.domain, pretty=True).encode()
        return 200, _encode(_reply(message, done))
    except MalformedBody as error:
        return 400, problems_body(error.problems)
    except InvalidDocument as error:
        return 422, problems_body(error.problems)
    except RecursionError:
        return 400, problems_body([Problem("", "is nested too deeply")])
    except LibvirtUnavailable as error:
        return 503, problems_body([Problem("", str(error))])


def read_request(message: Json, seed: str) -> VMRequest:
    """A bare document, or the envelope with what admission knows about it."""
    if message.get("kind") != "DefaultingRequest":
        return VMRequest(message, seed=seed)
    document, old = message.get("object"), message.get("oldObject")
    namespace, own_seed, offered = message.get("namespace"), message.get("seed"), message.get("offered")
    wrong = [
        *([] if isinstance(document, dict) else [Problem("object", "is required, and must be an object")]),
        *([] if isinstance(old, dict | None) else [Problem("oldObject", "must be an object")]),
        *([] if isinstance(namespace, str | None) else [Problem("namespace", "must be a string")]),
        *([] if isinstance(own_seed, str | None) else [Problem("seed", "must be a string")]),
        *([] if offered is None or _is_offer(offered) else [Problem("offered", _OFFER)]),
    ]
    if wrong or not isinstance(document, dict):
        raise MalformedBody(wrong)
    offer = None if offered is None else MachineTypes(*(frozenset(offered[part]) for part in _OFFERED))
    return VMRequest(document, old, namespace, own_seed or seed, offer, unique=bool(own_seed))


_OFFERED = ("everywhere", "somewhere")
_OFFER = "must be {everywhere: [...], somewhere: [...]}, lists of machine types"


def _is_offer(offered: Any) -> bool:
    lists = [offered.get(part) for part in _OFFERED] if isinstance(offered, dict) else [None]
    return all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists)


def _reply(message: Json, done: DefaultedVM) -> Json:
    if message.get("kind") != "DefaultingRequest":
        return done.document
    return {
        "apiVersion": "poolhouse.dev/v1alpha1",
        "kind": "DefaultingResponse",
        "object": done.document,
        "warnings": done.warnings,
    }


def problems_body(found: Iterable[Problem]) -> bytes:
    return _encode({"problems": [asdict(problem) for problem in found]})


def _encode(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=True).encode()
