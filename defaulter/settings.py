"""Settings of the defaulter, read from environment variables."""

import os
import pwd
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema, field_validator

from defaulter.kubevirt_defaults import ClusterConfig, InterfaceBinding, MACPolicy, VideoPolicy
from defaulter.machine_types import UnavailablePolicy
from defaulter.worker_pool import WorkerLimits
from poolhouse.service.settings import IdentitySettings, ListenAddress, ServerSettings, listen_setting, setting

RECORD = ("auto", "true", "false")
"""the values of POOLHOUSE_HARDWARE_RECORD"""


def _parse_aliases(value: Any) -> Any:
    """Parses a list like `q35=pc-q35-rhel9.6.0,virt=virt-rhel9.6.0`."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",") if part.strip()]
    if not all(alias and machine_type for alias, _, machine_type in pairs):
        raise ValueError("must be ALIAS=TYPE,...")
    return {alias.strip(): machine_type.strip() for alias, _, machine_type in pairs}


def _parse_record(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in RECORD:
        raise ValueError("must be auto, true or false")
    return None if value == "auto" else value == "true"


class Settings(ServerSettings, IdentitySettings):
    listen: ListenAddress = listen_setting("127.0.0.1:8085")
    state: str = setting(
        "POOLHOUSE_STATE_DIR", "", "Directory of the embedded libvirts. Empty: one below /dev/shm, or below /tmp."
    )
    worker_user: str = setting(
        "POOLHOUSE_WORKER_UID", "", "User that the workers run as where the service runs as root. Empty: `nobody`."
    )
    architecture: Literal["amd64", "arm64", "s390x"] | None = setting(
        "POOLHOUSE_ARCHITECTURE",
        None,
        "Architecture of a VM that names none. Empty: that of the KubeVirt object, or `amd64`.",
    )
    binding: InterfaceBinding | None = setting(
        "POOLHOUSE_DEFAULT_NETWORK",
        None,
        "Binding of the interface that a VM without one gets; `leave` adds none. Empty: that of the KubeVirt object, or"
        " `bridge`.",
    )
    cpu_model: str | None = setting(
        "POOLHOUSE_CPU_MODEL",
        None,
        "CPU model of a VM that names none. Empty: that of the KubeVirt object, or `host-model`.",
    )
    machines: Annotated[dict[str, str], BeforeValidator(_parse_aliases)] = setting(
        "POOLHOUSE_MACHINE_TYPES", {}, "Machine types that aliases stand for on the nodes: `ALIAS=TYPE,...`."
    )
    unavailable_machines: UnavailablePolicy = setting(
        "POOLHOUSE_UNAVAILABLE_MACHINE_TYPES", "warn", "What happens to a VM whose machine type no node can run."
    )
    macs: MACPolicy = setting(
        "POOLHOUSE_MACS",
        "deterministic",
        "MAC addresses of interfaces that name none: `deterministic`, `libvirt` (random) or `leave`.",
    )
    video: VideoPolicy | None = setting(
        "POOLHOUSE_VIDEO",
        None,
        "Whether the display adapter is filled. Empty: where the cluster's KubeVirt accepts `video.type`.",
    )
    record: Annotated[bool | None, BeforeValidator(_parse_record), WithJsonSchema({"enum": [*RECORD]})] = setting(
        "POOLHOUSE_HARDWARE_RECORD",
        False,
        "Whether an annotation records the hardware that a spec cannot hold. `auto`: if KubeVirt has the feature gate "
        "`Plugins` or `Sidecar`, so that a hook can restore it.",
    )
    workers: int = setting(
        "POOLHOUSE_WORKERS", 0, "Worker processes. 0: one for each processor, but at least 2 and at most 4.", ge=0
    )
    deadline_seconds: float = setting(
        "POOLHOUSE_DEADLINE_SECONDS",
        1.7,
        "Longest time for a document. The webhook waits 2 seconds, and must learn whose fault the delay is.",
        unit="seconds",
        gt=0,
    )

    @field_validator("worker_user")
    @classmethod
    def _worker_user_exists(cls, value: str) -> str:
        _user_ids(value)
        return value

    @property
    def user(self) -> tuple[int | None, int | None]:
        """UID and GID of the workers, or None if the service cannot change its user. libvirt behaves differently as
        root."""
        return _user_ids(self.worker_user)

    @property
    def overrides(self) -> dict[str, Any]:
        """The values that take precedence over the cluster's KubeVirt object, by the field of `ClusterConfig`."""
        values = {each.name: getattr(self, each.name, None) for each in fields(ClusterConfig)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def limits(self) -> WorkerLimits:
        return WorkerLimits(
            workers=self.workers or max(2, min(4, len(os.sched_getaffinity(0)))),
            deadline_seconds=self.deadline_seconds,
        )


def _user_ids(user: str) -> tuple[int | None, int | None]:
    if os.geteuid() != 0:
        return None, None
    try:
        entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user or "nobody")
    except KeyError:
        if user.isdigit():
            return int(user), int(user)
        raise ValueError(f"there is no user {user or 'nobody'!r}") from None
    return entry.pw_uid, entry.pw_gid
