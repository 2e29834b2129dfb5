"""NetworkPolicies as nftables rules, by tables; and loaded into the kernel, if this machine allows it."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest

from tests.node import machine
from tests.node.network_policies import Pod, ruleset

Json = dict[str, Any]

WEB = Pod("shop", "10.1.1.2", {"app": "web"}, {("TCP", "https"): 8443})
DB = Pod("shop", "10.1.2.3", {"app": "db"})
LAUNCHER = Pod("vms", "10.1.2.4", {"kubevirt.io": "virt-launcher"}, {("TCP", "https"): 443})
NAMESPACES = {"shop": {"team": "a"}, "vms": {"team": "b"}}


def policy(**spec: Any) -> Json:
    return {"metadata": {"namespace": "shop"}, "spec": {"podSelector": {"matchLabels": {"app": "web"}}, **spec}}


def chain(rules: str, name: str) -> list[str] | None:
    """The rules of a chain; None if packets of that pod are not filtered."""
    found = re.search(rf"  chain {name} \{{\n(.*?)  \}}\n", rules, re.DOTALL)
    return [line.strip() for line in found[1].splitlines()] if found else None


TO_WEB, FROM_WEB = "to-10.1.1.2", "from-10.1.1.2"
WEB_ONLY = {"podSelector": {"matchLabels": {"app": "db"}}}
ANYWHERE: Json = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"kubevirt.io": "virt-launcher"}}}


@pytest.mark.parametrize(
    ("spec", "to_web", "from_web"),
    [
        pytest.param({}, ["drop"], None, id="a policy without rules isolates for ingress"),
        pytest.param({"policyTypes": ["Egress"]}, None, ["drop"], id="only the named direction is isolated"),
        pytest.param({"ingress": [{}]}, ["return", "drop"], None, id="an empty rule allows everything"),
        pytest.param({"egress": [{}]}, ["drop"], ["return", "drop"], id="egress rules isolate both directions"),
        pytest.param(
            {"ingress": [{"from": [WEB_ONLY]}]},
            ["ip saddr { 10.1.2.3 } return", "drop"],
            None,
            id="a pod selector selects in the policy's namespace",
        ),
        pytest.param(
            {"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}]},
            ["ip saddr { 10.1.2.4 } return", "drop"],
            None,
            id="a namespace selector selects all pods of its namespaces",
        ),
        pytest.param(
            {"ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "none"}}}]}]},
            ["drop"],
            None,
            id="peers that do not exist allow nothing",
        ),
        pytest.param(
            {"ingress": [{"ports": [{"port": 53, "protocol": "UDP"}, {"port": 80, "endPort": 90}]}]},
            ["udp dport 53 return", "tcp dport 80-90 return", "drop"],
            None,
            id="ports have a protocol and may be a range",
        ),
        pytest.param(
            {"ingress": [{"ports": [{"port": "https"}]}]},
            ["tcp dport 8443 return", "drop"],
            None,
            id="a named port of ingress is the pod's own",
        ),
        pytest.param(
            {"policyTypes": ["Egress"], "egress": [{"to": [ANYWHERE], "ports": [{"port": "https"}]}]},
            None,
            ["ip daddr 10.1.2.4 tcp dport 443 return", "drop"],
            id="a named port of egress is the peer's",
        ),
        pytest.param(
            {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.2.0.0/16"]}}]}]},
            ["ip saddr 10.0.0.0/8 ip saddr != 10.2.0.0/16 return", "drop"],
            None,
            id="a block may have exceptions",
        ),
    ],
)
def test_policies_become_rules(spec: Json, to_web: list[str] | None, from_web: list[str] | None) -> None:
    rules = ruleset([policy(**spec)], [WEB, DB, LAUNCHER], NAMESPACES)
    assert (chain(rules, TO_WEB), chain(rules, FROM_WEB)) == (to_web, from_web)
    assert chain(rules, "to-10.1.2.3") is None, "pods that no policy selects are not filtered"


def test_policies_of_a_pod_add_up() -> None:
    both = [policy(ingress=[{"ports": [{"port": 1}]}]), policy(ingress=[{"ports": [{"port": 2}]}])]
    assert chain(ruleset(both, [WEB], NAMESPACES), TO_WEB) == ["tcp dport 1 return", "tcp dport 2 return", "drop"]


@pytest.mark.parametrize(
    ("status", "spec"),
    [({}, {}), ({"podIP": "10.1.1.9", "phase": "Succeeded"}, {}), ({"podIP": "10.1.1.9"}, {"hostNetwork": True})],
    ids=["no address yet", "ended", "on the node's network"],
)
def test_pods_without_an_address_of_their_own_are_left_out(status: Json, spec: Json) -> None:
    assert Pod.of({"metadata": {"namespace": "a"}, "spec": {"containers": [], **spec}, "status": status}) is None


@pytest.mark.skipif(not shutil.which("nft"), reason="nftables is missing")
@pytest.mark.skipif(bool(machine.why_not()), reason="a network namespace needs root")
def test_the_kernel_accepts_the_rules_and_replaces_them() -> None:
    specs = [{}, {"egress": [{"to": [ANYWHERE], "ports": [{"port": 1}]}]}]
    scripts = [ruleset([policy(**spec)], [WEB, DB, LAUNCHER], NAMESPACES) for spec in specs]
    load = 'for rules; do echo "$rules" | nft --file -; done; nft list ruleset'
    done = subprocess.run(
        ["unshare", "--net", "sh", "-ec", load, "sh", *scripts], capture_output=True, text=True, timeout=30, check=True
    )
    assert "ip daddr 10.1.2.4 tcp dport 1 return" in done.stdout
