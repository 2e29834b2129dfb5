"""What others may know of the defaulter: its requests, its answers, its client, and what it would still fill.

Needs no libvirt, no lxml and no server; aiohttp only once a `Defaulter` is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from defaulter.bounds import overreach
from defaulter.decided import decided
from defaulter.hook import ANNOTATION as HARDWARE
from defaulter.hook import Damaged, enforce
from defaulter.keep import keep
from defaulter.kubevirt import Macs
from defaulter.missing import LOCAL, missing
from defaulter.offer import SELECTOR as NODES_WITH_MACHINES
from defaulter.offer import Node, Offer, Offers, node
from defaulter.paths import Draft, get
from defaulter.places import locate, opted_out

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = [
    "API_VERSION",
    "BODY_LIMIT_BYTES",
    "HARDWARE",
    "NODES_WITH_MACHINES",
    "PATH",
    "Away",
    "Damaged",
    "Defaulter",
    "DefaultingRequest",
    "DefaultingResponse",
    "Macs",
    "Node",
    "Offer",
    "Offers",
    "Overreached",
    "Problem",
    "Problems",
    "Refused",
    "Version",
    "decided",
    "enforce",
    "kept",
    "macs_policy",
    "node",
    "overreach",
    "undefaulted",
]

API_VERSION: Literal["poolhouse.dev/v1alpha1"] = "poolhouse.dev/v1alpha1"
PATH = "/apis/vms/defaults"
BODY_LIMIT_BYTES = 3 * 1024 * 1024

_M = TypeVar("_M", bound=BaseModel)


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Problem(_Message):
    """Something in the document that cannot be; `path` is in the document's own terms, empty for the whole of it."""

    path: str
    message: str


class Problems(_Message):
    """The body of every answer that is not 200."""

    problems: tuple[Problem, ...]


class Offered(_Message):
    """Machine types: what all nodes of an architecture can run, and what one of them at least can."""

    everywhere: tuple[str, ...]
    somewhere: tuple[str, ...]


class DefaultingRequest(_Message):
    """A document with what admission knows about it. A bare document is a request too."""

    api_version: Literal["poolhouse.dev/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: Literal["DefaultingRequest"] = "DefaultingRequest"
    object: dict[str, Any]
    old_object: dict[str, Any] | None = Field(default=None, alias="oldObject")
    """the stored document on UPDATE: what it decided stays decided"""
    namespace: str | None = None
    """where the object will live, when its metadata doesn't say"""
    seed: str | None = None
    """replaces the service's own seed of MAC addresses, firmware UUIDs and serials"""
    offered: Offered | None = None
    """machine types that the nodes can run; absent where nobody knows"""


class DefaultingResponse(_Message):
    api_version: Literal["poolhouse.dev/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: Literal["DefaultingResponse"] = "DefaultingResponse"
    object: dict[str, Any]
    warnings: tuple[str, ...] = ()
    """sentences for the person who sent it, such as a machine alias that was made canonical"""


class Version(_Message):
    """Which libvirt and QEMU decide, and which machines they know."""

    poolhouse: str
    libvirt: str
    qemu: dict[str, str]
    """by architecture"""
    machines: dict[str, tuple[str, ...]]
    """by architecture: canonical machine types"""
    aliases: dict[str, dict[str, str]] = {}
    """by architecture: alias to canonical machine type"""


class Refused(Exception):
    """The document is wrong; asking again with the same one gives the same answer."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{p.path}: {p.message}" if p.path else p.message for p in problems))


class Away(Exception):
    """No answer in time, or the service cannot work now; the document may be right. Fail open or ask again later."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Overreached(Away):
    """The service answered, and changed what is not its to change; nothing of it was taken."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        super().__init__(f"the answer changed {paths[0]}, which is not the defaulter's to change")


def macs_policy(text: str) -> Macs:
    """Of the setting POOLHOUSE_MACS, which the service and its clients share. Raises ValueError."""
    found: Macs | None = next((policy for policy in get_args(Macs) if policy == text), None)
    if found is None:
        raise ValueError(f"POOLHOUSE_MACS: must be {', '.join(get_args(Macs))}, not {text!r}")
    return found


def kept(document: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """The document with what the stored one (`old`) had decided and this one leaves open: as much of an answer to an
    update as can be had without the service."""
    where = locate(document)
    if where is None or opted_out(document) or not isinstance(get(document, where.spec), dict):
        return document
    draft = Draft(document)
    keep(draft, where, old, LOCAL)
    return draft.document


def undefaulted(document: dict[str, Any], *, macs: Macs = "deterministic") -> list[str]:
    """Paths that defaulting would still fill. Empty: the document is complete, or opted out of defaulting."""
    return missing(document, macs=macs)


class Defaulter:
    """A client of the service: `async with Defaulter(url) as defaulter: await defaulter.complete(vm)`.

    Each call ends within `timeout_seconds`, in an answer, in `Refused` or in `Away`. A session given is the caller's
    own and stays open; without one the client opens and closes its own, trusting `ca` where the URL is https. What
    `offer` says of the nodes goes along with each request.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float = 2.0,
        session: ClientSession | None = None,
        *,
        ca: Path | None = None,
        offer: Callable[[], Offer | None] = lambda: None,
    ) -> None:
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._session = session
        self._owned: ClientSession | None = None
        self._ca = ca
        self._offer = offer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        owned, self._owned = self._owned, None
        if owned is not None:
            await owned.close()

    async def complete(
        self,
        document: dict[str, Any],
        *,
        old: dict[str, Any] | None = None,
        namespace: str | None = None,
        seed: str | None = None,
    ) -> DefaultingResponse:
        """The document with every empty guest-visible field filled, and nothing else changed. Raises `Refused` or
        `Away`."""
        offer = self._offer()
        offered = Offered(everywhere=tuple(offer.everywhere), somewhere=tuple(offer.somewhere)) if offer else None
        request = DefaultingRequest(object=document, oldObject=old, namespace=namespace, seed=seed, offered=offered)
        body = request.model_dump(by_alias=True, exclude_none=True)
        answer = _read(DefaultingResponse, await self._call("POST", PATH, body))
        if beyond := overreach(document, answer.object):
            raise Overreached(beyond)
        return answer

    async def version(self) -> Version:
        """What the service runs. Raises `Away`."""
        return _read(Version, await self._call("GET", "/version", None))

    async def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds)
        try:
            async with self._open().request(method, self._url + path, json=body, timeout=timeout) as answer:
                status, content = answer.status, await answer.json(content_type=None)
        except TimeoutError:
            raise Away(f"no answer from {self._url} within {self._timeout_seconds:g} s") from None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise Away(f"no answer from {self._url}: {error}") from error
        if status == 200:
            return content
        problems = _problems(content) or (Problem(path="", message=f"{self._url}{path} answered {status}"),)
        if status in (400, 413, 422):
            raise Refused(problems)
        raise Away("; ".join(problem.message for problem in problems))

    def _open(self) -> ClientSession:
        if self._session is not None:
            return self._session
        if self._owned is None:
            import ssl

            import aiohttp

            trust = ssl.create_default_context(cafile=str(self._ca)) if self._ca else True
            self._owned = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust))
        return self._owned


def _problems(content: Any) -> tuple[Problem, ...]:
    try:
        return Problems.model_validate(content).problems
    except ValidationError:
        return ()


def _read(model: type[_M], content: Any) -> _M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise Away(f"the answer is no {model.__name__}: {error}") from error
