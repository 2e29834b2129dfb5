"""A defaulter without libvirt: it fills undefaulted fields by the rules of the contract, and fails on request."""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from defaulter.contract import (
    DEFAULTS_PATH,
    DefaulterUnavailable,
    DefaultingRequest,
    DefaultingResponse,
    ForbiddenChange,
    InvalidDocument,
    Problem,
    Problems,
    forbidden_changes,
    undefaulted_fields,
)
from defaulter.identity import mac_addresses, with_firmware_ids
from defaulter.json_paths import DocumentEditor
from defaulter.vm_paths import locate

Json = dict[str, Any]


class FakeDefaulter:
    """The client of the defaulter; `app` is its server."""

    def __init__(self, undecided: str = "") -> None:
        self.undecided = undecided
        self.asked: list[tuple[Json, Json | None, str | None, str | None]] = []
        self.may_have_run: bool | None = None
        """of the last request"""
        self.kubevirt: Json | None = None
        """the KubeVirt object of the last request over HTTP"""
        self.vmis: list[Json | None] = []
        self.recalls: Callable[[Json], Json | None] = lambda document: None
        """known answers"""
        self.away: str | None = None
        self.fails: type[DefaulterUnavailable] = DefaulterUnavailable
        """the error while `away` is set"""
        self.refuses: Callable[[Json], list[Problem]] = lambda document: []
        self.spoils: Callable[[Json], Json] = lambda document: document
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def recall(self, document: Json, **_: Any) -> DefaultingResponse | None:
        found = self.recalls(document)
        return None if found is None else DefaultingResponse(object=found)

    async def complete(
        self,
        document: Json,
        *,
        old: Json | None = None,
        vmi: Json | None = None,
        namespace: str | None = None,
        seed: str | None = None,
        may_have_run: bool = False,
    ) -> DefaultingResponse:
        self.may_have_run = may_have_run
        self.vmis.append(vmi)
        self.asked.append((document, old, namespace, seed))
        await self.goes_on.wait()
        if self.away:
            raise self.fails(self.away)
        if problems := self.refuses(document):
            raise InvalidDocument(tuple(problems))
        answer = self.spoils(filled(document, seed or ""))
        if beyond := forbidden_changes(document, answer):
            raise ForbiddenChange(beyond)
        warnings = (self.undecided,) if self.undecided else ()
        return DefaultingResponse(object=answer, warnings=warnings, undecided=self.undecided)


def app(stand_in: FakeDefaulter) -> Starlette:
    """The service over HTTP. It hangs, is away and refuses as the object says."""

    async def defaults(http: Request) -> Response:
        asked = DefaultingRequest.model_validate(await http.json())
        stand_in.kubevirt = asked.kubevirt
        try:
            answer = await stand_in.complete(
                asked.object, old=asked.old_object, namespace=asked.namespace, seed=asked.seed
            )
        except InvalidDocument as refusal:
            return JSONResponse(Problems(problems=refusal.problems).model_dump(), 422)
        except DefaulterUnavailable as away:
            return JSONResponse(Problems(problems=(Problem(path="", message=away.reason),)).model_dump(), 503)
        return JSONResponse(answer.model_dump(by_alias=True))

    return Starlette(routes=[Route(DEFAULTS_PATH, defaults, methods=["POST"])])


def with_identity(vm: Json, seed: str) -> Json:
    """The VM with the MAC address that the defaulter derives from its name, and its firmware IDs."""
    location = locate(vm)
    assert location is not None
    editor = DocumentEditor(with_firmware_ids(vm, seed))
    for index, value in mac_addresses(seed, location, vm, [0]):
        editor.fill((*location.spec, "domain", "devices", "interfaces", index, "macAddress"), value)
    return editor.document


def filled(document: Json, seed: str) -> Json:
    answer = copy.deepcopy(document)
    for _ in range(2):  # an address can be given only once there is a bus
        for path in undefaulted_fields(answer):
            _fill(answer, path, seed)
    return answer


def _fill(document: Json, path: str, seed: str) -> None:
    place: Any = document
    *parents, last = [
        int(part) if part.isdigit() else part for part in path.replace("]", "").replace("[", ".").split(".")
    ]
    for part in parents:
        place = place[part] if isinstance(part, int) else place.setdefault(part, {})
    # As the real one's: of one name in two namespaces each has a MAC address of its own.
    identity = "/".join(document["metadata"].get(each) or "" for each in ("namespace", "name"))
    digest = hashlib.sha256(f"{seed}/{identity}/{path}".encode()).hexdigest()
    values: dict[Any, Any] = {
        "type": "pc-q35-7.2",
        "bus": "virtio",
        "model": "virtio",
        "macAddress": "52:54:00:" + ":".join(digest[i : i + 2] for i in (0, 2, 4)),
        "pciAddress": f"0000:{int(digest[:2], 16):02x}:00.0",
        "uuid": digest[:32],
        "serial": digest[:32],
    }
    if isinstance(last, int):  # a volume without a disk
        volumes = document["spec"]["template"]["spec"]["volumes"]
        place.append({"name": volumes[last]["name"], "disk": {"bus": "sata"}})
        return
    place[last] = values.get(last, 1)
