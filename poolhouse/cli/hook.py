"""Implements `poolhouse hook`, which prints manifests that make KubeVirt restore recorded hardware."""

import inspect
import json

import click

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.manifests import print_manifests
from poolhouse.cli.output import output_option
from poolhouse.manifests.plugin import NAME, plugin_manifests

KEY = "onDefineDomain"


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

    By default, print a ConfigMap with the hook, for KubeVirt 1.1 and later with the feature gate Sidecar. Its
    annotation poolhouse.dev/usage says what to add to the template of a VM. With --plugin, print a Plugin for
    KubeVirt 1.9 and later (feature gate Plugins), and a MutatingAdmissionPolicy that adds its sidecar to the pods of
    recorded VMs (Kubernetes 1.36 and later). Both need POOLHOUSE_HARDWARE_RECORD=true for the defaulter.
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
