"""`poolhouse crds`: what a cluster must know before it can hold objects of ours."""

from __future__ import annotations

import click
import yaml

import kinds
from cli.output import output_option, print_json
from kinds import kubevirt


@click.command()
@click.option(
    "--kubevirt", "with_kubevirt", is_flag=True, help="Those of KubeVirt and CDI too, as the engine has them."
)
@output_option("yaml", "json")
def crds(with_kubevirt: bool, output: str) -> None:
    """Print the CustomResourceDefinitions of every kind of ours."""
    found = kinds.crds() + (kubevirt.crds() if with_kubevirt else [])
    if output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": found})
    else:
        click.echo(yaml.safe_dump_all(found, sort_keys=False, width=120), nl=False)
