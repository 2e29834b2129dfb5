"""Where the agent of a warm VM answers, by the annotation that the VM has from its pool."""

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controllers.shared.vmi import VMI
from controllers.warmpool.agent import AgentEndpoint, Certificates
from controllers.warmpool.agent_authority import AgentAuthority
from controllers.warmpool.agent_certificates import CA, CERTIFICATE, KEY, client_certificates
from controllers.warmpool.agent_reasons import AgentReason
from controllers.warmpool.backends import Health
from controllers.warmpool.probe_address import Network, PodAddresses, confirmed_addresses, is_own, probe_address
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_agent import Agent, AgentTLS, parse_agent
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import SECRETS

FOREIGN = (
    "the VM has no address of its Pod, nor one in networkPolicy.machineCIDRs of the chart; the controllers connect to"
    " no other address that a guest reports"
)


async def _certificates(api: Api, vm: WarmVM, tls: AgentTLS) -> Certificates | Health:
    """The certificates in the Secret of the pool, or why they cannot be used."""
    name = tls.secret_name or ""
    found = await api.get(SECRETS, vm.namespace, name)
    content = {key: b64decode(value) for key, value in (found.get("data") or {}).items()}
    if CA not in content:
        return Health("Failed", AgentReason.NO_CERTIFICATES, f"Secret {name} has no entry {CA}")
    return Certificates(content[CA], tls.server_name or vm.name, content.get(CERTIFICATE), content.get(KEY))


@dataclass(frozen=True)
class ConfirmedAddresses:
    """The reported addresses that a VM really has."""

    addresses: tuple[str, ...]
    complete: bool = True
    """False while a launcher Pod of the VM has no address yet, so that a later look may confirm more"""


class VMAgents:
    """Finds the agents of warm VMs. `machines` are networks outside the Pod network in which VMs have addresses."""

    def __init__(self, api: Api, machines: Sequence[Network] = (), authority: AgentAuthority | None = None) -> None:
        self._api, self._machines, self._pod_addresses = api, machines, PodAddresses(api)
        self._authority = authority or AgentAuthority(api)

    async def endpoint(self, vm: WarmVM) -> AgentEndpoint | Health:
        """The endpoint of the VM's agent, or why it cannot be asked."""
        agent = parse_agent(vm.agent)
        if agent is None:
            return Health("Unable", AgentReason.NO_AGENT, "the VM has no agent")
        if vm.vmi is None:
            return Health("Unable", "NotRunning", "the VM does not run")
        address = await self.address(vm.vmi)
        return address if isinstance(address, Health) else await self.endpoint_at(vm, agent, address)

    async def endpoint_at(self, vm: WarmVM, agent: Agent, address: str) -> AgentEndpoint | Health:
        """The endpoint of the agent of a VM at this address, or why its certificates cannot be read."""
        if agent.tls is None:
            return AgentEndpoint(address, agent.port, grpc=True, namespace=vm.namespace)
        try:
            if agent.has_issued_certificate:
                authority = await self._authority.of(vm)
                found: Certificates | Health = client_certificates(vm, authority, self._api.now())
            else:
                found = await _certificates(self._api, vm, agent.tls)
        except ApiError as error:
            which = agent.tls.secret_name or meta.AGENT_CA_SECRET
            return Health("Unable", AgentReason.NO_CERTIFICATES, f"Secret {which}: {error.message}")
        if isinstance(found, Health):
            return found
        endpoint = AgentEndpoint(address, agent.port, grpc=True, tls=True, certificates=found)
        return replace(endpoint, namespace=vm.namespace)

    async def addresses(self, vmi: VMI) -> ConfirmedAddresses:
        """Raises the API server's error."""
        found = confirmed_addresses(vmi.addresses, await self._pod_addresses(vmi), self._machines)
        return ConfirmedAddresses(tuple(found), self._pod_addresses.knows_all(vmi))

    async def address(self, vmi: VMI) -> str | Health:
        """The address for probes, or why there is none."""
        if not vmi.addresses:
            return Health("Failed", "NoAddress", "the VM has no address yet")
        try:
            of_pods = await self._pod_addresses(vmi)
        except ApiError as error:
            return Health("Unable", "PodUnknown", f"the VM's Pod cannot be read: {error.message}")
        address = probe_address(vmi.addresses, of_pods, self._machines)
        if not address or is_own(address):
            return Health("Failed", "ForeignAddress", FOREIGN)
        return address
