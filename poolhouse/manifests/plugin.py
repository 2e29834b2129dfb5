"""The plugin of KubeVirt that restores recorded hardware, printed by `poolhouse hook` and part of the chart."""

import json

from poolhouse.api.apimachinery.unstructured import Json

NAME = "poolhouse-hardware"
SOCKET = f"/var/run/kubevirt-plugin/{NAME}/hook.sock"
"""path of the plugin's socket, in the only directory where KubeVirt looks for such sockets"""
HARDWARE_ANNOTATION = "poolhouse.dev/hardware"
IMAGE = "IMAGE"
"""what the chart replaces by the image of the defaulter"""
_VOLUME = "kubevirt-plugin-sockets"


def plugin_manifests(image: str) -> list[Json]:
    """Returns a Plugin, and the policy that adds its sidecar to the pods of VMs with a hardware record."""
    plugin = {
        "apiVersion": "plugin.kubevirt.io/v1alpha1",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "condition": f'"{HARDWARE_ANNOTATION}" in vmi.Annotations',
            # With another strategy, a VM could start without the hook and get other hardware.
            "failureStrategy": "Fail",
            "domainHooks": [{"sidecar": {"socketPath": SOCKET}, "timeout": "10s"}],
            "mutatingAdmissionPolicies": [{"name": NAME}],
        },
    }
    labels = "object.metadata.labels"
    launcher = f'has({labels}) && "kubevirt.io" in {labels} && {labels}["kubevirt.io"] == "virt-launcher"'
    recorded = f'has(object.metadata.annotations) && "{HARDWARE_ANNOTATION}" in object.metadata.annotations'
    sockets = f'object.spec.volumes.exists(v, v.name == "{_VOLUME}")'
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "matchConditions": [
                {"name": "launcher", "expression": launcher},
                {"name": "recorded", "expression": recorded},
                {"name": "sockets", "expression": sockets},
            ],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _sidecar(image)}}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME},
    }
    return [plugin, policy, binding]


def _sidecar(image: str) -> str:
    """Returns the container in CEL. The container runs as the pod's user and mounts only its own socket directory."""
    command = json.dumps(["/opt/poolhouse/bin/python", "-m", "defaulter.plugin", SOCKET])
    return f"""[
  JSONPatch{{
    op: "add",
    path: "/spec/containers/-",
    value: Object.spec.containers{{
      name: "{NAME}",
      image: {json.dumps(image)},
      command: {command},
      securityContext: Object.spec.containers.securityContext{{
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        runAsNonRoot: true,
        seccompProfile: Object.spec.containers.securityContext.seccompProfile{{type: "RuntimeDefault"}},
        capabilities: Object.spec.containers.securityContext.capabilities{{drop: ["ALL"]}}
      }},
      resources: Object.spec.containers.resources{{
        requests: {{"cpu": "5m", "memory": "48Mi"}},
        limits: {{"cpu": "200m", "memory": "128Mi"}}
      }},
      volumeMounts: [Object.spec.containers.volumeMounts{{
        name: "{_VOLUME}",
        mountPath: "/var/run/kubevirt-plugin/{NAME}/",
        subPath: "{NAME}"
      }}]
    }}
  }}
]"""
