"""Settings of the virtual node. Without a name, there is none."""

from collections.abc import Mapping
from typing import Self

from pydantic import model_validator

from poolhouse.service.settings import EnvironmentSettings, ListenAddress, setting

VIRTUAL_NODE = "POOLHOUSE_VIRTUAL_NODE"


class VirtualNodeSettings(EnvironmentSettings):
    name: str = setting(
        VIRTUAL_NODE,
        "",
        "Name of the Node whose Pods run on VMs of warm pools. Empty: no such Node.",
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
        max_length=63,
    )
    listen: ListenAddress | None = setting(
        "POOLHOUSE_VIRTUAL_NODE_LISTEN",
        None,
        "Address of the Node's kubelet endpoint, `HOST:PORT`, for `kubectl logs`. Empty: no endpoint.",
    )
    address: str = setting(
        "POOLHOUSE_VIRTUAL_NODE_ADDRESS", "", "IP address at which API servers reach this endpoint, that of the Pod."
    )

    @model_validator(mode="after")
    def _endpoint_has_an_address(self) -> Self:
        if self.listen is not None and not self.address:
            raise ValueError("POOLHOUSE_VIRTUAL_NODE_LISTEN: requires POOLHOUSE_VIRTUAL_NODE_ADDRESS")
        return self


def read_virtual_node(environment: Mapping[str, str]) -> VirtualNodeSettings | None:
    """Returns None without a name. The message of a ValueError names the variable."""
    settings = VirtualNodeSettings.read(environment)
    return settings if settings.name else None
