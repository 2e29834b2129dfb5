"""Where `controllers.prepare` was."""

from controllers.prepare import AT_ONCE, Prepare

__all__ = ["AT_ONCE", "Prepare"]
