"""Histories of migration policies, VMIs and namespaces whose labels change."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from controllers.migrationpolicy.controller import build as build_policy
from controllers.migrationpolicy.observe import POLICIES
from controllers.shared.component import Component, ControllerContext
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import NAMESPACES, UPSTREAM_POLICIES, VMIS
from tests.cluster.replicating import Place
from tests.histories.api_server import Change
from tests.histories.history import Act, History
from tests.histories.world import HERE, World

Json = dict[str, Any]

VMI_RESOURCE, POLICY_RESOURCE = "virtualmachineinstances.kubevirt.io", "migrationpolicies.kubevirt.io"
UPSTREAM_RESOURCE = "migrationpolicies.migrations.kubevirt.io"
KEYS, VALUES = ("size", "team", "zone"), ("a", "b")
STALE_SECONDS = 60.0
BANDWIDTHS = ("64Mi", "65536Ki", "67108864", 67108864, "0.0625Gi")
"""Spellings of one bandwidth."""
FOREIGN = "foreign"
"""A policy of KubeVirt that a user has created."""


def build(api: Api, events: EventRecorder, process: str) -> Component:
    return build_policy(ControllerContext(api=api, events=events))


class PolicyHistory(History):
    """A VMI is labelled with a policy that exists, and at rest with the one that designs/3 names."""

    build = staticmethod(build)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.place = Place(world.api("users"), HERE)
        self.made = 0
        self.gone: dict[str, float] = {}
        """The virtual time at which each policy was deleted, by name."""

    async def begin(self) -> None:
        await self.place.api.patch(NAMESPACES, None, HERE, {"metadata": {"labels": {"zone": "a"}}})
        await self.place.api.create(UPSTREAM_POLICIES, {"metadata": {"name": FOREIGN}, "spec": {"selectors": {}}})
        for _ in range(4):
            await self.create_vmi()
            with suppress(AlreadyExists):
                await self.create_policy()

    def saw(self, change: Change) -> list[str]:
        name, now = change.document["metadata"]["name"], asyncio.get_running_loop().time()
        if change.plural == POLICY_RESOURCE and change.new is None:
            self.gone[name] = now
        if not change.actor.startswith("controllers"):
            return []
        if change.plural == UPSTREAM_RESOURCE and name == FOREIGN:
            return ["the controller wrote a policy of KubeVirt that is not its own"]
        if change.plural == VMI_RESOURCE and change.new is not None:
            winner = labels_of(change.new).get(meta.MIGRATION_POLICY)
            exists = self.world.server.get(POLICY_RESOURCE, "", winner or "") is not None
            if winner and not exists and now - self.gone.get(winner, 0.0) > STALE_SECONDS:
                return [f"{name} was labelled with the policy {winner}, which does not exist"]
        return []

    async def act(self) -> str:
        acts: list[Act] = [
            self.create_policy,
            self.create_policy,
            self.change_policy,
            self.change_policy,
            self.delete_policy,
            self.create_vmi,
            self.relabel_vmi,
            self.relabel_vmi,
            self.delete_vmi,
            self.relabel_namespace,
            self.forge_label,
            self.damage_upstream,
            self.respell,
        ]
        return await self.world.random.choice(acts)()

    def script(self) -> list[Act]:
        return [self.change_policy, self.relabel_vmi, self.damage_upstream, self.forge_label, self.delete_policy]

    def _labels(self, values: tuple[str, ...] = VALUES) -> dict[str, str]:
        random = self.world.random
        return {key: random.choice(values) for key in KEYS if random.random() < 0.5}

    def _spec(self) -> Json:
        any_value = (*VALUES, "")
        selectors = {
            "virtualMachineInstanceSelector": {"matchLabels": self._labels(any_value)},
            "namespaceSelector": {"matchLabels": self._labels(any_value) if self.world.random.random() < 0.5 else {}},
        }
        bandwidth = {"bandwidthPerMigration": "64Mi"} if self.world.random.random() < 0.5 else {}
        return {"selectors": selectors, "allowAutoConverge": self.world.random.random() < 0.5, **bandwidth}

    async def create_policy(self) -> str:
        name = f"policy-{self.world.random.randint(1, 8)}"
        spec = self._spec()
        await self.place.api.create(
            POLICIES,
            {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind} | {"metadata": {"name": name}, "spec": spec},
        )
        return f"create {name} {spec}"

    async def change_policy(self) -> str:
        if not (name := self._any(POLICY_RESOURCE)):
            return ""
        spec = self._spec()
        found = await self.place.api.get(POLICIES, None, name)
        await self.place.api.replace(POLICIES, {**found, "spec": spec})
        return f"change {name} {spec}"

    async def respell(self) -> str:
        if not (name := self._any(POLICY_RESOURCE)):
            return ""
        found = await self.place.api.get(POLICIES, None, name)
        bandwidth = self.world.random.choice(BANDWIDTHS) if found["spec"].get("bandwidthPerMigration") else None
        await self.place.api.replace(POLICIES, {**found, "spec": {**found["spec"], "bandwidthPerMigration": bandwidth}})
        return f"respell {name}: {bandwidth}"

    async def delete_policy(self) -> str:
        if name := self._any(POLICY_RESOURCE):
            await self.place.api.delete(POLICIES, None, name)
        return f"delete {name}"

    async def create_vmi(self) -> str:
        self.made += 1
        await self.place.vmi(f"vmi-{self.made}", labels=self._labels())
        return f"VMI vmi-{self.made}"

    async def relabel_vmi(self) -> str:
        if not (name := self._any(VMI_RESOURCE)):
            return ""
        labels = dict.fromkeys(KEYS) | self._labels()
        await self.place.api.patch(VMIS, HERE, name, {"metadata": {"labels": labels}})
        return f"label {name} {labels}"

    async def delete_vmi(self) -> str:
        if name := self._any(VMI_RESOURCE):
            await self.place.api.delete(VMIS, HERE, name)
        return f"delete {name}"

    async def relabel_namespace(self) -> str:
        labels = dict.fromkeys(KEYS) | self._labels()
        await self.place.api.patch(NAMESPACES, None, HERE, {"metadata": {"labels": labels}})
        return f"label the namespace {labels}"

    async def forge_label(self) -> str:
        """Changes the label that names the policy, as everybody who may edit VMIs can."""
        if not (name := self._any(VMI_RESOURCE)):
            return ""
        forged = self.world.random.choice([None, "policy-1", "other"])
        await self.place.api.patch(VMIS, HERE, name, {"metadata": {"labels": {meta.MIGRATION_POLICY: forged}}})
        return f"forge {name} {forged}"

    async def damage_upstream(self) -> str:
        names = [name for name in self._names(UPSTREAM_RESOURCE) if name != FOREIGN]
        if not names:
            return ""
        name = self.world.random.choice(names)
        if self.world.random.random() < 0.5:
            await self.place.api.delete(UPSTREAM_POLICIES, None, name)
        else:
            await self.place.api.patch(UPSTREAM_POLICIES, None, name, {"spec": {"allowPostCopy": True}})
        return f"damage KubeVirt's policy {name}"

    def _names(self, resource: str) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.world.server.objects(resource))

    def _any(self, resource: str) -> str:
        names = self._names(resource)
        return self.world.random.choice(names) if names else ""

    async def make_peace(self) -> None: ...

    async def why_not_at_rest(self) -> str:
        server = self.world.server
        namespace = labels_of(server.get("namespaces", "", HERE) or {})
        policies = server.objects(POLICY_RESOURCE)
        for vmi in server.objects(VMI_RESOURCE):
            if (vmi.get("status") or {}).get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in vmi[
                "metadata"
            ]:
                continue
            expected, found = winner(policies, labels_of(vmi), namespace), labels_of(vmi).get(meta.MIGRATION_POLICY)
            if found != expected:
                return f"{vmi['metadata']['name']} is labelled with {found}, and {expected} wins"
        effective = {each["metadata"]["name"] for each in active(policies)}
        enforced = set(self._names(UPSTREAM_RESOURCE)) - {FOREIGN}
        if effective != enforced:
            return f"KubeVirt has the policies {sorted(enforced)}, and {sorted(effective)} are active"
        return ""


def labels_of(document: Json) -> dict[str, str]:
    return (document.get("metadata") or {}).get("labels") or {}


def selectors_of(policy: Json) -> tuple[dict[str, str], dict[str, str]]:
    found = policy["spec"]["selectors"]
    return found["virtualMachineInstanceSelector"]["matchLabels"], found["namespaceSelector"]["matchLabels"]


def active(policies: list[Json]) -> list[Json]:
    """Policies with a label, and of policies with the same labels the oldest."""
    found: dict[str, Json] = {}
    for each in sorted(policies, key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["name"])):
        if any(selectors_of(each)):
            found.setdefault(repr([sorted(part.items()) for part in selectors_of(each)]), each)
    return list(found.values())


def winner(policies: list[Json], vmi: dict[str, str], namespace: dict[str, str]) -> str | None:
    """The name of the policy that designs/3 names: the most labels, then the first keys. Of equal keys, more
    values win, then more VMI labels, then the first name."""

    def order(policy: Json) -> Any:
        of_vmi, of_namespace = selectors_of(policy)
        both = [*of_vmi.items(), *of_namespace.items()]
        exact = sum(value != "" for _, value in both)
        return -len(both), sorted(key for key, _ in both), -exact, -len(of_vmi), policy["metadata"]["name"]

    def holds(required: dict[str, str], labels: dict[str, str]) -> bool:
        return all(key in labels and value in ("", labels[key]) for key, value in required.items())

    matching = [
        each
        for each in active(policies)
        if holds(selectors_of(each)[0], vmi) and holds(selectors_of(each)[1], namespace)
    ]
    return min(matching, key=order)["metadata"]["name"] if matching else None
