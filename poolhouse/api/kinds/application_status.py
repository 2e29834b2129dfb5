"""What an agent reports about the application of a claim, as in the status of a Pod."""

from typing import Annotated, Literal

from pydantic import Field

from poolhouse.api.kinds.model import Count, Int32, Model, Time, Tuple, list_map

ApplicationPhase = Literal["", "Pending", "Running", "Succeeded", "Failed", "Unknown"]


class Waiting(Model):
    """The container waits, for example for its image."""

    reason: str = ""
    """Reason, in CamelCase."""
    message: str = ""
    """Message for users."""


class Running(Model):
    """The container runs."""

    started_at: Time | None = None
    """Time of the start."""


class Terminated(Model):
    """The container has ended."""

    exit_code: Int32 = 0
    """Exit code of the program."""
    signal: Int32 | None = None
    """Signal that ended the program."""
    reason: str = ""
    """Reason, in CamelCase."""
    message: str = ""
    """Message for users, such as the last lines of the log."""
    started_at: Time | None = None
    """Time of the start."""
    finished_at: Time | None = None
    """Time of the end."""


class ContainerState(Model):
    """State of a container. At most one field is set."""

    waiting: Waiting | None = None
    """The container waits."""
    running: Running | None = None
    """The container runs."""
    terminated: Terminated | None = None
    """The container has ended."""


class ContainerStatus(Model):
    """Status of a container of the application."""

    name: str
    """Name of the container."""
    ready: bool = False
    """Whether the readiness probe succeeds."""
    started: bool | None = None
    """Whether the startup probe has succeeded."""
    restart_count: Count = 0
    """Number of restarts."""
    state: ContainerState | None = None
    """State of the container."""
    last_state: ContainerState | None = None
    """State before the last restart."""


ContainerStatuses = Annotated[Tuple[ContainerStatus], Field(max_length=16, json_schema_extra=list_map("name"))]


class ApplicationStatus(Model):
    """What the agent in the VM reports about the application. The VM's user can make the agent report anything."""

    phase: ApplicationPhase = ""
    """Phase, as that of a Pod."""
    reason: str = ""
    """Reason of the phase, in CamelCase."""
    message: str = ""
    """Message for users."""
    start_time: Time | None = None
    """Time at which the agent accepted the application."""
    init_containers: ContainerStatuses = ()
    """Status of the init containers."""
    containers: ContainerStatuses = ()
    """Status of the containers."""
