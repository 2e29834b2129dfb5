"""The view of a warm pool, and the hash that identifies the template of a VM."""

import copy
import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from sys import intern
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from controllers.shared.data_sources import Sources, pinned
from controllers.shared.decisions import last_manager
from controllers.shared.invalid_spec import InvalidSpec, describe, parse_status
from controllers.shared.sources import Source
from controllers.shared.vmi import ObjectView
from controllers.warmpool.warm_vm import POOL_KIND, Owner, WarmVM
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.model import Model
from poolhouse.api.kinds.reference_authors import Author, read_record
from poolhouse.api.kinds.warmpool import WARM_POOL, WarmPoolSpec, WarmPoolStatus
from poolhouse.api.kubevirt.data_source_references import references
from poolhouse.api.kubevirt.fields import VM_SPEC
from poolhouse.api.kubevirt.meaning import canonical, text_of
from poolhouse.api.kubevirt.own_namespace import without_own_namespace
from poolhouse.runtime.resource import Key, Resource
from poolhouse.runtime.store import Store

HASH_ALGORITHM = "v3"
_NOT_HASHED = ("name", "weight")


def _v1(spec: Any, namespace: str) -> str:
    return text_of(spec)


def _v2(spec: Any, namespace: str) -> str:
    """Specs that mean the same to KubeVirt have equal texts. The fields of an EC2 template have no type."""
    return text_of(canonical(spec, VM_SPEC))


def _v3(spec: Any, namespace: str) -> str:
    return _v2(without_own_namespace(spec, VM_SPEC, namespace), namespace)


HASH_ALGORITHMS: dict[str, Callable[[Any, str], str]] = {"v1": _v1, "v2": _v2, "v3": _v3}
"""The text of a spec that is hashed, by the version of the algorithm. The text of a large template takes 50 ms, so a
pool makes it once for all of its placements and VMs."""


def _hash_label(text: str, placement: Mapping[str, Any] | None) -> str:
    """The label value for VMs of a template with this text. The value names its algorithm, so that a new algorithm does
    not make VMs outdated. Changes of labels, annotations or weights do not change the hash."""
    return f"{HASH_ALGORITHM}.{_hash(text, placement)}"


def _hash(text: str, placement: Mapping[str, Any] | None) -> str:
    where = {key: value for key, value in (placement or {}).items() if key not in _NOT_HASHED and value}
    return hashlib.sha256(f"[{text},{text_of(where)}]".encode()).hexdigest()[:12]


def _fits(label: str, text: Callable[[str], str], placement: Mapping[str, Any] | None) -> bool:
    """Whether a VM with this label was made from the template and placement. `text` returns the text of the template
    by the version of the algorithm. True for an unknown version, so that a downgrade does not replace the VMs of a
    newer release."""
    version, _, rest = label.partition(".")
    if not rest:
        return False
    return version not in HASH_ALGORITHMS or _hash(text(version), placement) == rest


DEFAULT_PLACEMENT: Json = {"name": "default"}
"""The placement of a pool that declares no placements."""


MEMBER_LENGTH = 13
"""Characters of a UID in the status, 12 of them hexadecimal digits: too many to meet one by creating VMs."""


def short_uid(uid: str) -> str:
    return uid[:MEMBER_LENGTH]


def is_recorded(members: Container[str] | None, vm: WarmVM) -> bool:
    """Whether the `members` of a pool's status have the VM. See `WarmPool.recorded`."""
    return members is None or short_uid(vm.uid) in members


