"""`poolhouse hook`: the manifests that let KubeVirt give recorded hardware back at each define."""

from __future__ import annotations

import inspect
import json
from typing import Any

import click

from cli.manifests import print_manifests
from cli.output import output_option

Json = dict[str, Any]

NAME = "poolhouse-hardware"
KEY = "onDefineDomain"
SOCKET = f"/var/run/kubevirt-plugin/{NAME}/hook.sock"
"""KubeVirt takes a plugin's sockets from this directory alone"""
_VOLUME = "kubevirt-plugin-sockets"


@click.command()
@click.option(
    "--namespace", "-n", default="default", show_default=True, help="Of the VMs: a sidecar reads its own only."
)
@click.option("--plugin", is_flag=True, help="For KubeVirt's Plugin kind instead: once a cluster, for all its VMs.")
@click.option("--image", metavar="IMAGE", help="With --plugin: the defaulter's image, which holds the hook's server.")
@output_option("yaml", "json")
def hook(namespace: str, plugin: bool, image: str | None, output: str) -> None:
    """Print what a cluster needs to give recorded hardware back at each start.

    A ConfigMap with the hook, for every KubeVirt with the feature gate Sidecar (1.1 and later): each VM asks for it by
    an annotation, which the ConfigMap shows. With --plugin the Plugin of KubeVirt 1.9 and later (feature gate Plugins),
    with the MutatingAdmissionPolicy that puts its sidecar into the pods of recorded VMs (Kubernetes 1.36 and later).
    Both need a defaulter that records: POOLHOUSE_HARDWARE_RECORD=true.
    """
    if plugin != bool(image):
        raise click.UsageError("--plugin and --image belong together")
    print_manifests(output, plugged(image) if image else [config_map(namespace)])


def config_map(namespace: str) -> Json:
    from defaulter import hook as program

    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "annotations": {"poolhouse.dev/usage": f"on the VM's template: hooks.kubevirt.io/hookSidecars: {_asked()}"},
        },
        "data": {KEY: inspect.getsource(program)},
    }


def _asked() -> str:
    """The annotation by which a VM asks for the sidecar."""
    script = {"name": NAME, "key": KEY, "hookPath": f"/usr/bin/{KEY}"}
    return json.dumps([{"args": ["--version", "v1alpha2"], "configMap": script}])


def plugged(image: str) -> list[Json]:
    """A Plugin, and the policy that adds its sidecar to the pods of VMs with a record. Others start without it."""
    from defaulter.contract import HARDWARE_ANNOTATION

    plugin = {
        "apiVersion": "plugin.kubevirt.io/v1alpha1",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "condition": f'"{HARDWARE_ANNOTATION}" in vmi.Annotations',
            # A VM must not start with other hardware in silence.
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
    """The container in CEL. It runs as the pod's user, like the one that asks it, and sees its own directory only."""
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
