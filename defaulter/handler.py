"""Handles one request to set a VM's defaults: converts its body to an HTTP status and a response body."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from defaulter import xml
from defaulter.defaulting import VMRequest, set_defaults
from defaulter.errors import InvalidDocument, LibvirtFailed, LibvirtUnavailable, MalformedBody
from defaulter.instancetypes import MatchedSpecs
from defaulter.kubevirt_defaults import ClusterConfig
from defaulter.libvirt_cache import LibvirtCache
from defaulter.limits import excessive_sizes
from defaulter.nodes import CPUs, MachineTypes
from defaulter.structure import readable
from defaulter.worker_protocol import Response
from poolhouse.api.apimachinery.problem import Problem, format_path
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.service import strict_json

if TYPE_CHECKING:
    from defaulter.driver import Libvirt


ENVELOPE, API_VERSION = "DefaultingRequest", "poolhouse.dev/v1alpha1"
_MATCHED = ("instancetype", "preference")
LONE_SURROGATE = "contains a lone surrogate, which is not a character"


@dataclass(frozen=True)
class HandlerConfig:
    overrides: Mapping[str, Any]
    """fields of `ClusterConfig` that take precedence over the cluster's KubeVirt object"""
    seed: str = ""
    cache: LibvirtCache = field(default_factory=LibvirtCache)


def handle(body: bytes, config: HandlerConfig, host: Libvirt, *, as_domain: bool = False) -> Response:
    """Responds with 200 and the document with defaults or the domain's XML, with 400 or 422 and every problem, with 501
    if this libvirt cannot decide the document, or with 503 if it fails for every document."""
    try:
        message = strict_json.loads(body, allow_lone_surrogates=True)
        request = read_request(message, config.seed)
        _check_contents(request, may_have_surrogates=b"\\ud" in body.lower())
        request = replace(request, old=readable(request.old), vmi=readable(request.vmi))
        cluster = ClusterConfig.of(read_settings(message), config.overrides)
        done = set_defaults(request, cluster, host, None if as_domain else config.cache)
        if as_domain:
            return 200, b"" if done.domain is None else xml.write(done.domain, pretty=True).encode()
        if message.get("kind") != ENVELOPE:
            return 200, _encode(done.document)
        response = {"apiVersion": API_VERSION, "kind": "DefaultingResponse", "object": done.document}
        return 200, _encode({**response, "warnings": done.warnings, "undecided": done.undecided})
    except strict_json.InvalidJSON as error:
        return 400, problems_body([Problem("", str(error))])
    except MalformedBody as error:
        return 400, problems_body(error.problems)
    except InvalidDocument as error:
        return 422, problems_body(error.problems)
    except RecursionError:
        return 400, problems_body([Problem("", "is nested too deeply")])
    except LibvirtUnavailable as error:
        return 503 if isinstance(error, LibvirtFailed) else 501, problems_body([Problem("", str(error))])


def _check_contents(request: VMRequest, may_have_surrogates: bool) -> None:
    """Raises `InvalidDocument` if a string is no text, or if a document exceeds a limit."""
    if may_have_surrogates:
        beside = {
            "oldObject": request.old,
            "vmi": request.vmi,
            "namespace": request.namespace,
            "seed": request.seed,
        }
        paths = [*strict_json.lone_surrogates(request.document), *strict_json.lone_surrogates(beside)]
        if paths:
            raise InvalidDocument(Problem(format_path(path), LONE_SURROGATE) for path in paths)
    given = (each for each in (request.document, request.old, request.vmi) if each is not None)
    if sizes := [problem for each in given for problem in excessive_sizes(each)]:
        raise InvalidDocument(sizes)


def read_request(message: Json, default_seed: str) -> VMRequest:
    """The request in a body, which is a VM's document or a `DefaultingRequest`."""
    if message.get("kind") != ENVELOPE:
        return VMRequest(message, seed=default_seed, record_key=default_seed)
    document, old = message.get("object"), message.get("oldObject")
    namespace, seed, types = message.get("namespace"), message.get("seed"), message.get("offered")
    vmi, kubevirt, cpus = message.get("vmi"), message.get("kubevirt"), message.get("cpus")
    may_have_run = message.get("mayHaveRun", False)
    expected = {
        "apiVersion": (message.get("apiVersion", API_VERSION) == API_VERSION, f"must be {API_VERSION}"),
        "object": (isinstance(document, dict), "is required, and must be an object"),
        "oldObject": (isinstance(old, dict | None), "must be an object"),
        "vmi": (isinstance(vmi, dict | None), "must be an object"),
        "namespace": (isinstance(namespace, str | None), "must be a string"),
        "seed": (isinstance(seed, str | None), "must be a string"),
        "kubevirt": (isinstance(kubevirt, dict | None), "must be an object"),
        **{name: (isinstance(message.get(name), dict | None), "must be an object") for name in _MATCHED},
        "unread": (isinstance(message.get("unread", ""), str), "must be a string"),
        "offered": (
            types is None or all(_is_list_of_strings(types, name) for name in ("everywhere", "somewhere")),
            "must be {everywhere: [...], somewhere: [...]}, lists of machine types",
        ),
        "cpus": (
            cpus is None or all(_is_list_of_strings(cpus, name) for name in ("models", "features")),
            "must be {models: [...], features: [...]}, lists of names",
        ),
        "mayHaveRun": (isinstance(may_have_run, bool), "must be true or false"),
    }
    problems = [Problem(path, message) for path, (valid, message) in expected.items() if not valid]
    if problems or not isinstance(document, dict):
        raise MalformedBody(problems)
    known = None if types is None else MachineTypes(frozenset(types["everywhere"]), frozenset(types["somewhere"]))
    return VMRequest(
        document,
        old,
        namespace,
        seed or default_seed,
        machine_types=known,
        cpus=None if cpus is None else CPUs(frozenset(cpus["models"]), frozenset(cpus["features"])),
        vmi=vmi,
        record_key=default_seed,
        seed_is_unique=bool(seed),
        may_have_run=may_have_run,
        matched=MatchedSpecs(*(message.get(name) for name in _MATCHED)),
        unread=message.get("unread", ""),
    )


def read_settings(message: Json) -> ClusterSettings | None:
    """The settings of the KubeVirt object in a valid `DefaultingRequest`; None without one."""
    found = message.get("kubevirt") if message.get("kind") == ENVELOPE else None
    return None if found is None else ClusterSettings.of(found)


def _is_list_of_strings(value: Any, name: str) -> bool:
    names = value.get(name) if isinstance(value, dict) else None
    return isinstance(names, list) and all(isinstance(each, str) for each in names)


def problems_body(problems: Iterable[Problem]) -> bytes:
    return _encode({"problems": [asdict(problem) for problem in problems]})


def _encode(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=True).encode()
