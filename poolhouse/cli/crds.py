"""`poolhouse crds`: the CustomResourceDefinitions of Poolhouse."""

from typing import Any

import click
import yaml

from poolhouse.api.kinds import KINDS, kubevirt
from poolhouse.api.kinds.kind import Kind
from poolhouse.cli.manifests import as_list
from poolhouse.cli.output import echo_block, output_option, print_json
from poolhouse.manifests.crd import crd
from poolhouse.manifests.crd import crds as render


@click.command()
@click.option(
    "--kubevirt", "with_kubevirt", is_flag=True, help="Print also those of KubeVirt and CDI that the engine uses."
)
@click.option("--beside-kubevirt", is_flag=True, help="Leave out those that KubeVirt installs under the same name.")
@output_option("yaml", "json")
def crds(with_kubevirt: bool, beside_kubevirt: bool, output: str) -> None:
    """Print the CustomResourceDefinitions of Poolhouse.

    A comment in the YAML marks kinds that KubeVirt has as well. Leave these out on a cluster with KubeVirt.
    """
    if with_kubevirt and beside_kubevirt:
        raise click.UsageError("--kubevirt is for a cluster without KubeVirt, --beside-kubevirt for one with it")
    ours = [kind for kind in KINDS if not (beside_kubevirt and kind.yields_to_kubevirt)]
    theirs = render(kubevirt.KUBEVIRT_KINDS) if with_kubevirt else []
    if output == "json":
        print_json(as_list([*render(ours), *theirs]))
        return
    pages = [*map(_page, ours), *map(_yaml, theirs)]
    echo_block("---\n".join(pages), nl=False)


def _page(kind: Kind) -> str:
    return (f"# {kind.notes}\n" if kind.yields_to_kubevirt else "") + _yaml(crd(kind))


def _yaml(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=120)
