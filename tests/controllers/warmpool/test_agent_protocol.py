"""The protocol of agents: the JSON of Kubernetes becomes messages and comes back."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.warmpool.agent_protocol import MESSAGES, from_message, messages, to_message

PROBE = {"httpGet": {"path": "/healthz", "port": 8080, "httpHeaders": [{"name": "Host", "value": "web"}]}}
CONTAINER = {
    "name": "web",
    "image": "registry.example/web:1",
    "command": ["serve"],
    "env": [{"name": "EMPTY", "value": ""}],
    "volumeMounts": [{"name": "settings", "mountPath": "/etc/web", "readOnly": True}],
    "livenessProbe": {**PROBE, "initialDelaySeconds": 0},
    "readinessProbe": {"tcpSocket": {"port": "http"}},
    "startupProbe": {"exec": {"command": ["true"]}},
}
TIMES = {"startedAt": "2026-11-28T05:10:31Z", "finishedAt": "2026-11-28T05:10:32Z"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("ObjectMeta", {"name": "a", "labels": {"x": "y"}, "annotations": {"n": ""}}, id="maps"),
        pytest.param("Container", CONTAINER, id="a container with probes, whose handlers are inlined"),
        pytest.param("PodSpec", {"terminationGracePeriodSeconds": 0}, id="a number 0 is not an absent number"),
        pytest.param(
            "PodSpec",
            {
                "volumes": [
                    {"name": "empty", "emptyDir": {}},
                    {
                        "name": "settings",
                        "configMap": {"name": "web", "items": [{"key": "a", "path": "b", "mode": 0o400}]},
                        "files": [{"path": "b", "content": b"\xff\x00", "mode": 0o400}],
                    },
                    {"name": "key", "secret": {"secretName": "web", "defaultMode": 0o440}},
                ]
            },
            id="volumes, whose sources are inlined, with the files of Poolhouse",
        ),
        pytest.param(
            "PodStatus",
            {
                "phase": "Failed",
                "startTime": "2026-11-28T05:10:30Z",
                "containerStatuses": [
                    {
                        "name": "web",
                        "ready": False,
                        "started": False,
                        "restartCount": 2,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": 0, "reason": "Completed", **TIMES}},
                    }
                ],
            },
            id="a status with times",
        ),
    ],
)
def test_the_json_of_kubernetes_comes_back_from_a_message(name: str, value: dict[str, Any]) -> None:
    assert from_message(name, messages()[name].FromString(to_message(name, value).SerializeToString())) == value


def test_fields_that_the_messages_do_not_have_are_ignored() -> None:
    assert from_message("Container", to_message("Container", {"name": "web", "tty": True, "image": None})) == {
        "name": "web"
    }


@pytest.mark.parametrize("name", MESSAGES)
def test_no_name_or_number_of_a_field_is_used_twice(name: str) -> None:
    assert len({field for field, _, _ in MESSAGES[name]}) == len({number for _, number, _ in MESSAGES[name]})
    assert len(MESSAGES[name]) == len({number for _, number, _ in MESSAGES[name]})
