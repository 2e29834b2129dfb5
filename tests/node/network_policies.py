"""Enforces NetworkPolicies: turns them into nftables rules of the nodes.

No network plugin with this task is packaged. `ruleset` is the whole translation; the rest of the module watches the
cluster and loads the rules into each node's network. The rules filter what a node gets from pods or forwards to
them, after the translation of Service addresses. As on every cluster, a node may connect to its own pods (probes).

    python -m tests.node.network_policies DIRECTORY-OF-THE-CLUSTER
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poolhouse.api.apimachinery.label_selectors import matches
from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import NAMESPACES, PODS, Resource
from tests.node.layout import Layout, load_layout

Json = Mapping[str, Any]

TABLE = "network_policies"
POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
LOAD_SECONDS = 20


@dataclass(frozen=True)
class Pod:
    namespace: str
    address: str
    labels: Json = field(default_factory=dict)
    ports: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """port numbers by protocol and name"""

    @classmethod
    def of(cls, document: Json) -> Pod | None:
        """None for a pod that has no address of its own, or has ended."""
        status, spec = document.get("status") or {}, document["spec"]
        if not status.get("podIP") or spec.get("hostNetwork") or status.get("phase") in ("Succeeded", "Failed"):
            return None
        ports = {
            (port.get("protocol", "TCP"), port["name"]): port["containerPort"]
            for container in spec["containers"]
            for port in container.get("ports") or ()
            if "name" in port
        }
        metadata = document["metadata"]
        return cls(metadata["namespace"], status["podIP"], metadata.get("labels") or {}, ports)


def ruleset(policies: Iterable[Json], pods: Sequence[Pod], namespaces: Mapping[str, Json]) -> str:
    """Returns the nftables script that replaces the table. `namespaces` has the labels of each namespace."""
    policies = list(policies)
    chains: list[str] = []
    jumps: dict[str, list[str]] = {"Ingress": [], "Egress": []}
    for direction, prefix in (("Egress", "from"), ("Ingress", "to")):
        for pod in pods:
            selecting = [each for each in policies if _selects(each, pod) and direction in _directions(each)]
            if not selecting:
                continue
            rules = [rule for each in selecting for rule in _rules(each, direction, pod, pods, namespaces)]
            chain = f"{prefix}-{pod.address}"
            chains.append(
                f"  chain {chain} {{\n" + "".join(f"    {rule} return\n" for rule in rules) + "    drop\n  }\n"
            )
            jumps[direction].append(f"{pod.address} : jump {chain}")
    # A pod's packets to its own node are not forwarded.
    for hook, filtered in (("forward", {"Egress": "saddr", "Ingress": "daddr"}), ("input", {"Egress": "saddr"})):
        body = f"    type filter hook {hook} priority filter - 1; policy accept;\n"
        body += "    ct state established,related accept\n"
        for direction, address in filtered.items():
            if jumps[direction]:
                body += f"    ip {address} vmap {{ {', '.join(jumps[direction])} }}\n"
        # Chains are declared before those that jump to them.
        chains.append(f"  chain {hook} {{\n{body}  }}\n")
    return f"table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{''.join(chains)}}}\n"


def _selects(policy: Json, pod: Pod) -> bool:
    return policy["metadata"]["namespace"] == pod.namespace and matches(policy["spec"]["podSelector"], pod.labels)


def _directions(policy: Json) -> Sequence[str]:
    spec = policy["spec"]
    return spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _rules(
    policy: Json, direction: str, pod: Pod, pods: Sequence[Pod], namespaces: Mapping[str, Json]
) -> Iterator[str]:
    """The matches of what the policy allows to or from the pod. An empty match is everything."""
    peers_field, address = ("from", "saddr") if direction == "Ingress" else ("to", "daddr")
    for rule in policy["spec"].get(direction.lower()) or ():
        peers = rule.get(peers_field)
        if not peers:
            yield from _ports(rule, [pod] if direction == "Ingress" else pods, "")
            continue
        for peer in peers:
            if block := peer.get("ipBlock"):
                excluded = "".join(f"ip {address} != {each} " for each in block.get("except") or ())
                yield from _ports(rule, [pod], f"ip {address} {block['cidr']} {excluded}")
                continue
            chosen = [each for each in pods if _is_peer(peer, policy["metadata"]["namespace"], each, namespaces)]
            if direction == "Ingress" and chosen:
                yield from _ports(rule, [pod], f"ip {address} {{ {', '.join(each.address for each in chosen)} }} ")
            elif direction == "Egress":
                for each in chosen:
                    yield from _ports(rule, [each], f"ip {address} {each.address} ")


def _is_peer(peer: Json, namespace: str, pod: Pod, namespaces: Mapping[str, Json]) -> bool:
    if "namespaceSelector" in peer:
        in_namespace = matches(peer["namespaceSelector"], namespaces.get(pod.namespace, {}))
    else:
        in_namespace = pod.namespace == namespace
    return in_namespace and matches(peer.get("podSelector", {}), pod.labels)


def _ports(rule: Json, targets: Sequence[Pod], match: str) -> Iterator[str]:
    """Restricts a match to the ports of the rule. Named ports are those of the targets."""
    if not rule.get("ports"):
        yield match.strip()
        return
    for port in rule["ports"]:
        protocol = port.get("protocol", "TCP")
        number = port.get("port")
        if number is None:
            yield f"{match}meta l4proto {protocol.lower()}"
        elif isinstance(number, str):
            named = sorted({target.ports[protocol, number] for target in targets if (protocol, number) in target.ports})
            yield from (f"{match}{protocol.lower()} dport {found}" for found in named)
        else:
            end = f"-{port['endPort']}" if "endPort" in port else ""
            yield f"{match}{protocol.lower()} dport {number}{end}"


async def enforce(layout: Layout) -> None:
    """Loads the rules into the nodes after each change, until cancelled."""
    async with await Api.connect(layout.paths.kubeconfig, user_agent="network-policies") as api:
        policies: Informer[Json] = Informer(api, POLICIES, lambda document: document)
        pods: Informer[Pod | None] = Informer(api, PODS, Pod.of)
        namespaces: Informer[Json] = Informer(api, NAMESPACES, lambda document: document["metadata"])
        changed = asyncio.Event()
        informers: list[Informer[Any]] = [policies, pods, namespaces]
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run())
                informer.subscribe(lambda old, new: changed.set())
            for informer in informers:
                await informer.synced()
            loaded = ""
            while True:
                wanted = ruleset(
                    policies.store.all(),
                    sorted(filter(None, pods.store.all()), key=lambda pod: pod.address),
                    {each["name"]: each.get("labels") or {} for each in namespaces.store.all()},
                )
                if wanted != loaded:
                    for node in layout.nodes:
                        await asyncio.to_thread(_load, layout.inside(node.name), wanted)
                    loaded = wanted
                await changed.wait()
                changed.clear()


def _load(prefix: Sequence[str], rules: str) -> None:
    subprocess.run([*prefix, "nft", "--file", "-"], input=rules, text=True, timeout=LOAD_SECONDS, check=True)


if __name__ == "__main__":
    asyncio.run(enforce(load_layout(Path(sys.argv[1]))))
