"""Caches the EC2 instances of this cluster: EC2's last responses, and newer writes of this process.

EC2 is eventually consistent: a response may be seconds old. The cache keeps a write until a response shows the write,
or until MAX_LAG_SECONDS have passed. The revision in the tags shows which of the two is newer.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from controllers.shared.vmi import VMI
from controllers.warmpool.cache import WARM_VMIS, WARM_VMS, WarmVMCache
from controllers.warmpool.ec2.tags import TERMINATED_STATES, Tags, from_aws, parse_vmi, parse_warm_vm, revision, to_aws
from controllers.warmpool.warm_vm import Node, WarmVM
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import Store

MAX_LAG_SECONDS = 60.0
"""Maximum age of a write that a response of EC2 may not show yet."""

VMChanged = Callable[[WarmVM | None, WarmVM | None], None]
VMIChanged = Callable[[VMI | None, VMI | None], None]


@dataclass(frozen=True)
class _Write:
    """The last write of this process to an instance, and the instance after the write."""

    at: float
    instance: Json
    terminated: bool = False


@dataclass
class InstanceCache:
    clock: Callable[[], float]
    vms: Store[WarmVM] = field(default_factory=WARM_VMS.store)
    vmis: Store[VMI] = field(default_factory=WARM_VMIS.store)
    _writes: dict[str, _Write] = field(default_factory=dict)
    """The key is the instance ID."""
    _vm_changed: list[VMChanged] = field(default_factory=list)
    _vmi_changed: list[VMIChanged] = field(default_factory=list)

    @property
    def warm_vms(self) -> WarmVMCache:
        return WarmVMCache(self.vms, self.vmis, Store[Node]())

    def subscribe(self, vm_changed: VMChanged, vmi_changed: VMIChanged) -> None:
        self._vm_changed.append(vm_changed)
        self._vmi_changed.append(vmi_changed)

    def replace(self, instances: Iterable[Json], asked_at: float) -> None:
        """Replaces the cache by a list of all instances. `asked_at` is the time of the request to EC2."""
        known = {each["InstanceId"]: each for each in map(self.newest, instances)}
        for instance_id, write in list(self._writes.items()):
            if write.at + MAX_LAG_SECONDS < asked_at:
                del self._writes[instance_id]
            elif instance_id not in known and not write.terminated:
                known[instance_id] = write.instance
        vms = {vm.key: (vm, instance) for instance in known.values() if (vm := parse_warm_vm(instance)) is not None}
        for key in [vm.key for vm in self.vms if vm.key not in vms]:
            self._put(key, None, None)
        for key, (vm, instance) in vms.items():
            self._put(key, vm, parse_vmi(instance))

    def described(self, instance: Json) -> WarmVM | None:
        """Caches one instance from a response of EC2, and returns its view."""
        newest = self.newest(instance)
        vm = parse_warm_vm(newest)
        if vm is not None:
            self._put(vm.key, vm, parse_vmi(newest))
        return vm

    def missing_writes(self, instances: Iterable[Json]) -> list[str]:
        """IDs of instances that this process wrote to recently and that `instances` lacks."""
        known = {each["InstanceId"] for each in instances}
        return [each for each in self._writes if each not in known and self.recently_written(each) is not None]

    def recently_written(self, instance_id: str) -> Json | None:
        """The instance after a recent creation or write of this process. None if the process terminated the instance.
        EC2 lists terminated instances for an hour, so an instance that EC2 does not know yet still exists."""
        write = self._writes.get(instance_id)
        recent = write is not None and not write.terminated and self.clock() - write.at <= MAX_LAG_SECONDS
        return write.instance if write is not None and recent else None

    def newest(self, instance: Json) -> Json:
        """The instance with a newer write of this process, if the response does not show the write."""
        write = self._writes.get(instance["InstanceId"])
        if write is None:
            return instance
        state = (instance.get("State") or {}).get("Name")
        if write.terminated and state not in TERMINATED_STATES:
            return {**instance, "State": {"Name": TERMINATED_STATES[0]}}
        if revision(from_aws(write.instance)) > revision(from_aws(instance)):
            return {**instance, "Tags": write.instance["Tags"]}
        return instance

    # Writes of this process

    def tagged(self, instance: Json, tags: Tags) -> WarmVM | None:
        changed = {**instance, "Tags": to_aws({**from_aws(instance), **tags})}
        self._writes[instance["InstanceId"]] = _Write(self.clock(), changed)
        return self.described(changed)

    def created(self, instance: Json) -> WarmVM | None:
        self._writes[instance["InstanceId"]] = _Write(self.clock(), instance)
        return self.described(instance)

    def terminated(self, instance: Json) -> None:
        self._writes[instance["InstanceId"]] = _Write(self.clock(), instance, terminated=True)
        self.described(instance)

    def _put(self, key: Key, vm: WarmVM | None, vmi: VMI | None) -> None:
        old_vmi, old_vm = self.vmis.get(key), self.vms.get(key)
        if vmi != old_vmi:
            self.vmis.put(key, vmi) if vmi is not None else self.vmis.drop(key)
        if vm != old_vm:
            self.vms.put(key, vm) if vm is not None else self.vms.drop(key)
            for vm_changed in self._vm_changed:
                vm_changed(old_vm, vm)
        if vmi != old_vmi:
            for vmi_changed in self._vmi_changed:
                vmi_changed(old_vmi, vmi)
