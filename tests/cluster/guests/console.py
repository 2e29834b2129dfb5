"""What the guests of the built-in Linux print, and VMs whose guests print their devices."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from defaulter.contract import undefaulted_fields
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.waiting import eventually

Json = dict[str, Any]

UP = "poolhouse guest is up"


class Console:
    """The console output of a guest, over all its boots."""

    def __init__(self, paths: StackPaths, name: str, namespace: str = "default") -> None:
        self._file = paths.disks / "consoles" / f"{namespace}_{name}.log"

    async def text(self) -> str:
        return await asyncio.to_thread(lambda: self._file.read_text() if self._file.exists() else "")

    async def shows(self, line: str, times: int = 1) -> None:
        async def shown() -> bool:
            return (await self.text()).count(line) >= times

        try:
            await eventually(shown)
        except AssertionError as error:
            error.add_note(f"its console ends in: {(await self.text())[-500:]!r}")
            raise

    async def counts_on(self) -> None:
        """Its guest counts seconds: three more than until now."""
        await self.shows("second ", (await self.text()).count("second ") + 3)

    async def tells_of_one_start(self) -> None:
        text = await self.text()
        assert text.count(UP) == 1, text

    async def devices(self, start: int) -> set[str]:
        """Place, identity and driver of what was on the guest's PCI buses at that start, the first being 1."""
        return set(re.findall(r"^pci: .*\S", (await self.text()).split(UP)[start - 1], re.MULTILINE))


def hardware(document: Json, disks: list[str], nics: list[str]) -> Json:
    """With these disks, `more` on SATA and all others on virtio, and these NICs: by name, and nothing decided."""
    spec = document["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": name, "emptyDisk": {"capacity": "8Mi"}} for name in disks]
    spec["networks"] = [
        {"name": name, **({"pod": {}} if name == "net" else {"multus": {"networkName": name}})} for name in nics
    ]
    spec["domain"]["devices"] = {
        "disks": [{"name": name, "disk": {"bus": "sata" if name == "more" else "virtio"}} for name in disks],
        "interfaces": [{"name": name, "masquerade" if name == "net" else "bridge": {}} for name in nics],
        "rng": {},
    }
    return document


async def created(api: Api, document: Json) -> Json:
    """A new VM with its defaults. On a busy machine the webhook may not answer within its three seconds, and the VM is
    stored as it was sent."""
    namespace = document["metadata"]["namespace"]

    async def is_gone() -> bool:
        return not any([(await api.list(resource, namespace))[0] for resource in (VMS, VMIS)])

    async def defaulted() -> Json | None:
        made = await api.create(VMS, document)
        if not undefaulted_fields(made):
            return made
        await api.delete(VMS, namespace, document["metadata"]["name"])
        await eventually(is_gone)
        return None

    return dict(await eventually(defaulted))
