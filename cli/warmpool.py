"""`poolhouse warmpool`: warm pools from the Virtual Kubelet's configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import click
import yaml

from cli.manifests import as_list, print_manifests
from cli.output import Failed, output_option, print_json
from cli.warmpool_status import doctor, status

if TYPE_CHECKING:
    from cli.virtual_kubelet import Target

Json = dict[str, Any]


@click.group()
def warmpool() -> None:
    """Look after warm pools."""


warmpool.add_command(status)
warmpool.add_command(doctor)


@warmpool.command("import")
@click.argument("source", metavar="CONFIG", type=click.File("rb"))
@click.option("--to", type=click.Choice(["ec2", "vm"]), default="ec2", show_default=True, help="What machines are.")
@click.option("-n", "--namespace", default="", help="Namespace to write into the manifests.")
@click.option("--name-prefix", default="warmpool", show_default=True, help="Pools are called PREFIX-1, PREFIX-2, ...")
@click.option(
    "--management-subnet", default="", metavar="SUBNET", help="For pools without Subnets, if CONFIG has none."
)
@click.option("--iam-instance-profile", default="", metavar="NAME", help="For pools without IamInstanceProfile.")
@output_option("yaml", "json")
def import_(
    source: Any,
    to: str,
    namespace: str,
    name_prefix: str,
    management_subnet: str,
    iam_instance_profile: str,
    output: str,
) -> None:
    """Print the warm pools that the WarmPoolConfig of CONFIG stands for; nothing is created.

    CONFIG is a config.json of the AWS Virtual Kubelet, a ConfigMap that holds one, its WarmPoolConfig alone, or - for
    standard input. What it leaves out or contradicts is told at the end, all of it.
    """
    from cli.virtual_kubelet import ImportOptions, import_config

    terms = ImportOptions(cast("Target", to), namespace, name_prefix, management_subnet, iam_instance_profile)
    found = import_config(_config(source.read(), getattr(source, "name", "standard input")), terms)
    if not found.problems:
        if output == "json":
            print_json(as_list(found.manifests))
        else:
            print_manifests(output, found.manifests)
    for remark in found.remarks:
        click.echo(f"note: {remark}", err=True)
    if found.problems:
        raise Failed("\n".join(map(str, found.problems)))


def _config(content: bytes, name: str) -> Any:
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise Failed(f"{name}: is not text in UTF-8: {error}") from None
    loaded = _loaded(text, name)
    if isinstance(loaded, dict) and loaded.get("kind") == "ConfigMap":
        data = loaded.get("data")
        held = [each for each in (data if isinstance(data, dict) else {}).values() if "WarmPoolConfig" in str(each)]
        if len(held) != 1:
            raise Failed(f"{name}: the ConfigMap must have one entry with a WarmPoolConfig, not {len(held)}")
        loaded = _loaded(str(held[0]).strip(), name)
    return {"WarmPoolConfig": loaded} if isinstance(loaded, list) else loaded


def _loaded(text: str, name: str) -> Any:
    """JSON, also a fragment of an object as documents show it, or YAML."""
    if text.startswith('"'):
        text = f"{{{text.rstrip(',')}}}"
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        if text.startswith(("{", "[")):
            raise Failed(f"{name}: no JSON: {error}") from None
    except ValueError as error:
        raise Failed(f"{name}: {error}") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Failed(f"{name}: neither JSON nor YAML: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> Json:
    names = [key for key, _ in pairs]
    twice = sorted({key for key in names if names.count(key) > 1})
    if twice:
        raise ValueError(f"given twice in one object: {', '.join(twice)}")
    return dict(pairs)