@dataclass(frozen=True)
class WarmPool(ObjectView):
    generation: int
    spec: WarmPoolSpec
    status: WarmPoolStatus
    created_at: str = ""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    resource_version: str = ""
    scaled_by: str = ""
    """The client that last set `spec.replicas` through the scale subresource, such as a HorizontalPodAutoscaler."""
    replicas_by: str = ""
    """The client that last set `spec.replicas` in any way."""
    authors: Mapping[str, Author] = field(default_factory=dict, hash=False)
    """Who wrote the references of the spec, by reference."""

    @property
    def owner(self) -> Owner:
        return Owner(POOL_KIND, self.name, self.uid)

    @cached_property
    def members(self) -> frozenset[str] | None:
        return None if self.status.members is None else frozenset(self.status.members)

    def recorded(self, vm: WarmVM) -> bool:
        """Whether the stored status says that the controllers have created the VM.

        The labels of a VM say so too, and an admission policy protects them. The status is the second record: nobody
        but the controllers may write it, and a VM cannot choose its UID. True before a release with this record has
        seen the pool, and for EC2 instances, whose tags AWS protects."""
        return is_recorded(self.members, vm)

    @cached_property
    def template(self) -> Json:
        """The pool's `template` or `ec2`. The template contains the agent as an annotation, which its VMs keep."""
        if self.spec.template and self.spec.agent is not None:
            return _with_annotation(self.spec.template, meta.AGENT, self.spec.agent.model_dump_json(exclude_none=True))
        return self.spec.template or (_non_defaults(self.spec.ec2) if self.spec.ec2 else {})

    @cached_property
    def placements(self) -> dict[str, Json]:
        """The declared placements by name, or the default placement."""
        declared = {each.name: _non_defaults(each) for each in self.spec.places}
        return declared or {DEFAULT_PLACEMENT["name"]: DEFAULT_PLACEMENT}

    @cached_property
    def tracked(self) -> Mapping[str, Key]:
        """The DataSources whose images belong to the template, by name in dataVolumeTemplates."""
        tracks = self.spec.update_strategy.track_data_sources
        return references(self.template, self.namespace) if tracks and self.spec.template else {}

    @cached_property
    def images(self) -> Sources:
        """What the tracked DataSources point at. Every process reads this from the status, so that all agree on it."""
        return {
            each.disk: {each.kind: {"namespace": each.namespace, "name": each.name}}
            for each in self.status.data_sources
            if each.data_source == "/".join(self.tracked.get(each.disk, ()))
        }

    def pinned(self, template: Json) -> Json:
        """The template of a VM with the images in place of the DataSources. The template is the pool's, or has the
        overrides of a claim: a DataSource that the claim chooses stays."""
        given = references(template, self.namespace)
        images = {disk: image for disk, image in self.images.items() if given.get(disk) == self.tracked[disk]}
        if not images:
            return template
        return {**template, "spec": pinned(copy.deepcopy(template["spec"]), images)}

    @cached_property
    def hashes(self) -> dict[str, str]:
        """Hash labels of VMs of the current template, by placement."""
        text = self._text(HASH_ALGORITHM)
        return {name: _hash_label(text, placement) for name, placement in self.placements.items()}

    @cached_property
    def template_hash(self) -> str:
        """The hash of the template without a placement, which the status shows to users. The status keeps the hash of
        an earlier algorithm while it stands for the same template."""
        stored = self.status.template_hash
        if stored.partition(".")[0] in HASH_ALGORITHMS and _fits(stored, self._text, None):
            return stored
        return _hash_label(self._text(HASH_ALGORITHM), None)

    def current(self, vm: WarmVM) -> bool:
        """Whether the VM was made from the current template, in a placement that the pool still declares."""
        return self.is_current(vm.template_hash, vm.placement)

    def is_current(self, template_hash: str, placement: str) -> bool:
        """Like `current`, of the labels of a VM."""
        if template_hash == self.hashes.get(placement):
            return True
        key = template_hash, placement
        if key not in self._verdicts:
            declared = self.placements.get(placement)
            self._verdicts[key] = declared is not None and _fits(template_hash, self._text, declared)
        return self._verdicts[key]

    @cached_property
    def _verdicts(self) -> dict[tuple[str, str], bool]:
        """The results of `current` by label and placement, which many VMs share."""
        return {}

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {}

    def _text(self, version: str) -> str:
        """The text of the template, and of the agent that its VMs have, which this version of the algorithm hashes."""
        if version not in self._texts:
            text, agent = HASH_ALGORITHMS[version](self._hashed, self.namespace), self.spec.agent
            self._texts[version] = text if agent is None else f"{text},{text_of(_non_defaults(agent))}"
        return self._texts[version]

    @cached_property
    def _hashed(self) -> Any:
        # The subnets are not hashed: the subnet of an EC2 instance is its placement.
        if not self.spec.template:
            return {**self.template, "subnets": None}
        return self.pinned(self.template).get("spec")


