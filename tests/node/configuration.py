"""Writes the files that the programs of a cluster read: certificates, kubeconfigs and the nodes' configuration."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from poolhouse.service.certificates import new_client_certificate
from poolhouse.stack import identities
from poolhouse.stack.certificates import CLUSTER_LIFE, prepare_cluster_certificates, store_pair
from poolhouse.stack.identities import User
from tests.node.layout import DNS, PODS, Layout, Node

KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""The API server's user for kubelets. addons.yaml gives it its rights."""
PAUSE = "localhost/pause:1"
ACCOUNTS = {name: User(f"system:{name}", ()) for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy")}
"""Users whose rights the API server itself creates."""


def write_configuration(layout: Layout) -> None:
    _write_credentials(layout)
    for node in layout.nodes:
        directory = layout.directory(node.name)
        (directory / "cni").mkdir(parents=True, exist_ok=True)
        # Without name servers, the kubelet gives pods only the cluster DNS.
        (directory / "resolv.conf").write_text("")
        (directory / "containerd.toml").write_text(CONTAINERD.format(pause=PAUSE, networks=directory / "cni"))
        (directory / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(layout, node, directory)))
        (directory / "proxy.yaml").write_text(yaml.safe_dump(_proxy(layout, node)))
        (directory / "cni" / "10-pods.conflist").write_text(json.dumps(_network(node), indent=2))


def _write_credentials(layout: Layout) -> None:
    now = datetime.now(UTC)
    ca = prepare_cluster_certificates(layout.tls, now, (layout.control_plane, "kubernetes.default.svc.cluster.local"))
    layout.paths.ca.write_bytes(ca.certificate)
    if not (layout.tls / "kubelet-client.crt").exists():
        store_pair(new_client_certificate(ca, KUBELET_CLIENT, now, CLUSTER_LIFE), layout.tls, "kubelet-client")
    users = ACCOUNTS | {node.name: User(f"system:node:{node.name}", ("system:nodes",)) for node in layout.nodes}
    tokens = identities.load_tokens([identities.ADMIN, *users.values()], layout.paths.tokens)
    files = {layout.paths.kubeconfig_of(name): user for name, user in users.items()}
    for path, user in {**files, layout.paths.kubeconfig: identities.ADMIN}.items():
        identities.write_kubeconfig(
            path, server=layout.server, ca=layout.paths.ca, user=user.name, token=tokens[user.name]
        )


CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  disable_hugetlb_controller = true
  # A machine without CAP_SYS_RESOURCE cannot lower the score.
  restrict_oom_score_adj = true
  # CoreDNS listens on port 53 without root, as with the defaults of newer releases.
  enable_unprivileged_ports = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{networks}"
"""


def _kubelet(layout: Layout, node: Node, directory: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{layout.tls}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "healthzBindAddress": node.address,
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [DNS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "resolvConf": f"{directory}/resolv.conf",
        "volumePluginDir": "/var/lib/kubelet/plugins",
        # The machine's disk may be fuller than a node's disk would be.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "enforceNodeAllocatable": [],
    }


def _proxy(layout: Layout, node: Node) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(layout.paths.kubeconfig_of("kube-proxy"))},
        "hostnameOverride": node.name,
        "healthzBindAddress": f"{node.address}:10256",
        "mode": "iptables",
        "clusterCIDR": PODS,
        # These limits belong to the machine.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def _network(node: Node) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": node.pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}
