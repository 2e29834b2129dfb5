"""A stand-in for EC2, at which the real client is pointed.

Its network is 127.0.0.0/16, so that what listens on this machine answers at the address of every instance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from urllib.request import Request, urlopen

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer

from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.ec2.tags import NAMESPACE

Json = dict[str, Any]

REGION = "us-east-1"
PERIOD_SECONDS = 0.3


@dataclass
class Ec2:
    endpoint: str
    client: Any
    subnets: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    """of our own: to list those of Amazon takes the stand-in seconds"""
    namespace: str = ""
    """Whose instances are looked at. Who was cut off while asking for one may still get it, in the next test."""

    @property
    def settings(self) -> EC2Settings:
        return EC2Settings(region=REGION, endpoint=self.endpoint, period_seconds=PERIOD_SECONDS)

    def instances(self, *states: str, **tags: str) -> list[Json]:
        """With their tags as a dict, in `Tags`."""
        wanted = [{"Name": "instance-state-name", "Values": list(states or ("pending", "running"))}]
        if self.namespace:
            wanted.append({"Name": f"tag:{NAMESPACE}", "Values": [self.namespace]})
        wanted += [{"Name": f"tag:{key.replace('__', '/')}", "Values": [value]} for key, value in tags.items()]
        found = self.client.describe_instances(Filters=wanted)["Reservations"]
        each = [instance for group in found for instance in group["Instances"]]
        return [{**i, "Tags": {tag["Key"]: tag["Value"] for tag in i.get("Tags", ())}} for i in each]

    def ids(self, *states: str, **tags: str) -> set[str]:
        return {each["InstanceId"] for each in self.instances(*states, **tags)}

    def states(self, pool: str) -> list[str]:
        """What the document's tag says, of those that live."""
        return sorted(each["Tags"]["WarmPool"] for each in self.instances(**{"poolhouse.dev__warm-pool": pool}))


@contextmanager
def ec2() -> Iterator[Ec2]:
    # It answers many at once, and fails with 500 when one writes tags while another looks through them.
    application, turn = DomainDispatcherApplication.__call__, Lock()

    def in_turn(*given: Any) -> Any:
        with turn:
            return application(*given)

    DomainDispatcherApplication.__call__ = in_turn
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        endpoint = f"http://127.0.0.1:{port}"
        # Its state is that of the process, so that another module of tests may have left some.
        urlopen(Request(f"{endpoint}/moto-api/reset", method="POST"), timeout=30).close()
        client = boto3.client("ec2", region_name=REGION, endpoint_url=endpoint)
        found = Ec2(endpoint, client)
        network = client.create_vpc(CidrBlock="127.0.0.0/16")["Vpc"]["VpcId"]
        for number in (1, 2, 3):
            made = client.create_subnet(VpcId=network, CidrBlock=f"127.0.{number}.0/24")
            found.subnets.append(made["Subnet"]["SubnetId"])
        for name in ("MyPreprovisionedKeypair", "MyOtherKeypair"):
            client.create_key_pair(KeyName=name, KeyType="ed25519")
            found.images.append(client.register_image(Name=name)["ImageId"])
        yield found
    finally:
        server.stop()
        DomainDispatcherApplication.__call__ = application
