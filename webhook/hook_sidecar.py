"""Asks KubeVirt for the sidecar that restores recorded hardware, when a VMI with a hardware record is created.

The sidecar is in the VMI and not in the VM, so that the VM starts without it after Poolhouse is uninstalled or the
feature gate is off. virt-api refuses the annotation without the feature gate.
"""

import json
from collections.abc import Callable
from dataclasses import replace

from defaulter.contract import HARDWARE_ANNOTATION, HOOK, SIDECARS
from poolhouse.api.apimachinery.unstructured import Json, at, replaced
from poolhouse.api.kubevirt import versions
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from webhook.admission import AdmissionHandler
from webhook.review import AdmissionRequest, AdmissionResponse, annotations_of

SOCKET = f"/var/run/kubevirt-hooks/{HOOK}.sock"
"""path of the sidecar's socket, in the only directory where KubeVirt looks for such sockets"""


class HookSidecar:
    """Adds the sidecar to the answers about new VMIs. With the feature gate Plugins and `plugin`, the cluster has
    Poolhouse's plugin, which needs no sidecar of a VMI."""

    def __init__(
        self, defaulting: AdmissionHandler, image: str, settings: Callable[[], ClusterSettings | None], *, plugin: bool
    ) -> None:
        self._defaulting, self._image, self._settings, self._plugin = defaulting, image, settings, plugin

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        response = await self._defaulting.handle(request)
        if response.problems or not asks_for_sidecar(request, self._settings(), plugin=self._plugin):
            return response
        document = with_sidecar(response.object or request.object or {}, self._image)
        return response if document is None else replace(response, object=document)


def asks_for_sidecar(request: AdmissionRequest, settings: ClusterSettings | None, *, plugin: bool) -> bool:
    """Whether the request creates a VMI in a cluster in which only a sidecar can restore its hardware."""
    if request.kind != "VirtualMachineInstance" or request.operation != "CREATE" or settings is None:
        return False
    by_plugin = plugin and settings.enables(versions.PLUGINS)
    return settings.enables(versions.SIDECAR) and not by_plugin


def with_sidecar(vmi: Json, image: str) -> Json | None:
    """The VMI with Poolhouse's sidecar added to those in its annotation. None if the VMI has no hardware record, if the
    annotation has Poolhouse's sidecar already, or if KubeVirt cannot read the annotation."""
    annotations = annotations_of(vmi)
    try:
        named = json.loads(annotations.get(SIDECARS) or "[]")
    except (TypeError, ValueError, RecursionError):
        return None
    if HARDWARE_ANNOTATION not in annotations or not isinstance(named, list) or any(map(_is_hook, named)):
        return None
    command = ["/opt/poolhouse/bin/python", "-m", "defaulter.sidecar", SOCKET]
    sidecars = [*named, {"image": image, "imagePullPolicy": "IfNotPresent", "command": command}]
    return replaced(vmi, json.dumps(sidecars), "metadata", "annotations", SIDECARS)


def _is_hook(sidecar: object) -> bool:
    """Whether this is Poolhouse's hook, as the webhook or `poolhouse hook` writes it."""
    command = at(sidecar, "command")
    return (isinstance(command, list) and SOCKET in command) or at(sidecar, "configMap", "name") == HOOK
