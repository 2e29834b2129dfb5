"""Reasons of the engine's events. The reasons of its conditions are those of KubeVirt and CDI."""

from poolhouse.api.apimachinery.reasons import Reason


class EngineReason(Reason):
    SYNC_FAILED = "SyncFailed", "The VMI cannot be started as its spec asks."
    INVALID_SIMULATION = "InvalidSimulation", "A fault injection setting was ignored because its value is invalid."
    UNHEALTHY = "Unhealthy", "A liveness or readiness probe of the VMI failed. The message has the cause."
    PROBE_NOT_SUPPORTED = (
        "ProbeNotSupported",
        "The engine cannot run a probe of this kind, so the probe counts as passed.",
    )
    IMPORT_FAILED = "ImportFailed", "The disk of a DataVolume could not be imported or cloned; the import is retried."
    IMAGE_UNREACHABLE = "ImageUnreachable", "No server answers at the image's address; the VM boots the built-in Linux."
    MIGRATING = "Migrating", "The live migration of the VMI has started."
    MIGRATED = "Migrated", "The VMI runs on its target node."
    FAILED_MIGRATION = "FailedMigration", "The live migration failed; the VMI still runs on its source node."
    POST_COPY = "PostCopy", "The live migration has switched to post-copy."
    MIGRATION_PAUSED = "MigrationPaused", "The guest is paused, because the live migration exceeds its time."
    POST_COPY_IMPOSSIBLE = "PostCopyImpossible", "This machine does not allow post-copy; the VMI migrates by pre-copy."
