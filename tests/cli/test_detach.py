"""What `poolhouse attach` says before and after a VM joins its pool."""

from __future__ import annotations

import pytest

from poolhouse.cli.detach import Attachment

ATTACHED = "web-1 is attached to web"
PAUSED = "when web is resumed, because it is paused"


@pytest.mark.parametrize(
    ("found", "harmless", "message"),
    [
        pytest.param(Attachment("web-1", "web", 0, ()), True, ATTACHED, id="room in the pool"),
        pytest.param(
            Attachment("web-1", "web", 0, (), paused=True),
            True,
            f"{ATTACHED}, which is paused: it does nothing to the VM until it is resumed",
            id="room in a paused pool",
        ),
        pytest.param(
            Attachment("web-1", "web", 1, ("web-2",)),
            False,
            f"{ATTACHED}, which has 1 VM more than spec.replicas: scale-in deletes web-2",
            id="another VM is deleted",
        ),
        pytest.param(
            Attachment("web-1", "web", 1, ("web-2",), paused=True),
            False,
            f"{ATTACHED}, which has 1 VM more than spec.replicas: scale-in deletes web-2 {PAUSED}",
            id="another VM is deleted later",
        ),
        pytest.param(
            Attachment("web-1", "web", 2, ("web-2",), waits="web-3 is protected"),
            False,
            f"{ATTACHED}, which has 2 VMs more than spec.replicas: scale-in deletes web-2; web-3 is protected",
            id="fewer VMs than the excess are deleted",
        ),
        pytest.param(
            Attachment("web-1", "web", 1, (), waits="all are protected"),
            True,
            f"{ATTACHED}, which has 1 VM more than spec.replicas: scale-in deletes none now: all are protected",
            id="none can be deleted",
        ),
        pytest.param(
            Attachment("web-1", "web", 1, ()),
            False,
            f"{ATTACHED}, which has 1 VM more than spec.replicas: scale-in deletes 1 VM",
            id="what decides it is unknown",
        ),
    ],
)
def test_an_attachment_asks_if_a_vm_is_deleted(found: Attachment, harmless: bool, message: str) -> None:
    assert (found.harmless, found.message) == (harmless, message)
