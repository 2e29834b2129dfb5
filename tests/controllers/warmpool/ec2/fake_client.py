"""A fake EC2 that can be told to answer late, to lose answers and to refuse."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.ec2.tags import from_aws, to_aws
from controllers.warmpool.warm_vm import POOL_KIND, Owner
from poolhouse.runtime.errors import NotFound

Json = dict[str, Any]

POOL = Owner(POOL_KIND, "mac", "pool-uid")
TEMPLATE: Json = {"imageID": "ami-1", "instanceType": "m5.large", "subnets": ["subnet-a"], "port": 8200}


def order(name: str = "mac-1", **given: Any) -> CreateRequest:
    facts: Json = {
        "namespace": "ns",
        "name": name,
        "pool": "mac",
        "pool_uid": "pool-uid",
        "owner": POOL,
        "template": TEMPLATE,
        "template_hash": "v1.abc",
        "placement": {"name": "subnet-a"},
    }
    return CreateRequest(**{**facts, **given})


class FakeEC2Client:
    def __init__(self) -> None:
        self.instances: dict[str, Json] = {}
        self.tokens: dict[str, str] = {}
        self.wanted: list[Json] = []
        self.stale: list[Json] | None = None
        """answered instead of the instances"""
        self.refuses: Exception | None = None
        self.loses: Exception | None = None
        """raised after the call was done"""
        self.signed = 0
        self.unknown: set[str] = set()
        """IDs of instances that calls do not find yet"""

    async def run(self, wanted: Json) -> Json:
        self._refuse()
        self.wanted.append(wanted)
        known = self.tokens.setdefault(wanted["ClientToken"], f"i-{len(self.instances)}")
        if known not in self.instances:
            self.instances[known] = {
                "InstanceId": known,
                "State": {"Name": "running"},
                "Tags": wanted["TagSpecifications"][0]["Tags"],
                "PrivateIpAddress": "127.0.0.1",
                "LaunchTime": "2026-11-21T12:00:00Z",
            }
        self._lose()
        return copy.deepcopy(self.instances[known])

    async def describe(self, filters: Mapping[str, Iterable[str]]) -> list[Json]:
        self._refuse()
        there = self.stale if self.stale is not None else list(self.instances.values())
        return [copy.deepcopy(each) for each in there if all(_has(each, k, list(v)) for k, v in filters.items())]

    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        self._refuse()
        self._find(instance_id)
        self.instances[instance_id]["Tags"] = to_aws({**from_aws(self.instances[instance_id]), **tags})
        self._lose()

    async def terminate(self, instance_id: str) -> None:
        self._refuse()
        self._find(instance_id)
        self.instances[instance_id]["State"] = {"Name": "shutting-down"}
        self._lose()

    async def download_url(self, bucket: str, key: str) -> str:
        self._refuse()
        self.signed += 1
        return f"https://{bucket}.example/{key}?signature={self.signed}"

    @property
    def ended(self) -> bool:
        return any(each["State"]["Name"] == "shutting-down" for each in self.instances.values())

    def _find(self, instance_id: str) -> None:
        if instance_id not in self.instances or instance_id in self.unknown:
            raise NotFound(f"the instance ID {instance_id} does not exist")

    def _refuse(self) -> None:
        if self.refuses is not None:
            raise self.refuses

    def _lose(self) -> None:
        if self.loses is not None:
            raise self.loses


def _has(instance: Json, name: str, values: list[str]) -> bool:
    if name == "instance-id":
        return instance["InstanceId"] in values
    if name == "instance-state-name":
        return instance["State"]["Name"] in values
    return from_aws(instance).get(name.removeprefix("tag:")) in values
