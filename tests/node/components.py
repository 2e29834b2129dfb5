"""The processes of a cluster: their commands, when they are ready, and the order of their starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from poolhouse.stack.binaries import Programs
from poolhouse.stack.components import Component, FileProbe, HttpProbe
from poolhouse.stack.control_plane import etcd, request_header_flags
from tests.node.layout import APISERVER_PORT, LAN, SERVICES, Layout, Node

HERE = Path(__file__).parent


def components(layout: Layout, control_plane: Programs, programs: Path) -> Iterator[Component]:
    yield _lan(layout)
    yield etcd(control_plane, layout.paths)
    yield _apiserver(layout, control_plane)
    yield _manager(layout, control_plane)
    yield _scheduler(layout, programs)
    for node in layout.nodes:
        yield _node(layout, node)
        yield _containerd(layout, node)
        yield _kubelet(layout, node, programs)
        yield _proxy(layout, node, programs)
    yield Component(
        "network-policies",
        (sys.executable, "-P", "-m", "tests.node.network_policies", str(layout.paths.dir)),
        env={"PYTHONPATH": str(HERE.parent.parent)},
        after=("kube-apiserver", *(node.name for node in layout.nodes)),
    )


def _lan(layout: Layout) -> Component:
    # A Service's address becomes that of a pod on a node.
    routes = [f"{SERVICES}={layout.nodes[0].address}", *_pod_routes(layout.nodes)]
    record = layout.pid_file(LAN)
    addresses = layout.link, layout.control_plane, layout.machine
    return Component(
        LAN,
        ("unshare", "--net", "sh", str(HERE / "lan.sh"), str(record), *addresses, *routes),
        ready=FileProbe(record),
        ready_seconds=30,
    )


def _pod_routes(nodes: tuple[Node, ...]) -> list[str]:
    return [f"{node.pods}={node.address}" for node in nodes]


def _apiserver(layout: Layout, programs: Programs) -> Component:
    tls, paths = layout.tls, layout.paths
    return Component(
        "kube-apiserver",
        (
            *layout.inside(LAN),
            programs.command("kube-apiserver"),
            f"--etcd-servers=unix://{paths.runtime}/etcd/client:1",
            f"--bind-address={layout.control_plane}",
            f"--advertise-address={layout.control_plane}",
            f"--secure-port={APISERVER_PORT}",
            f"--cert-dir={tls}",
            f"--tls-cert-file={tls}/apiserver.crt",
            f"--tls-private-key-file={tls}/apiserver.key",
            f"--client-ca-file={tls}/ca.crt",
            f"--token-auth-file={paths.tokens}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={tls}/accounts.key",
            f"--service-account-signing-key-file={tls}/accounts.key",
            f"--service-cluster-ip-range={SERVICES}",
            f"--kubelet-client-certificate={tls}/kubelet-client.crt",
            f"--kubelet-client-key={tls}/kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP",
            *request_header_flags(tls),
        ),
        ready=HttpProbe(f"{layout.server}/readyz", paths.ca),
        after=("etcd", LAN),
        stop_seconds=5,
    )


def _manager(layout: Layout, programs: Programs) -> Component:
    return Component(
        "kube-controller-manager",
        (
            *layout.inside(LAN),
            programs.command("kube-controller-manager"),
            *_manager_flags(layout, "kube-controller-manager"),
            f"--root-ca-file={layout.tls}/ca.crt",
            f"--cluster-signing-cert-file={layout.tls}/ca.crt",
            f"--cluster-signing-key-file={layout.tls}/ca.key",
            f"--service-account-private-key-file={layout.tls}/accounts.key",
            "--use-service-account-credentials=true",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        ),
        ready=HttpProbe(f"https://{layout.control_plane}:10257/healthz", layout.paths.ca),
        after=("kube-apiserver",),
    )


def _scheduler(layout: Layout, programs: Path) -> Component:
    flags = _manager_flags(layout, "kube-scheduler")
    return Component(
        "kube-scheduler",
        (*layout.inside(LAN), str(programs / "kube-scheduler"), *flags),
        ready=HttpProbe(f"https://{layout.control_plane}:10259/healthz", layout.paths.ca),
        after=("kube-apiserver",),
    )


def _manager_flags(layout: Layout, name: str) -> tuple[str, ...]:
    return (
        f"--kubeconfig={layout.paths.kubeconfig_of(name)}",
        f"--bind-address={layout.control_plane}",
        f"--tls-cert-file={layout.tls}/apiserver.crt",
        f"--tls-private-key-file={layout.tls}/apiserver.key",
        "--leader-elect=false",
    )


def _node(layout: Layout, node: Node) -> Component:
    directory = layout.directory(node.name)
    others = tuple(other for other in layout.nodes if other != node)
    return Component(
        node.name,
        (
            *("sh", str(HERE / "node.sh"), node.name, str(directory), layout.cgroup(node.name)),
            *(str(layout.pid_file(node.name)), str(layout.pid_file(LAN)), node.address, layout.control_plane),
            *_pod_routes(others),
        ),
        ready=FileProbe(layout.is_up(node.name)),
        after=(LAN,),
        ready_seconds=30,
    )


def _containerd(layout: Layout, node: Node) -> Component:
    directory = layout.directory(node.name)
    return Component(
        f"containerd-{node.name}",
        (*layout.inside(node.name), "containerd", f"--config={directory}/containerd.toml"),
        ready=FileProbe(directory / "run" / "containerd" / "containerd.sock"),
        after=(node.name,),
    )


def _kubelet(layout: Layout, node: Node, programs: Path) -> Component:
    return Component(
        f"kubelet-{node.name}",
        (
            *layout.inside(node.name),
            str(programs / "kubelet"),
            f"--config={layout.directory(node.name)}/kubelet.yaml",
            f"--kubeconfig={layout.paths.kubeconfig_of(node.name)}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            "--v=2",
        ),
        ready=HttpProbe(f"http://{node.address}:10248/healthz"),
        after=(f"containerd-{node.name}", "kube-apiserver"),
    )


def _proxy(layout: Layout, node: Node, programs: Path) -> Component:
    config = layout.directory(node.name) / "proxy.yaml"
    return Component(
        f"kube-proxy-{node.name}",
        (*layout.inside(node.name), str(programs / "kube-proxy"), f"--config={config}"),
        ready=HttpProbe(f"http://{node.address}:10256/livez"),
        after=(f"kubelet-{node.name}",),
    )
