"""The metrics of programs whose metrics nobody reads, such as commands. They do not import the Prometheus client."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from poolhouse.runtime.metrics import Metrics


class _Ignored:
    """Stands for the `Metrics` and for each metric in it, and ignores all values."""

    def __getattr__(self, name: str) -> _Ignored:
        return self

    def __call__(self, *values: object, **labels: object) -> _Ignored:
        return self


NO_METRICS = cast("Metrics", _Ignored())
