from __future__ import annotations

from tests.scheduling import in_order


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
