"""`poolhouse cluster-autoscaler-provider`: serves the pools of a namespace as node groups until SIGTERM or Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.cli.cluster import Cluster, cluster_options
from poolhouse.cli.output import Failed, install_extra, output_option, print_result
from poolhouse.runtime.credentials import is_loopback
from poolhouse.service import logs

if TYPE_CHECKING:
    from poolhouse.nodegroups.server import TLSFiles
    from poolhouse.runtime.api import Api

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Address(click.ParamType[tuple[str, int]]):
    name = "HOST:PORT"

    def convert(self, value: object, param: click.Parameter | None, context: click.Context | None) -> tuple[str, int]:
        host, _, port = str(value).rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, such as 127.0.0.1:8086 or [::1]:8086", param, context)
        return host, int(port)


@click.command("cluster-autoscaler-provider")
@click.option("--listen", type=Address(), default="127.0.0.1:8086", show_default=True, help="Address to serve.")
@click.option("--tls-cert", type=FILE, help="The server's certificate. Needed, with the next two, beyond loopback.")
@click.option("--tls-key", type=FILE, help="The key of this certificate.")
@click.option("--client-ca", type=FILE, help="The authorities that sign the autoscaler's certificate.")
@click.option("--selector", "-l", metavar="SELECTOR", help="Label selector of the pools. Default: all pools.")
@output_option("text")
@cluster_options
def provider(
    cluster: Cluster,
    listen: tuple[str, int],
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    selector: str | None,
    output: str,
) -> None:
    """Serve the pools of a namespace to the Kubernetes cluster-autoscaler as node groups.

    For a Kubernetes cluster whose nodes are the VMs of pools. Run the autoscaler with --cloud-provider=externalgrpc. A
    pool is a node group if it has the annotations poolhouse.dev/node-group-min-size and
    poolhouse.dev/node-group-max-size.
    """
    files = (tls_cert, tls_key, client_ca)
    if any(files) and not all(files):
        raise click.UsageError("give --tls-cert, --tls-key and --client-ca together")
    try:
        from poolhouse.nodegroups.server import TLSFiles
    except ModuleNotFoundError as missing:
        raise Failed(f"{missing.name} is not installed; {install_extra('cli,autoscaler')}") from None
    tls = TLSFiles(tls_cert, tls_key, client_ca) if tls_cert and tls_key and client_ca else None
    if tls is None and not is_loopback(listen[0]):
        raise click.UsageError(
            f"--listen {listen[0]} is not loopback, where anybody could delete nodes: "
            "give --tls-cert, --tls-key and --client-ca"
        )
    logs.configure("cluster-autoscaler-provider")
    cluster.run(lambda api: _serve(api, cluster.namespace, selector, listen, tls, output))


async def _serve(
    api: Api, namespace: str, selector: str | None, listen: tuple[str, int], tls: TLSFiles | None, output: str
) -> None:
    from poolhouse.nodegroups.cluster import Cluster as Pools
    from poolhouse.nodegroups.server import serve

    pools = Pools(api, namespace, selector)
    groups = await pools.groups()
    host, port = listen

    def started(bound: int) -> None:
        count = count_noun(len(groups.by_name), "node group")
        where = f"{host}:{bound}"
        print_result(output, f"{count} of namespace {namespace} on {where}", address=where, groups=[*groups.by_name])

    try:
        await serve(pools, host, port, tls, started)
    except OSError as error:
        raise Failed(f"cannot listen on {host}:{port}: {error}") from None
