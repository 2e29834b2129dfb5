"""Expands VMs by their instance types and preferences, as virt-controller does.

virt-controller keeps the instance type that a VM names in a ControllerRevision of the VM, and names that in the VM's
status (`syncStatusWithMatcher` in pkg/instancetype/revision/store.go). An instance type that is edited later changes no
VM until the VM names another one.
"""

from copy import deepcopy
from typing import Any

from defaulter.instancetypes import MatchedSpecs, apply_attach_preferences, expand
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json, typed
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.api import Api
from poolhouse.runtime.instancetypes import (
    RESOURCES,
    REVISION_OF,
    InstancetypeReader,
    Unreadable,
    find_resource,
)
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, VMS
from poolhouse.stack.engine.admission.mutation import add_implicit_devices
from poolhouse.stack.engine.writes import create_absent


class Instancetypes:
    def __init__(self, api: Api) -> None:
        self._api, self._reader = api, InstancetypeReader(api, api.monotonic)

    async def expanded(self, document: Json, settings: ClusterSettings) -> Json:
        """The VM with the template from which KubeVirt makes its VMI: with the values of the instance type and the
        preference, and with the devices that the VM does not list. Raises `Unreadable`, and the API server's error."""
        document = await self._with_revisions(document)
        found = await self._reader.read(document, document["metadata"]["namespace"])
        if unread := found.get("unread"):
            raise Unreadable(unread)
        spec, matched = document["spec"], MatchedSpecs(found.get("instancetype"), found.get("preference"))
        started = deepcopy(apply_attach_preferences(spec["template"].get("spec") or {}, matched.preference))
        add_implicit_devices(started, settings)
        template = expand({**spec["template"], "spec": started}, matched)
        return {**document, "spec": {**spec, "template": template}}

    async def _with_revisions(self, document: Json) -> Json:
        """The VM with the names of its ControllerRevisions in its status. Creates the missing ones."""
        changes = {}
        for name in RESOURCES:
            matcher = typed(dict, document, "spec", name)
            ref = typed(dict, document, "status", f"{name}Ref") or {}
            if matcher is not None and (missing := wanted_ref(matcher, ref)) is not None:
                if "controllerRevisionRef" not in missing:
                    missing["controllerRevisionRef"] = {"name": await self._keep(document, name, matcher)}
                changes[f"{name}Ref"] = {**dict.fromkeys(ref), **missing}
        if not changes:
            return document
        metadata = document["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": changes}
        return await self._api.patch(VMS, metadata["namespace"], metadata["name"], patch, subresource="status")

    async def _keep(self, document: Json, name: str, matcher: Json) -> str:
        metadata = document["metadata"]
        found = await self._reader.get(
            find_resource(name, matcher.get("kind") or ""), metadata["namespace"], matcher["name"]
        )
        kept = found["metadata"]
        revision = f"{metadata['name']}-{kept['name']}-v1beta1-{kept['uid']}-{kept.get('generation') or 1}"
        owner = controller_reference(VMS.api_version, VMS.kind, metadata["name"], metadata["uid"])
        body: dict[str, Any] = {
            "apiVersion": CONTROLLER_REVISIONS.api_version,
            "kind": CONTROLLER_REVISIONS.kind,
            "metadata": {
                "name": revision,
                "namespace": metadata["namespace"],
                "labels": {REVISION_OF: kept["name"]},
                "ownerReferences": [owner],
            },
            "data": found,
            "revision": 0,
        }
        await create_absent(self._api, CONTROLLER_REVISIONS, body)
        return revision


def wanted_ref(matcher: Json, ref: Json) -> Json | None:
    """The reference in the VM's status that follows from its spec. Without `controllerRevisionRef`, the revision is
    missing. None if the reference stays."""
    if not matcher.get("name"):
        raise Unreadable("the VM's spec names no instance type or preference")
    found = {key: matcher[key] for key in ("name", "kind") if matcher.get(key)}
    stays = all(ref.get(key) == value for key, value in found.items())
    if given := matcher.get("revisionName"):
        wanted = {**found, "controllerRevisionRef": {"name": given}}
        return None if stays and ref.get("controllerRevisionRef") == wanted["controllerRevisionRef"] else wanted
    return None if stays and ref.get("controllerRevisionRef") else found
