"""A problem in a document, for messages to its author."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """`path` is a field (`spec.template.spec.running`, `spec.rules[0]`); `message` says what to change."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def format_path(path: tuple[str | int, ...]) -> str:
    """The path in the form of API servers: `spec.domain.devices.disks[0].disk.bus`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
