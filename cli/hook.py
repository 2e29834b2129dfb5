"""Implements `poolhouse hook`, which prints manifests that make KubeVirt restore recorded hardware."""

import inspect
import json

import click

from apimachinery.unstructured import Json
from cli.manifests import print_manifests
from cli.output import output_option

NAME = "poolhouse-hardware"
KEY = "onDefineDomain"
SOCKET = f"/var/run/kubevirt-plugin/{NAME}/hook.sock"
"""path of the plugin's socket, in the only directory where KubeVirt looks for such sockets"""
_VOLUME = "kubevirt-plugin-sockets"


@click.command()
@click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    help="Namespace of the VMs and the ConfigMap.",
)
@click.option("--plugin", is_flag=True, help="Print a Plugin of KubeVirt instead, for all VMs of a cluster.")
@click.option("--image", metavar="IMAGE", help="With --plugin: image of the defaulter, which contains the hook.")
@output_option("yaml", "json")
def hook(namespace: str, plugin: bool, image: str | None, output: str) -> None:
    """Print the manifests that restore recorded hardware at each start of a VM.

    By default, print a ConfigMap with the hook, for KubeVirt 1.1 and later with the feature gate Sidecar. A VM uses it
    by an annotation, which the ConfigMap shows. With --plugin, print a Plugin for KubeVirt 1.9 and later (feature gate
    Plugins), and a MutatingAdmissionPolicy that adds its sidecar to the pods of recorded VMs (Kubernetes 1.36 and
    later). Both need POOLHOUSE_HARDWARE_RECORD=true for the defaulter.
    """
    if plugin != bool(image):
        raise click.UsageError("--plugin and --image belong together")
    print_manifests(output, plugin_manifests(image) if image else [config_map(namespace)])


def config_map(namespace: str) -> Json:
    from defaulter import hook as program

    usage = f"on the VM's template: hooks.kubevirt.io/hookSidecars: {_hook_annotation()}"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "annotations": {"poolhouse.dev/usage": usage},
        },
        "data": {KEY: inspect.getsource(program)},
    }


def _hook_annotation() -> str:
    """Returns the value of the annotation that adds the sidecar to a VM."""
    script = {"name": NAME, "key": KEY, "hookPath": f"/usr/bin/{KEY}"}
    return json.dumps([{"args": ["--version", "v1alpha2"], "configMap": script}])


def plugin_manifests(image: str) -> list[Json]:
    """Returns a Plugin, and the policy that adds its sidecar to the pods of VMs with a hardware record."""
    from defaulter.contract import HARDWARE_ANNOTATION

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
