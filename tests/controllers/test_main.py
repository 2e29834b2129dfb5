"""Settings of the controllers."""

from __future__ import annotations

import asyncio

import pytest

from controllers.main import Settings, _work, main
from controllers.shared.component import Component


@pytest.mark.parametrize(
    ("environment", "burst"),
    [pytest.param({}, 250, id="the default"), pytest.param({"POOLHOUSE_BURST": "10"}, 10, id="a setting")],
)
@pytest.mark.sentence("1.45")
def test_the_burst_is_a_setting(environment: dict[str, str], burst: int) -> None:
    assert Settings.read(environment).burst == burst


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        pytest.param("", (), id="none"),
        pytest.param("10.1.0.0/16, fd00::/64", ("10.1.0.0/16", "fd00::/64"), id="two"),
        pytest.param("10.1.2.3/16", ("10.1.0.0/16",), id="with the address of a host, as a NetworkPolicy allows"),
    ],
)
def test_networks_of_machines(text: str, networks: tuple[str, ...]) -> None:
    found = Settings.read({"POOLHOUSE_MACHINE_CIDRS": text})
    assert tuple(map(str, found.machine_cidrs)) == networks


def test_a_damaged_network_is_named() -> None:
    with pytest.raises(ValueError, match="POOLHOUSE_MACHINE_CIDRS"):
        Settings.read({"POOLHOUSE_MACHINE_CIDRS": "ten"})


@pytest.mark.sentence("5.61")
def test_an_invalid_setting_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POOLHOUSE_EC2_REGION", "Oregon")
    assert main() == 2
    assert "POOLHOUSE_EC2_REGION" in capsys.readouterr().err


async def test_a_kind_that_is_not_served_stops_only_its_component() -> None:
    class Listed:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        async def synced(self) -> None:
            await self.event.wait()

    served, absent, begun = Listed(), Listed(), list[str]()

    def component(name: str, *informers: Listed) -> Component:
        async def work() -> None:
            begun.append(name)

        return Component(name, informers, work)

    served.event.set()
    working = asyncio.create_task(_work([component("pool", served), component("warm", served, absent)]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun == ["pool"]
    absent.event.set()
    await working
    assert begun == ["pool", "warm"]
