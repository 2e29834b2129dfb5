"""Creates the launcher Pods of VMIs whose annotation or ConfigMap asks for them, and acts as their kubelet."""

import contextlib

from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import Conflict, NotFound
from poolhouse.runtime.resource import PODS, VMIS, Key
from poolhouse.stack.engine.api_object import Pairs
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.launcher.pods import (
    Action,
    CreateLauncher,
    RemoveLauncher,
    SetReady,
    new_pod,
    plan_launchers,
    pod_status,
)
from poolhouse.stack.engine.objects import VM, VMI, Launcher, either
from poolhouse.stack.engine.writes import create_absent


class LauncherController:
    def __init__(self, api: Api, informers: Informers) -> None:
        self._api, self._informers = api, informers
        self.controller: Controller[Key] = Controller("launchers", self.reconcile, workers=8, metrics=api.metrics)
        informers.launchers.subscribe(self._pod_changed)
        informers.vmis.subscribe(self._vmi_changed)
        informers.vms.subscribe(self._vm_changed)
        informers.settings.subscribe(self._settings_changed)

    def _pod_changed(self, old: Launcher | None, new: Launcher | None) -> None:
        self.controller.enqueue(either(old, new).vmi)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        vmi = either(old, new)
        if self._is_wanted(vmi) or self._informers.launchers.store.by("vmi", vmi.key):
            self.controller.enqueue(vmi.key)

    def _vm_changed(self, old: VM | None, new: VM | None) -> None:
        if old is not None and new is not None and new.faults != old.faults:
            self.controller.enqueue(new.key)  # the VMI has the name of its VM

    def _settings_changed(self, old: Pairs | None, new: Pairs | None) -> None:
        for vmi in self._informers.vmis.store.all():
            self.controller.enqueue(vmi.key)

    def _is_wanted(self, vmi: VMI) -> bool:
        faults, _ = self._informers.faults_of(vmi)
        return faults.launcher_pods

    async def reconcile(self, key: Key) -> float | None:
        vmi = self._informers.vmis.store.get(key)
        pods = self._informers.launchers.store.by("vmi", key)
        for action in plan_launchers(vmi, pods, wanted=vmi is not None and self._is_wanted(vmi)):
            await self._apply(action, key)
        return None

    async def _apply(self, action: Action, key: Key) -> None:
        match action:
            case CreateLauncher(node):
                vmi = self._informers.vmis.store.get(key)
                document = await self._api.get(VMIS, *key)
                if vmi is not None and document["metadata"]["uid"] == vmi.uid:
                    # One exists that the informer does not show yet.
                    await create_absent(self._api, PODS, new_pod(vmi, document["metadata"], node))
            case SetReady(pod, ready):
                status = pod_status(ready=ready)
                body = {"metadata": {"uid": pod.uid}, "status": status}
                with contextlib.suppress(NotFound, Conflict):
                    await self._api.patch(PODS, *pod.key, body, subresource="status")
            case RemoveLauncher(pod):
                with contextlib.suppress(NotFound, Conflict):
                    await self._api.delete(PODS, *pod.key, uid=pod.uid, grace_seconds=0)
