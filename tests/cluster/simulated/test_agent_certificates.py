"""Poolhouse's certificates of agents on the API server: Secrets with the controllers' own rights."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from controllers.warmpool.agent_authority import AgentAuthority, parse_authorities
from controllers.warmpool.agent_certificates import secret
from poolhouse.api.kinds import meta
from poolhouse.manifests import agent_certificates, rbac
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden
from poolhouse.runtime.resource import NAMESPACES, SECRETS, VMS
from poolhouse.service.certificates import KeyPair
from poolhouse.stack.install import apply
from tests.cluster.claiming import Counter
from tests.cluster.simulated.test_applications import with_network
from tests.cluster.warm_pools import controllers
from tests.controllers.warmpool.builders import a_vm
from tests.waiting import eventually

Json = dict[str, Any]


async def test_each_vm_has_a_secret_with_its_own_certificate(ours: Path, desk: Counter) -> None:
    tls = {"tls": {"issuer": "Poolhouse"}}
    # The simulated agents have no TLS, so that the VM never becomes ready and the pool makes no other.
    await apply(desk.api, rbac.namespace_role("controllers", agent_certificates.CERTIFICATE_RULES, desk.namespace))
    async with controllers(ours):
        await desk.pool(1, template=with_network(), agent=tls, refill={"maxConcurrent": 1})

        async def created() -> tuple[Json, Json] | None:
            vms, _ = await desk.api.list(VMS, desk.namespace)
            secrets, _ = await desk.api.list(SECRETS, desk.namespace)
            found = {each["metadata"]["name"]: each for each in secrets}
            return next(((vm, found[name]) for vm in vms if (name := f"{vm['metadata']['name']}-agent") in found), None)

        vm, own = await eventually(created)
    volumes = vm["spec"]["template"]["spec"]["volumes"]
    assert {
        "name": "poolhouse-agent",
        "secret": {"secretName": own["metadata"]["name"], "volumeLabel": "poolhouse-agent"},
    } in volumes
    assert [(each["kind"], each["uid"]) for each in own["metadata"]["ownerReferences"]] == [
        ("VirtualMachine", vm["metadata"]["uid"])
    ]
    content = {name: b64decode(value) for name, value in own["data"].items()}
    certificate = KeyPair(content["tls.crt"], content["tls.key"])
    assert certificate.is_complete
    assert certificate.is_trusted_by(content["ca.crt"])
    assert certificate.hosts == {f"{vm['metadata']['uid']}.vm.poolhouse.dev"}
    kept = parse_authorities(await desk.api.get(SECRETS, meta.NAMESPACE, meta.AGENT_CA_SECRET))
    assert content["ca.crt"] in [each.certificate for each in kept]


async def test_the_controllers_write_secrets_only_where_they_may(ours: Path, desk: Counter) -> None:
    async with await Api.connect(ours, user_agent="test-agents") as api:
        (authority, *_) = await AgentAuthority(api).all()
        document = secret(a_vm("a"), authority, api.now())
        with pytest.raises(Forbidden):
            await api.create(SECRETS, {**document, "metadata": {**document["metadata"], "namespace": "kube-public"}})
        with pytest.raises(Forbidden):
            await api.list(SECRETS, desk.namespace)


async def test_two_controllers_agree_on_one_authority(desk: Counter) -> None:
    namespace = f"agents-{uuid4().hex[:8]}"
    await desk.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    first, second = AgentAuthority(desk.api, namespace), AgentAuthority(desk.api, namespace)
    assert await first.all() == await second.all()
    stored = await desk.api.get(SECRETS, namespace, meta.AGENT_CA_SECRET)
    await desk.api.patch(SECRETS, namespace, meta.AGENT_CA_SECRET, {"data": dict.fromkeys(stored["data"], "")})
    (repaired,) = await AgentAuthority(desk.api, namespace).all()
    assert repaired not in await first.all(), "a damaged authority is replaced"
