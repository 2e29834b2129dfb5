"""`poolhouse hook`: the manifest that lets KubeVirt's sidecar give recorded hardware back at each define."""

from __future__ import annotations

import inspect

import click
import yaml

from cli.output import output_option, print_json

NAME = "poolhouse-hardware"
KEY = "onDefineDomain"


@click.command()
@click.option(
    "--namespace", "-n", default="default", show_default=True, help="Of the VMs: a sidecar reads its own only."
)
@output_option("yaml", "json")
def hook(namespace: str, output: str) -> None:
    """Print the ConfigMap with the hook that enforces recorded hardware, and how a VM asks for it.

    Needs KubeVirt's feature gate Sidecar, and a defaulter that records (POOLHOUSE_HARDWARE_RECORD=true).
    """
    from defaulter import hook as program

    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "annotations": {
                "poolhouse.dev/usage": "on the VM's template: hooks.kubevirt.io/hookSidecars: "
                f'[{{"args": ["--version", "v1alpha2"], "configMap": {{"name": "{NAME}", "key": "{KEY}",'
                f' "hookPath": "/usr/bin/{KEY}"}}}}]'
            },
        },
        "data": {KEY: inspect.getsource(program)},
    }
    if output == "json":
        print_json(config)
    else:
        click.echo(yaml.safe_dump(config, sort_keys=False, width=120), nl=False)
