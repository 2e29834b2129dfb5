from __future__ import annotations

import pytest

from tests.scheduling import in_order, servers_of, unit_of


def test_tests_that_share_servers_come_one_after_the_other() -> None:
    given = [
        "tests/agent/test_pods.py::a",
        "tests/apimachinery/test_yaml_reader.py::a",
        "tests/charts/test_certificates.py::a",
        "tests/charts/test_chart.py::a",
        "tests/charts/test_plain.py::a",
        "tests/console/test_browser.py::a",
        "tests/docs/test_tasks.py::a",
        "tests/portal/test_sessions.py::a",
        "tests/cluster/whole/test_doctor.py::a",
    ]
    assert in_order(given, str) == [
        "tests/console/test_browser.py::a",
        "tests/portal/test_sessions.py::a",
        "tests/docs/test_tasks.py::a",
        "tests/cluster/whole/test_doctor.py::a",
        "tests/charts/test_certificates.py::a",
        "tests/charts/test_plain.py::a",
        "tests/apimachinery/test_yaml_reader.py::a",
        "tests/charts/test_chart.py::a",
        "tests/agent/test_pods.py::a",
    ]


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("tests/cluster/test_admission.py::a", "tests/cluster/test_runtime.py::a", True),
        ("tests/cluster/test_pool.py::a", "tests/charts/test_plain.py::a", True),
        ("tests/cluster/test_stack.py::a", "tests/cluster/test_runtime.py::a", False),
        ("tests/cluster/simulated/test_claim.py::a", "tests/cluster/simulated/test_engine.py::a", True),
        ("tests/cluster/simulated/test_claim.py::a", "tests/cluster/simulated/test_pool_heal.py::a", False),
        ("tests/cluster/test_warm_ec2.py::a", "tests/cluster/test_warm_ec2.py::b", False),
        ("tests/kinds/test_pool.py::a", "tests/kinds/test_claim.py::a", False),
    ],
)
def test_which_tests_stay_with_one_worker(one: str, other: str, together: bool) -> None:
    assert (unit_of(one) == unit_of(other)) is together


def test_servers_outlive_the_tests_that_several_workers_share() -> None:
    assert servers_of("tests/cluster/test_warm_ec2.py::a") == servers_of("tests/cluster/test_warm_ec2.py::b")


def test_units_that_take_longest_come_first() -> None:
    given = [
        "tests/cluster/test_stack.py::a",
        "tests/cluster/whole/test_doctor.py::a",
        "tests/cluster/test_runtime.py::a",
    ]
    assert in_order(given, str) == list(reversed(given))
