"""Checks that the author of an object may read what the services read for it.

The services read these objects with their own rights, and show or pass on what they find. An object must not give its
author what the author could not read. `ASKED` is the table of what is asked; docs/reference/rights.md shows it.

The check also writes the record of the authors whom the controllers ask about again.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from poolhouse.api.apimachinery.owner_references import controlling_pod
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed
from poolhouse.api.kinds.application_sources import sources
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.kubevirt import DATA_SOURCE
from poolhouse.api.kinds.meta import REFERENCE_AUTHORS
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.reference_authors import TAKE_OVER, author_of, name_reference, read_record, record
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.api.kubevirt.data_source_references import references
from poolhouse.runtime.access_review import user_may
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import CONFIG_MAPS, SECRETS, Resource
from webhook.api_errors import cause_of
from webhook.pod_claims import POD_STATUS
from webhook.review import AdmissionRequest, AdmissionResponse, annotations_of

TEMPLATE = ("spec", "template")
DISKS = ("spec", "dataVolumeTemplates")


@dataclass(frozen=True)
class Reference:
    path: str
    namespace: str
    name: str


References = dict[tuple[Resource, str, str], str]
"""The path of the first field that names each object: its resource, namespace and name."""
RECORD_WARNING = f"metadata.annotations[{REFERENCE_AUTHORS}]: admission writes it; the value is ignored"
Find = Callable[[Json | None, str], Iterator[Reference]]
"""The references of a valid object in this namespace."""


@dataclass(frozen=True)
class Asked:
    """A field that names objects which the author needs the right to get."""

    kinds: tuple[Kind, ...]
    field: str
    resource: Resource
    where: str
    why: str
    find: Find
    again: bool = False
    """whether the controllers ask again before they use what the reference names then"""


def _keys_of_a_claim(claim: Json | None, namespace: str) -> Iterator[Reference]:
    if name := at(claim, "spec", "personalization", "sshPublicKeySecret"):
        yield Reference("spec.personalization.sshPublicKeySecret", namespace, str(name))


def _application(kind: Literal["ConfigMap", "Secret"]) -> Find:
    """The objects of this kind that the application of a claim uses."""

    def find(claim: Json | None, namespace: str) -> Iterator[Reference]:
        for path, name in sources(at(claim, "spec", "application"), kind):
            yield Reference(f"spec.application{path}", namespace, name)

    return find


def _certificates_of_a_pool(pool: Json | None, namespace: str) -> Iterator[Reference]:
    if name := at(pool, "spec", "agent", "tls", "secretName"):
        yield Reference("spec.agent.tls.secretName", namespace, str(name))


def _tracked(*flag: str) -> Find:
    """The DataSources of other namespaces whose images the controllers follow, if the field `flag` is true."""

    def find(document: Json | None, namespace: str) -> Iterator[Reference]:
        if at(document, *flag) is not True:
            return
        disks = entries(document, *TEMPLATE, *DISKS)
        # The names that `references` gives: that of a stored object may be missing, or no text.
        numbers = {typed(str, disk, "metadata", "name") or "": number for number, disk in disks}
        for disk, (home, name) in references(at(document, *TEMPLATE), namespace).items():
            if home != namespace:
                yield Reference(f"{'.'.join((*TEMPLATE, *DISKS))}[{numbers[disk]}].spec.sourceRef", home, name)

    return find


_SOURCE_REF = "`sourceRef` of `dataVolumeTemplates`, with `trackDataSources`"
_APPLICATION = "`{}` and `{}` of the containers of `application`, `{}` of its volumes"
_IMAGES = "The controllers write the claims and snapshots that it points at into the status, revisions and VMs"

ASKED: tuple[Asked, ...] = (
    Asked(
        (POOL,),
        _SOURCE_REF,
        Resource.of(DATA_SOURCE),
        "In another namespace",
        _IMAGES,
        _tracked("spec", "updateStrategy", "proactive", "trackDataSources"),
        again=True,
    ),
    Asked(
        (WARM_POOL,),
        _SOURCE_REF,
        Resource.of(DATA_SOURCE),
        "In another namespace",
        _IMAGES,
        _tracked("spec", "updateStrategy", "trackDataSources"),
        again=True,
    ),
    Asked(
        (CLAIM,),
        "`personalization.sshPublicKeySecret`",
        SECRETS,
        "In the claim's namespace",
        "The controllers copy its keys into the guest",
        _keys_of_a_claim,
    ),
    Asked(
        (CLAIM,),
        _APPLICATION.format("secretKeyRef", "secretRef", "secret") + ", `imagePullSecrets`",
        SECRETS,
        "In the claim's namespace",
        "The controllers pass its values to the application",
        _application("Secret"),
    ),
    Asked(
        (CLAIM,),
        _APPLICATION.format("configMapKeyRef", "configMapRef", "configMap"),
        CONFIG_MAPS,
        "In the claim's namespace",
        "The controllers pass its values to the application",
        _application("ConfigMap"),
    ),
    Asked(
        (WARM_POOL,),
        "`agent.tls.secretName`",
        SECRETS,
        "In the pool's namespace",
        "The controllers present its certificate to the agents",
        _certificates_of_a_pool,
    ),
)

NOT_ASKED: tuple[tuple[str, str], ...] = (
    (
        "`sourceRef` of `dataVolumeTemplates`, without `trackDataSources`; `source.pvc` and `source.snapshot` of any"
        " namespace",
        "Poolhouse does not read them. KubeVirt and CDI ask whether the ServiceAccount of the VM may clone from there,"
        " also if the controllers create the VM",
    ),
    (
        "`instancetype`, `preference`",
        "They are cluster-wide or in the namespace of the VM, and KubeVirt reads them for every author of a VM",
    ),
    (
        "`volumes[].persistentVolumeClaim`, `secret`, `configMap`, `serviceAccount`",
        "In the namespace of the VM. Who may create VMs there may mount them, and admission asks for that right",
    ),
    (
        "`networks[].multus.networkName` with a namespace",
        "Poolhouse does not read it. KubeVirt and Multus decide by their own settings",
    ),
    (
        "`analysis` of a pool with a CronJob",
        "In the pool's namespace. The label `poolhouse.dev/pool-analysis` is the permission of the CronJob's author",
    ),
    (
        "`ec2` of a warm pool",
        "Kubernetes has no rights on objects of AWS. The author needs `create ec2instances.poolhouse.dev`, and the AWS"
        " role of the controllers limits what they launch",
    ),
    (
        "`application` of a claim that the controllers make for a Pod",
        "In the Pod's namespace. Who may create Pods there may mount them, and admission has decided about the Pod."
        " Such a claim has a Pod as its controller, and its author may patch `pods/status`, as kubelets may",
    ),
)
"""Fields that name other objects, and who decides about them."""


class ReferenceReview:
    def __init__(self, api: Api, *, budget_seconds: float) -> None:
        self._api, self._budget_seconds = api, budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Denies a new reference if the user may not get the object, or if that is unknown. References that the stored
        object has too are not asked again, so that others may change its other fields. Else it records the authors."""
        new = _new_references(request)
        denied = await self._denial(request, new) if new else None
        return denied or with_record(request, new)

    async def _denial(self, request: AdmissionRequest, new: References) -> AdmissionResponse | None:
        try:
            async with asyncio.timeout(self._budget_seconds):
                if await self._is_of_a_pod(request):
                    return None
                allowed = await asyncio.gather(*(user_may(self._api, request.user, "get", *each) for each in new))
        except (ApiError, TimeoutError) as error:
            (resource, _, _), path = next(iter(new.items()))
            why = f"cannot determine whether you may get the {resource.kind}: {cause_of(error)}; try again"
            return AdmissionResponse(problems=(Problem(path, why),), forbidden=True)
        problems = tuple(
            Problem(path, f"{request.username} may not get {resource.kind} {name} in namespace {namespace}")
            for ((resource, namespace, name), path), may in zip(new.items(), allowed, strict=True)
            if not may
        )
        return AdmissionResponse(problems=problems, forbidden=True) if problems else None

    async def _is_of_a_pod(self, request: AdmissionRequest) -> bool:
        """Whether the object is the claim of a Pod, whose own kubelet could mount what the claim names."""
        pod = controlling_pod(request.object or {})
        if request.kind != CLAIM.kind or pod is None:
            return False
        name = str(pod.get("name") or "")
        return await user_may(self._api, request.user, "patch", POD_STATUS, request.namespace, name)


