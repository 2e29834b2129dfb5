"""Pods of runner scale sets of actions-runner-controller.

The templates are those of the chart gha-runner-scale-set (`values.yaml`), to which the controller adds variables
(`newEphemeralRunnerPod` of controllers/actions.github.com/resourcebuilder.go).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from controllers.virtualnode.translate import Refused, claim_of
from tests.controllers.virtualnode.pods import Json, pod

VALUES = Path(__file__).parents[3] / "examples" / "pods" / "arc-values.yaml"
WORK = {"name": "work", "mountPath": "/home/runner/_work"}


def runner_pod(template: Json) -> Json:
    """The Pod that the controller creates from the template of a scale set."""
    added = [
        {
            "name": "ACTIONS_RUNNER_INPUT_JITCONFIG",
            "valueFrom": {"secretKeyRef": {"name": "warm-x7-runner-abcde", "key": "jitToken"}},
        },
        {"name": "GITHUB_ACTIONS_RUNNER_EXTRA_USER_AGENT", "value": "actions-runner-controller/0.14.2"},
        {"name": "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "value": "1"},
    ]
    (runner, *others) = template["containers"]
    containers = [{**runner, "env": [*runner.get("env", []), *added]}, *others]
    return pod(**{**template, "containers": containers, "restartPolicy": "Never"})


def test_a_runner_of_the_example_runs_in_a_vm() -> None:
    found = claim_of(runner_pod(yaml.safe_load(VALUES.read_text())["template"]["spec"]))
    assert not isinstance(found, Refused), found.message
    application = found["spec"]["application"]
    assert application["restartPolicy"] == "Never"
    (runner,) = application["containers"]
    assert (runner["image"], runner["command"]) == ("registry.example/ci/actions-runner:1", ["/home/runner/run.sh"])
    # The token of the runner stays in its Secret until the agent gets it.
    (token, *_) = runner["env"]
    assert token["valueFrom"] == {"secretKeyRef": {"name": "warm-x7-runner-abcde", "key": "jitToken"}}


@pytest.mark.parametrize(
    ("template", "paths"),
    [
        pytest.param(
            {
                "initContainers": [
                    {"name": "init-dind-externals", "image": "runner"},
                    {
                        "name": "dind",
                        "image": "docker:dind",
                        "securityContext": {"privileged": True},
                        "restartPolicy": "Always",
                        "volumeMounts": [WORK],
                    },
                ],
                "containers": [{"name": "runner", "image": "runner", "volumeMounts": [WORK]}],
                "volumes": [{"name": "work", "emptyDir": {}}],
            },
            {"spec.initContainers[1].restartPolicy", "spec.initContainers[1].securityContext.privileged"},
            id="dind",
        ),
        pytest.param(
            {
                "containers": [{"name": "runner", "image": "runner", "volumeMounts": [WORK]}],
                "volumes": [{"name": "work", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}],
            },
            {"spec.volumes[0].ephemeral"},
            id="kubernetes",
        ),
    ],
)
def test_a_container_mode_that_no_vm_can_carry_out_is_refused(template: Json, paths: set[str]) -> None:
    found = claim_of(runner_pod(template))
    assert isinstance(found, Refused)
    assert set(found.paths) == paths