class InvalidWarmPool(InvalidSpec[WarmPoolStatus]):
    """A warm pool with an invalid spec. The controller does not change its VMs."""


def parse_warm_pool(document: Json) -> WarmPool | InvalidWarmPool:
    metadata, status = document["metadata"], parse_status(WarmPoolStatus, document)
    key = metadata.get("namespace", ""), metadata["name"], metadata["uid"], metadata.get("generation", 0)
    life = (
        metadata.get("creationTimestamp") or "",
        metadata.get("deletionTimestamp") is not None,
        tuple(metadata.get("finalizers") or ()),
        metadata.get("resourceVersion") or "",
    )
    try:
        spec = WarmPoolSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:
        return InvalidWarmPool(*key, status, describe(error), *life)
    if bool(spec.template) == bool(spec.ec2):
        return InvalidWarmPool(*key, status, "spec: must have exactly one of template and ec2", *life)
    client = intern(last_manager(metadata, "spec", "replicas"))
    authors = read_record(at(metadata, "annotations", meta.REFERENCE_AUTHORS))
    return WarmPool(*key, spec, status, *life, scaled_by=_scaled_by(metadata), replicas_by=client, authors=authors)


def _scaled_by(metadata: Json) -> str:
    managers = (each for each in metadata.get("managedFields") or () if each.get("subresource") == "scale")
    return next((str(each.get("manager") or "a client") for each in managers), "")


WARM_POOLS = Resource.of(WARM_POOL)
SOURCE: Source[WarmPool | InvalidWarmPool] = Source(
    WARM_POOLS,
    parse_warm_pool,
    {
        "namespace": lambda pool: [pool.namespace],
        "uid": lambda pool: [pool.uid],
        "tracking": lambda pool: pool.tracked.values() if isinstance(pool, WarmPool) else (),
    },
)


def default_pool(pools: Iterable[WarmPool | InvalidWarmPool]) -> WarmPool | None:
    """The oldest pool with `default: true` in a namespace. Admission refuses a second such pool, but two requests at
    the same time may both pass."""
    candidates = [p for p in pools if isinstance(p, WarmPool) and p.spec.default and not p.deleting]
    return min(candidates, key=lambda p: (p.created_at, p.uid), default=None)


class Namespaced(Protocol):
    @property
    def namespace(self) -> str: ...


N = TypeVar("N", bound=Namespaced)


def named_by(vm: WarmVM, uid: str, store: Store[N]) -> N | None:
    """The object with a UID that a label of the VM has. None in another namespace than the VM's, whose users may write
    any label if the admission policies are off."""
    found = store.first("uid", uid) if uid else None
    return found if found is not None and found.namespace == vm.namespace else None


def pool_of(pools: Store[WarmPool | InvalidWarmPool], vm: WarmVM) -> WarmPool | InvalidWarmPool | None:
    return named_by(vm, vm.pool_uid, pools)


def deletion_policy(pools: Store[WarmPool | InvalidWarmPool], uid: str) -> str | None:
    """The deletion policy of the pool with this UID: an empty string for an invalid spec, None for an unknown pool."""
    found = pools.first("uid", uid)
    if found is None:
        return None
    return found.spec.deletion_policy if isinstance(found, WarmPool) else ""


def _with_annotation(template: Json, key: str, value: str) -> Json:
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), key: value}}}


def _non_defaults(value: Model) -> Json:
    """Fields that differ from their defaults. A field that a later release adds must not change the hash."""
    return value.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
