"""Where the agent of a warm VM answers, by the annotation that the VM has from its pool."""

from base64 import b64decode
from functools import lru_cache

from pydantic import ValidationError

from controllers.warmpool.agent import AgentEndpoint, Certificates
from controllers.warmpool.agent_reasons import AgentReason
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds.warm_agent import Agent
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import SECRETS

CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"


@lru_cache(maxsize=256)
def parse_agent(annotation: str) -> Agent | None:
    """The agent in the annotation of a VM. None without one that can be read: any user may write the annotation."""
    try:
        return Agent.model_validate_json(annotation) if annotation else None
    except ValidationError:
        return None


async def agent_endpoint(api: Api, vm: WarmVM, agent: Agent, address: str) -> AgentEndpoint | Health:
    """The endpoint of the agent of a VM at this address, or why its certificates cannot be read."""
    if agent.tls is None:
        return AgentEndpoint(address, agent.port, grpc=True)
    name = agent.tls.secret_name
    try:
        found = await api.get(SECRETS, vm.namespace, name)
    except ApiError as error:
        return Health("Unable", AgentReason.NO_CERTIFICATES, f"Secret {name}: {error.message}")
    content = {key: b64decode(value) for key, value in (found.get("data") or {}).items()}
    if CA not in content:
        return Health("Failed", AgentReason.NO_CERTIFICATES, f"Secret {name} has no entry {CA}")
    certificates = Certificates(
        content[CA], agent.tls.server_name or vm.name, content.get(CERTIFICATE), content.get(KEY)
    )
    return AgentEndpoint(address, agent.port, grpc=True, tls=True, certificates=certificates)
