"""The objects of a kind in the async client."""

from __future__ import annotations

import asyncio
import builtins
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Generic, Literal, TypeVar
from urllib.parse import quote

from .errors import Conflict, Expired, NotFound, Throttled, Unavailable, Unreachable, error_from_status
from .failures import DeadlineExceeded, Stalled, describe
from .objects import Event, Json, KubernetesObject
from .transport import pause_seconds

if TYPE_CHECKING:
    from ._async import AsyncClient

T = TypeVar("T", bound=KubernetesObject)

WATCH_SECONDS = 300.0
PAGE = 500
CONTENT_TYPES = {
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class AsyncObjects(Generic[T]):
    """The objects of one kind."""

    def __init__(self, client: AsyncClient, model: type[T]) -> None:
        self._client, self._model = client, model

    async def get(self, name: str, *, namespace: str | None = None) -> T:
        return self._parsed(await self._client.request("GET", self._path(namespace, name)))

    async def list(self, *, namespace: str | None = None, label_selector: str = "") -> builtins.list[T]:
        end = monotonic() + self._client.timeout_seconds
        return (await self._list(namespace, label_selector, "", end))[0]

    async def create(self, new: T | Json, *, dry_run: bool = False, repeatable: bool = False) -> T:
        """Raises Invalid with all problems of the spec, and AlreadyExists. With `repeatable`, the request is sent again
        if its outcome is unknown; AlreadyExists can then mean that the first one was successful."""
        document = self._client._document(new)
        path = self._path(document["metadata"].get("namespace"))
        query = {"fieldManager": self._client.field_manager, "fieldValidation": "Strict"} | _dry(dry_run)
        answer = await self._client.request("POST", path, body=document, query=query, repeatable=repeatable)
        return self._parsed(answer)

    async def apply(self, wanted: T | Json, *, force: bool = False, dry_run: bool = False) -> T:
        """Creates or changes the object with server-side apply. Raises Conflict if another client has set a field to
        another value, unless `force`."""
        document = self._client._document(wanted)
        metadata = document["metadata"]
        query = {"fieldManager": self._client.field_manager, "fieldValidation": "Strict"} | _dry(dry_run)
        if force:
            query["force"] = "true"
        path = self._path(metadata.get("namespace"), metadata["name"])
        document.pop("status", None)
        metadata.pop("managedFields", None)  # of an object that was read; the API server refuses it
        answer = await self._client.request(
            "PATCH", path, body=document, query=query, content_type=CONTENT_TYPES["apply"]
        )
        return self._parsed(answer)

    async def patch(self, name: str, change: Json, *, namespace: str | None = None) -> T:
        """Merges `change` into the object; None deletes a field."""
        path, query = self._path(namespace, name), {"fieldManager": self._client.field_manager}
        answer = await self._client.request(
            "PATCH", path, body=change, query=query, content_type=CONTENT_TYPES["merge"]
        )
        return self._parsed(answer)

    async def edit(self, name: str, change: Callable[[T], object], *, namespace: str | None = None) -> T:
        """Reads the object, lets `change` modify it, and writes it. Begins again if another client was faster."""
        end, attempt = monotonic() + self._client.timeout_seconds, 0
        path = self._path(namespace, name)
        while True:
            found = self._parsed(await self._client.request("GET", path, timeout_seconds=end - monotonic()))
            change(found)
            query = {"fieldManager": self._client.field_manager}
            try:
                # Not repeatable: after a lost answer, the Conflict of a repetition would apply the change again.
                answer = await self._client.request(
                    *("PUT", path),
                    body=found.to_json(),
                    query=query,
                    repeatable=False,
                    timeout_seconds=end - monotonic(),
                )
                return self._parsed(answer)
            except Conflict:
                pause = min(1.0, 0.05 * 2**attempt) * random.uniform(0.5, 1.0)
                if monotonic() + pause >= end:
                    raise
            attempt += 1
            await asyncio.sleep(pause)

    async def delete(self, name: str, *, namespace: str | None = None, uid: str = "", missing_ok: bool = False) -> None:
        """Deletes the object; with `uid`, only if it is still the same. Does not wait for its end."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._client.request("DELETE", self._path(namespace, name), body=body)
        except (NotFound, Conflict) as error:
            if not missing_ok or (isinstance(error, Conflict) and not uid):
                raise

    async def watch(
        self,
        name: str = "",
        *,
        namespace: str | None = None,
        label_selector: str = "",
        timeout_seconds: float = float("inf"),
    ) -> AsyncGenerator[Event[T]]:
        """The objects as they are, and each change of them, until the time is over. Connects again when the server
        ends the watch. Changes may be combined, and an object may come twice: only its last state counts."""
        end, known, attempt = monotonic() + timeout_seconds, dict[str, T](), 0
        while True:
            try:
                found, version = await self._list(namespace, label_selector, name, end)
                present = {each.metadata.uid for each in found}
                for gone in [uid for uid in known if uid not in present]:
                    yield Event("DELETED", known.pop(gone))
                for each in found:
                    event: Literal["ADDED", "MODIFIED"] = "MODIFIED" if each.metadata.uid in known else "ADDED"
                    known[each.metadata.uid] = each
                    yield Event(event, each)
                while (left := end - monotonic()) > 0:
                    query = _selectors(label_selector, name) | {
                        "watch": "true",
                        "allowWatchBookmarks": "true",
                        "resourceVersion": version,
                        "timeoutSeconds": str(max(1, round(min(left, WATCH_SECONDS)))),
                    }
                    began = monotonic()
                    lines = self._client._lines(self._path(namespace), query, min(left, WATCH_SECONDS + 10))
                    async with aclosing(lines) as events:
                        async for line in events:
                            kind, document = line["type"], line["object"]
                            if kind == "ERROR":
                                raise error_from_status(
                                    document, now=datetime.now(UTC), call=f"watch {self._path(namespace)}"
                                )
                            version, attempt = document["metadata"]["resourceVersion"], 0
                            if kind == "BOOKMARK":
                                continue
                            each = self._parsed(document)
                            if kind == "DELETED":
                                known.pop(each.metadata.uid, None)
                            else:
                                known[each.metadata.uid] = each
                            yield Event(kind, each)
                    # A server that ends each watch at once must not be asked without a pause.
                    await asyncio.sleep(min(max(0.0, 1.0 - (monotonic() - began)), max(0.0, end - monotonic())))
                return
            except (Expired, Throttled, Unavailable, Unreachable) as error:
                pause = pause_seconds(error, attempt)
                if monotonic() + pause >= end:
                    return
                attempt += 1
                await asyncio.sleep(pause)

    async def wait(
        self, name: str, until: Callable[[T], bool], *, timeout_seconds: float = 300.0, namespace: str | None = None
    ) -> T:
        """The object, once `until` is true for it. Raises NotFound if it does not exist or is deleted, and
        DeadlineExceeded."""
        begun, path = monotonic(), self._path(namespace, name)
        least = max(1.0, timeout_seconds)  # 0 asks once
        last = self._parsed(await self._client.request("GET", path, timeout_seconds=least))
        if until(last):
            return last
        left = timeout_seconds - (monotonic() - begun)
        watch = self.watch(name, namespace=namespace, timeout_seconds=left)
        async with aclosing(watch) as events:
            async for event in events:
                last = event.object
                if event.type == "DELETED":
                    raise NotFound(f"{last.TYPE.kind} {name} was deleted", status=404, call="watch")
                if until(last):
                    return last
        raise DeadlineExceeded(f"after {timeout_seconds:g} s: {describe(last)}", last)

    async def wait_ready(self, name: str, *, timeout_seconds: float = 300.0, namespace: str | None = None) -> T:
        """The object, once it is as its spec requires: for a pool, also the end of its rollout. Raises Stalled at once
        if it does not become ready without a change, or has ended."""
        found = await self.wait(
            name,
            lambda each: each.ready or each.stalled or each.ended,
            timeout_seconds=timeout_seconds,
            namespace=namespace,
        )
        if not found.ready:
            raise Stalled(describe(found), found)
        return found

    async def _list(
        self, namespace: str | None, label_selector: str, name: str, end: float
    ) -> tuple[builtins.list[T], str]:
        query, found = _selectors(label_selector, name) | {"limit": str(PAGE)}, list[T]()
        while True:
            left = max(0.1, end - monotonic())
            page = await self._client.request("GET", self._path(namespace), query=query, timeout_seconds=left)
            found += [self._parsed(each) for each in page.get("items") or ()]
            if not (more := page["metadata"].get("continue")):
                return found, page["metadata"]["resourceVersion"]
            query["continue"] = more

    def _path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        found = self._model.TYPE
        parts = ["apis", found.group, found.version]
        if found.namespaced:
            parts += ["namespaces", namespace or self._client.namespace]
        parts += [found.plural, *([name] if name else ()), *([subresource] if subresource else ())]
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def _parsed(self, document: Json) -> T:
        return self._model.model_validate(document)


class AsyncPools(AsyncObjects[T]):
    """The objects of a kind that can be scaled."""

    async def scale(self, name: str, replicas: int, *, namespace: str | None = None) -> None:
        """Changes the number of VMs through the scale subresource, which needs only the right to scale."""
        path = self._path(namespace, name, "scale")
        await self._client.request(
            "PATCH", path, body={"spec": {"replicas": replicas}}, content_type=CONTENT_TYPES["merge"]
        )


def _selectors(labels: str, name: str) -> dict[str, str]:
    found = {"labelSelector": labels, "fieldSelector": f"metadata.name={name}" if name else ""}
    return {key: value for key, value in found.items() if value}


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}
