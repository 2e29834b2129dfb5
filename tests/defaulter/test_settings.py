from __future__ import annotations

import os

import pytest

from defaulter.kubevirt_defaults import ClusterConfig
from defaulter.settings import Settings
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POOLHOUSE_ARCHITECTURE", "x86_64"),
        ("POOLHOUSE_MACS", "random"),
        ("POOLHOUSE_HARDWARE_RECORD", "yes"),
        ("POOLHOUSE_DEADLINE_SECONDS", "-1"),
        ("POOLHOUSE_MACHINE_TYPES", "q35"),
    ],
)
def test_an_invalid_setting_is_rejected_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f'{name}: Invalid value: "{value}": must be'):
        Settings.read({name: value})


@pytest.mark.parametrize(
    ("value", "gates", "recorded"),
    [
        ("auto", [], False),
        ("auto", ["Sidecar"], True),
        ("auto", ["Plugins"], True),
        ("true", [], True),
        ("false", ["Sidecar", "Plugins"], False),
    ],
)
def test_hardware_is_recorded_where_a_hook_can_restore_it(value: str, gates: list[str], recorded: bool) -> None:
    kubevirt = ClusterSettings(versions=("v1.9.0",), feature_gates=frozenset(gates))
    overrides = Settings.read({"POOLHOUSE_HARDWARE_RECORD": value}).overrides
    assert ClusterConfig.of(kubevirt, overrides).record is recorded
    assert not ClusterConfig.of(kubevirt, Settings.read({}).overrides).record


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")
def test_the_user_of_the_workers() -> None:
    assert Settings.read({"POOLHOUSE_WORKER_UID": "4711"}).user == (4711, 4711)
    assert Settings.read({}).user == Settings.read({"POOLHOUSE_WORKER_UID": "nobody"}).user
    with pytest.raises(ValueError, match="there is no user 'somebody'"):
        Settings.read({"POOLHOUSE_WORKER_UID": "somebody"})