def _asked(request: AdmissionRequest) -> Iterator[Asked]:
    return (each for each in ASKED if any(map(request.is_of, each.kinds)))


def _new_references(request: AdmissionRequest) -> References:
    """The path of the first field that names each object, for objects that the stored object does not name. All objects
    are new if the user asks to become the author of the references."""
    takes_over = annotations_of(request.object).get(REFERENCE_AUTHORS) == TAKE_OVER
    found: References = {}
    for each in _asked(request):
        old = None if takes_over and each.again else request.old
        stored = {(ref.namespace, ref.name) for ref in each.find(old, request.namespace)}
        for ref in each.find(request.object, request.namespace):
            if (ref.namespace, ref.name) not in stored:
                found.setdefault((each.resource, ref.namespace, ref.name), ref.path)
    return found


def with_record(request: AdmissionRequest, new: Iterable[tuple[Resource, str, str]]) -> AdmissionResponse:
    """The object with the record of who wrote its references: the user for the new ones, and the stored record for the
    others. What the client sends does not count, because clients that replace whole objects drop it by accident."""
    if not any(each.again for each in _asked(request)):
        return AdmissionResponse()
    document = request.object or {}
    named = {
        name_reference(each.resource.kind, ref.namespace, ref.name)
        for each in _asked(request)
        if each.again
        for ref in each.find(document, request.namespace)
    }
    written = named & {name_reference(resource.kind, namespace, name) for resource, namespace, name in new}
    stored = read_record(annotations_of(request.old).get(REFERENCE_AUTHORS))
    kept = {reference: author for reference, author in stored.items() if reference in named - written}
    wanted = record(kept, written, author_of(request.user))
    given = annotations_of(document)
    if given.get(REFERENCE_AUTHORS, "") == wanted:
        return AdmissionResponse()
    annotations = {name: value for name, value in given.items() if name != REFERENCE_AUTHORS}
    annotations |= {REFERENCE_AUTHORS: wanted} if wanted else {}
    before = annotations_of(request.old).get(REFERENCE_AUTHORS)
    sent = given.get(REFERENCE_AUTHORS) not in (None, before, TAKE_OVER)
    return AdmissionResponse(
        object={**document, "metadata": {**document["metadata"], "annotations": annotations}},
        warnings=(RECORD_WARNING,) if sent else (),
    )
