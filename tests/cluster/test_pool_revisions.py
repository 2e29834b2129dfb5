"""What a pool leaves and what it needs later: its VMs, the ControllerRevisions of its templates, and lost ones."""

from __future__ import annotations

from typing import Any

from controllers.pool.pools import POOLS
from poolhouse.api.kinds import meta
from poolhouse.runtime.events import EVENTS
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, VMS
from tests.cluster.pooling import Place, controller, garbage_collector_knows, template, until
from tests.cluster.test_pool import web

Json = dict[str, Any]


async def test_a_pool_can_be_deleted_without_its_vms(control_plane: Any, place: Place) -> None:
    """The garbage collector writes the ControllerRevision, whose data may not change by a byte."""
    volume = {"name": "init", "cloudInitNoCloud": {"userData": "#!/bin/sh\na && b > c < d # \u00e9"}}
    shared = template()
    shared["spec"]["template"]["spec"]["volumes"] = [volume]
    await place.pool(2, template=shared)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(1, 2))
        await garbage_collector_knows(place.api, VMS, place.namespace, "web-2")
        await place.api.delete(POOLS, place.namespace, "web", propagation="Orphan")

        async def left() -> Any:
            pools, _ = await place.api.list(POOLS, place.namespace)
            return len(pools), [vm["metadata"].get("ownerReferences") for vm in (await place.vms()).values()]

        await until(left, (0, [None, None]))


def named(hostname: str | None) -> Json:
    found = template(running=False)
    found["spec"]["template"]["spec"]["hostname"] = hostname
    return found


async def hostnames(place: Place) -> set[Any]:
    return {vm["spec"]["template"]["spec"].get("hostname") for vm in (await place.vms()).values()}


async def revisions(place: Place) -> list[str]:
    return [each["metadata"]["name"] for each in (await place.api.list(CONTROLLER_REVISIONS, place.namespace))[0]]


async def test_a_deleted_revision_is_written_again(control_plane: Any, place: Place) -> None:
    """Without it, the next update would not know which fields of the VMs are those of the former template."""
    async with controller(control_plane.kubeconfig):
        await place.pool(2, template=named("x"))
        await until(lambda: hostnames(place), {"x"})
        (saved,) = await revisions(place)
        await place.api.delete(CONTROLLER_REVISIONS, place.namespace, saved)
        await until(lambda: revisions(place), [saved])
        await place.change(template=named(None))
        await until(lambda: hostnames(place), {None})


async def test_an_update_without_the_former_template_says_what_it_left(control_plane: Any, place: Place) -> None:
    async with controller(control_plane.kubeconfig):
        await place.pool(2, template=named("x"))
        await until(lambda: hostnames(place), {"x"})
        await until(place.names, web(1, 2))
    for name in await revisions(place):
        await place.api.delete(CONTROLLER_REVISIONS, place.namespace, name)
    await place.change(template=named(None))
    async with controller(control_plane.kubeconfig):

        async def lost() -> bool:
            events, _ = await place.api.list(EVENTS, place.namespace, field_selector="regarding.name=web")
            notes = [each["note"] for each in events if each["reason"] == "RevisionLost"]
            return sum("It may have left hostname:" in note for note in notes) >= 2

        await until(lost, True)
        await until(lambda: left_fields(place), "web-1, web-2: It may have left hostname: ")
        # A user removes the field and the annotation of one VM, and the next update finds the other one without it.

        for name, annotations in (("web-1", {meta.LEFT_FIELDS: None}), ("web-2", {})):
            change = {"metadata": {"annotations": annotations}, "spec": {"template": {"spec": {"hostname": None}}}}
            await place.api.patch(VMS, place.namespace, name, change)
        await until(lambda: left_fields(place), "web-2: It may have left hostname: ")
        await place.change(template=named("y"))
        await until(lambda: left_fields(place), "")
        await until(lambda: hostnames(place), {"y"})


async def left_fields(place: Place) -> str:
    """The VMs and the fields of the condition RevisionLost while it is True."""
    found = await place.condition("RevisionLost")
    names, _, rest = found.get("message", "").partition(": ")
    left = rest.partition("It may have left ")[2].partition(": ")[0]
    return f"{names}: It may have left {left}: " if found.get("status") == "True" else ""
