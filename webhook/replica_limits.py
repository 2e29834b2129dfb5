"""Denies replicas above the limit of the namespace, in objects and in their scale subresource.

Only a change that raises a number is checked, so that objects that were stored before the limit can be changed. The
controllers create no VMs above the limit either, so a request may pass while the namespace cannot be read.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from fractions import Fraction

from defaulter.instancetypes import MatchedSpecs, apply_specs
from poolhouse.api.apimachinery.counting import count_of
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.quantity import for_people, to_fraction
from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed
from poolhouse.api.kinds import KINDS, meta
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replica_limits import annotated_limit
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.instancetypes import InstancetypeReader
from poolhouse.runtime.resource import NAMESPACES, VMIS, VMS, Resource
from webhook.api_errors import cause_of
from webhook.node_capacity import Capacity, NodeCapacity
from webhook.pod_requests import SIZES, pod_requests
from webhook.review import AdmissionRequest, AdmissionResponse, annotations_of

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
SCALE = "scale"
SCALED = {kind.crd_name: kind for kind in KINDS if kind.scale is not None}
"""Kinds with replicas, by the name of their resource."""
_PATHS = (("spec", "replicas"), ("spec", "autoscaling", "maxReplicas"))
"""Only warm pools have the second."""
_DATA_VOLUMES = "datavolumes.cdi.kubevirt.io"

Needs = Mapping[str, Fraction]
"""What one VM at least uses of a ResourceQuota, by resource."""


class ReplicaLimit:
    def __init__(
        self,
        api: Api,
        max_replicas: int,
        nodes: NodeCapacity,
        settings: Callable[[], ClusterSettings | None],
        instancetypes: InstancetypeReader,
        *,
        budget_seconds: float,
    ) -> None:
        """`max_replicas` is the limit of namespaces without the annotation, and `settings` returns KubeVirt's."""
        self._api, self._max_replicas, self._nodes, self._settings = api, max_replicas, nodes, settings
        self._instancetypes, self._budget_seconds = instancetypes, budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Denies an object, or a Scale of its subresource, that raises replicas above the limit. Warns of replicas for
        which a ResourceQuota or the nodes are too small."""
        raised = dict(raised_replicas(request))
        if not raised:
            return AdmissionResponse()
        if problems := await self._above_limit(request.namespace, raised):
            return AdmissionResponse(problems=problems)
        return AdmissionResponse(warnings=await self._shortages(request, raised))

    async def problems(self, request: AdmissionRequest) -> tuple[Problem, ...]:
        """The replicas above the limit, also of an object that the checks of its kind deny."""
        raised = dict(raised_replicas(request))
        return await self._above_limit(request.namespace, raised) if raised else ()

    async def _above_limit(self, namespace: str, raised: Mapping[str, int]) -> tuple[Problem, ...]:
        limit, source = await self._limit(namespace)
        return tuple(
            Problem(path, f"must be at most {limit}, not {number}: {source}")
            for path, number in raised.items()
            if number > limit
        )

    async def _limit(self, namespace: str) -> tuple[int, str]:
        """The limit, and where it comes from."""
        default = (
            f"the limit of this installation (POOLHOUSE_MAX_REPLICAS); the annotation {meta.MAX_REPLICAS} of the"
            " namespace replaces it"
        )
        try:
            async with asyncio.timeout(self._budget_seconds):
                annotations = annotations_of(await self._api.get(NAMESPACES, None, namespace))
            found = annotated_limit(annotations)
        except (ApiError, TimeoutError) as error:
            return self._max_replicas, f"{default}, which cannot be read now: {cause_of(error)}"
        except ValueError as error:
            return self._max_replicas, f"{default}, and is invalid there: {error}"
        if found is None:
            return self._max_replicas, default
        return found, f"the annotation {meta.MAX_REPLICAS} of the namespace"

    async def _shortages(self, request: AdmissionRequest, raised: Mapping[str, int]) -> tuple[str, ...]:
        needs, quotas = dict[str, Fraction](), list[Json]()
        # One budget for both calls, because the API server waits 3 s for a Scale.
        with suppress(ApiError, TimeoutError):  # the API server refuses the VMs above the quota later
            async with asyncio.timeout(self._budget_seconds):
                needs |= await self._needs(request)
                if needs:
                    quotas, _ = await self._api.list(QUOTAS, request.namespace, from_cache=True)
        return tuple(
            warning
            for path, number in raised.items()
            for warning in (
                *shortages(path, number, needs, quotas),
                *node_shortages(path, number, needs, self._nodes.total),
            )
        )

    async def _needs(self, request: AdmissionRequest) -> Needs:
        kind, document = _kind(request), request.object
        if kind is not None and is_scale(request):
            document = await self._api.get(Resource.of(kind), request.namespace, request.name)
        if kind is None:
            return {}
        spec = typed(dict, document, "spec") or {}
        return needs_of_vm(kind, spec, await self._vmi(kind, spec, request.namespace), self._settings())

    async def _vmi(self, kind: Kind, spec: Json, namespace: str) -> Json:
        """The spec of the VMIs of an object with this spec, with what their instance type gives them."""
        if kind is REPLICA_SET:
            return typed(dict, spec, "template", "spec") or {}
        vm = typed(dict, spec, "template", "spec") or {}
        vmi = typed(dict, vm, "template", "spec") or {}
        if vm.get("instancetype") is None or not _runs(kind, spec):
            return vmi
        found = await self._instancetypes.read({"spec": {"instancetype": vm["instancetype"]}}, namespace)
        sizes = {part: size for part in SIZES if (size := typed(dict, vmi, "domain", part)) is not None}
        return apply_specs({"domain": sizes}, MatchedSpecs(found.get("instancetype")))


def is_scale(request: AdmissionRequest) -> bool:
    """Whether the object is a Scale: that of the subresource of a kind with replicas."""
    return request.subresource == SCALE and request.resource in SCALED


def raised_replicas(request: AdmissionRequest) -> Iterator[tuple[str, int]]:
    """The path and the number of replicas that the request raises, or sets at creation."""
    if not is_scale(request) and _kind(request) is None:
        return
    for path in _PATHS:
        before, after = typed(int, request.old, *path) or 0, typed(int, request.object, *path)
        if after is not None and after > before:
            yield ".".join(path), after


def _kind(request: AdmissionRequest) -> Kind | None:
    if is_scale(request):
        return SCALED[request.resource]
    return next(
        (kind for kind in SCALED.values() if request.kind == kind.kind and request.api_version in kind.api_versions),
        None,
    )


def needs_of_vm(kind: Kind, spec: Json, vmi: Json, settings: ClusterSettings | None) -> Needs:
    """What KubeVirt and CDI create at least for each VM of the object with this spec. `vmi` is the spec of its VMIs."""
    if spec.get("ec2") is not None:
        return {}
    needs = dict[str, Fraction]()
    if kind in (POOL, WARM_POOL):
        needs[f"count/{VMS.plural}.{VMS.group}"] = Fraction(1)
        disks = sum(1 for _ in entries(spec, "template", "spec", "dataVolumeTemplates"))
        if disks:
            claims = ("persistentvolumeclaims", "count/persistentvolumeclaims", f"count/{_DATA_VOLUMES}")
            needs |= dict.fromkeys(claims, Fraction(disks))
    if _runs(kind, spec):
        needs |= dict.fromkeys(("pods", "count/pods", f"count/{VMIS.plural}.{VMIS.group}"), Fraction(1))
        for resource, value in pod_requests(vmi, settings):
            needs |= dict.fromkeys((resource, f"requests.{resource}"), value)
    return needs


def _runs(kind: Kind, spec: Json) -> bool:
    """Whether all VMs run: those of a warm pool before they are claimed, too."""
    if kind is REPLICA_SET:
        return True
    if kind is WARM_POOL:
        return "template" in spec and at(spec, "standby", "mode") in (None, "Running")
    return at(spec, "template", "spec", "running") is True or at(spec, "template", "spec", "runStrategy") == "Always"


def shortages(path: str, replicas: int, needs: Needs, quotas: Iterable[Json]) -> Iterator[str]:
    """Warnings about quotas that are too small for the replicas even if nothing else uses them. Quotas with scopes
    count only some objects, and are ignored."""
    for quota in quotas:
        if at(quota, "spec", "scopes") or at(quota, "spec", "scopeSelector"):
            continue
        for resource, value in (typed(dict, quota, "spec", "hard") or {}).items():
            hard, need = to_fraction(value), needs.get(resource)
            if hard is not None and need and replicas * need > hard:
                name = at(quota, "metadata", "name")
                yield (
                    f"{path}: ResourceQuota {name} allows {value} {resource}, which is enough for"
                    f" {count_of(int(hard / need), replicas, 'VM')}"
                )


def node_shortages(path: str, replicas: int, needs: Needs, capacity: Capacity) -> Iterator[str]:
    """Warnings about resources of which all nodes together have too little even if nothing else uses them."""
    for resource, allocatable in capacity.items():
        need = needs.get(resource)
        if need and replicas * need > allocatable:
            enough = count_of(int(allocatable / need), replicas, "VM")
            yield f"{path}: all nodes that run VMs have {_told(allocatable, resource)} together, enough for {enough}"


def _told(amount: Fraction, resource: str) -> str:
    if resource == "memory":
        return f"{for_people(int(amount))} memory"
    return f"{float(amount):g} CPUs" if resource == "cpu" else f"room for {int(amount)} Pods"
