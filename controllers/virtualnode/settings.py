"""Settings of the virtual node. Without a name, there is none."""

from collections.abc import Mapping

from poolhouse.service.settings import EnvironmentSettings, setting

VIRTUAL_NODE = "POOLHOUSE_VIRTUAL_NODE"


class VirtualNodeSettings(EnvironmentSettings):
    name: str = setting(
        VIRTUAL_NODE,
        "",
        "Name of the Node whose Pods run on VMs of warm pools. Empty: no such Node.",
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
        max_length=63,
    )


def read_virtual_node(environment: Mapping[str, str]) -> VirtualNodeSettings | None:
    """Returns None without a name. The message of a ValueError names the variable."""
    settings = VirtualNodeSettings.read(environment)
    return settings if settings.name else None
