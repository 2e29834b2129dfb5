"""Restarts, back-off, probes and termination, as tables: events with their times, and what the plan does then."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from poolhouse_agent import state as states
from poolhouse_agent.application import Application, InvalidApplication, expand
from poolhouse_agent.plan import CleanUp, RunProbe, Start, Stop, plan
from poolhouse_agent.state import ApplicationState, ContainerState, End
from poolhouse_agent.status import phase, pod_status
from poolhouse_agent.store import Store, after_reboot

Json = dict[str, Any]
NOW = 1_000_000.0


def container(name: str = "main", **more: Any) -> Json:
    return {"name": name, "command": ["serve"], **more}


def application(*containers: Json, **spec: Any) -> Application:
    pod = {"metadata": {"name": "web", "uid": "a"}, "spec": {"containers": [*(containers or [container()])], **spec}}
    return Application.parse(pod)


def started(app: Application, state: ApplicationState, name: str, now: float) -> ApplicationState:
    found = next(each for each in app.all_containers if each.name == name)
    return state.with_container(name, states.started(found, states.starting(state.of(found)), now))


def ended(app: Application, state: ApplicationState, name: str, code: int, now: float) -> ApplicationState:
    found = next(each for each in app.all_containers if each.name == name)
    return states.exited(app, found, state, End(code, now, state.of(found).started_at))


def all_started(app: Application) -> ApplicationState:
    state = states.launched(app, NOW)
    for each in app.containers:
        state = started(app, state, each.name, NOW)
    return state


def test_restarts_wait_twice_as_long_each_time() -> None:
    app = application()
    state, now, waits = states.launched(app, NOW), NOW, []
    for _ in range(9):
        state = ended(app, started(app, state, "main", now), "main", 1, now + 1)
        actions, due = plan(app, state, now + 1)
        waits.append(0 if due is None else due - (now + 1))
        assert bool(actions) == (due is None)
        now = due or now + 1
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    state = ended(app, started(app, state, "main", now), "main", 1, now + 601)
    assert plan(app, state, now + 601) == ((Start("main"),), None), "after ten minutes, the first restart is immediate"


def test_the_status_of_a_container_that_waits_for_its_restart() -> None:
    app = application()
    state = states.launched(app, NOW)
    for _ in range(2):
        state = ended(app, started(app, state, "main", NOW), "main", 3, NOW + 1)
    status = pod_status(app, state)
    (found,) = status["containerStatuses"]
    message = "back-off 10s restarting container main"
    assert found["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    assert found["lastState"]["terminated"]["exitCode"] == 3
    assert (status["phase"], status["message"], found["restartCount"]) == ("Running", f"container main: {message}", 2)


def test_a_refused_start_is_repeated_later_each_time() -> None:
    app = application(container(image="registry.example/web"))
    state, waits = states.launched(app, NOW), []
    for _ in range(7):
        own = states.refused(state.of(app.containers[0]), "ErrImagePull", "no such image", NOW)
        state = state.with_container("main", own)
        waits.append((plan(app, state, NOW)[1] or 0) - NOW)
    assert waits == [10, 20, 40, 80, 160, 300, 300]
    assert pod_status(app, state)["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
    assert phase(app, state) == "Pending"


@pytest.mark.parametrize(
    ("policy", "code", "restarted", "expected"),
    [
        pytest.param("Always", 0, True, "Running", id="Always restarts a success"),
        pytest.param("Always", 1, True, "Running", id="Always restarts a failure"),
        pytest.param("OnFailure", 0, False, "Succeeded", id="OnFailure keeps a success"),
        pytest.param("OnFailure", 1, True, "Running", id="OnFailure restarts a failure"),
        pytest.param("Never", 0, False, "Succeeded", id="Never keeps a success"),
        pytest.param("Never", 1, False, "Failed", id="Never keeps a failure"),
    ],
)
def test_the_restart_policy_decides(policy: str, code: int, restarted: bool, expected: str) -> None:
    app = application(restartPolicy=policy)
    state = ended(app, all_started(app), "main", code, NOW + 1)
    assert plan(app, state, NOW + 1)[0] == ((Start("main"),) if restarted else (CleanUp(),))
    assert phase(app, state) == expected


@pytest.mark.parametrize(
    ("policy", "code", "expected", "expected_phase"),
    [
        pytest.param("Always", 0, (Start("second"),), "Pending", id="after a success, the next init container starts"),
        pytest.param("Always", 1, (Start("first"),), "Pending", id="a failed init container is started again"),
        pytest.param("Never", 1, (CleanUp(),), "Failed", id="a failed init container with Never fails the Pod"),
    ],
)
def test_init_containers_run_in_order(policy: str, code: int, expected: tuple[Any, ...], expected_phase: str) -> None:
    app = application(initContainers=[container("first"), container("second")], restartPolicy=policy)
    state = states.launched(app, NOW)
    assert plan(app, state, NOW) == ((Start("first"),), None)
    state = ended(app, started(app, state, "first", NOW), "first", code, NOW)
    assert plan(app, state, NOW) == (expected, None)
    assert phase(app, state) == expected_phase
    waiting = pod_status(app, state)["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "PodInitializing"


def probe(**numbers: int) -> Json:
    return {"tcpSocket": {"port": 80}, **numbers}


def after_probes(app: Application, state: ApplicationState, *results: tuple[str, bool]) -> ApplicationState:
    for number, (kind, success) in enumerate(results):
        own = states.probing(state.of(app.containers[0]), kind)
        own = states.probed(app, app.containers[0], own, kind, success, NOW + number)
        state = state.with_container("main", own)
    return state


ALL_PROBES = container(
    startupProbe=probe(failureThreshold=2),
    readinessProbe=probe(successThreshold=2),
    livenessProbe=probe(failureThreshold=2, terminationGracePeriodSeconds=5),
)


@pytest.mark.parametrize(
    ("results", "started_and_ready", "actions"),
    [
        pytest.param([], (False, False), {RunProbe("main", "startup")}, id="the startup probe comes first, alone"),
        pytest.param([("startup", False)], (False, False), set(), id="one failure is not enough"),
        pytest.param([("startup", False)] * 2, (False, False), {Stop("main")}, id="a failed startup probe stops it"),
        pytest.param(
            [("startup", True)],
            (True, False),
            {RunProbe("main", "readiness"), RunProbe("main", "liveness")},
            id="after the startup probe, the others begin",
        ),
        pytest.param([("startup", True), ("readiness", True)], (True, False), None, id="one success is not enough"),
        pytest.param([("startup", True), *[("readiness", True)] * 2], (True, True), None, id="two successes are ready"),
        pytest.param(
            [("startup", True), ("readiness", True), ("readiness", False), ("readiness", True)],
            (True, False),
            None,
            id="a failure between two successes begins the count again",
        ),
        pytest.param(
            [("startup", True), *[("readiness", True)] * 2, *[("readiness", False)] * 3],
            (True, False),
            None,
            id="after three failures, it is not ready, and goes on",
        ),
        pytest.param(
            [("startup", True), *[("readiness", True)] * 2, *[("liveness", False)] * 2],
            (True, False),
            {Stop("main")},
            id="a failed liveness probe stops it",
        ),
    ],
)
def test_probes(results: list[tuple[str, bool]], started_and_ready: tuple[bool, bool], actions: Any) -> None:
    app = application(ALL_PROBES)
    state = after_probes(app, all_started(app), *results)
    own = state.of(app.containers[0])
    assert (own.is_started(app.containers[0]), own.is_ready(app.containers[0])) == started_and_ready
    if actions is not None:
        assert {*plan(app, state, NOW)[0]} == actions


def test_the_first_probe_waits_for_the_initial_delay_and_the_next_one_for_the_period() -> None:
    app = application(container(readinessProbe=probe(initialDelaySeconds=7, periodSeconds=3)))
    state = all_started(app)
    assert plan(app, state, NOW) == ((), NOW + 7)
    assert plan(app, state, NOW + 7) == ((RunProbe("main", "readiness"),), None)
    assert plan(app, after_probes(app, state, ("readiness", False)), NOW) == ((), NOW + 3)


def test_a_container_that_is_stopped_is_killed_after_its_grace_period() -> None:
    app = application(ALL_PROBES)
    state = after_probes(app, all_started(app), ("startup", True), ("liveness", False), ("liveness", False))
    own = states.signalled(state.of(app.containers[0]))
    state = state.with_container("main", own)
    assert plan(app, state, NOW + 3) == ((), NOW + 2 + 5)
    assert plan(app, state, NOW + 7) == ((Stop("main", kill=True),), None)
    state = ended(app, state.with_container("main", states.signalled(own)), "main", 137, NOW + 7)
    assert plan(app, state, NOW + 7) == ((Start("main"),), None)


def test_termination_stops_what_runs_and_starts_nothing() -> None:
    app = application(container("a"), container("b"), container("c"), terminationGracePeriodSeconds=30)
    state = started(app, started(app, states.launched(app, NOW), "a", NOW), "b", NOW)
    state = states.terminating(ended(app, state, "b", 1, NOW), 30, NOW)
    assert plan(app, state, NOW) == ((Stop("a"),), NOW + 30)
    state = state.with_container("a", states.signalled(state.containers["a"]))
    assert plan(app, states.terminating(state, 5, NOW), NOW)[1] == NOW + 5, "a later request can shorten the period"
    assert plan(app, states.terminating(state, 60, NOW), NOW)[1] == NOW + 30, "and cannot extend it"
    state = ended(app, state, "a", 0, NOW + 1)
    assert plan(app, state, NOW + 1) == ((CleanUp(),), None)
    assert plan(app, replace(state, cleaned_up=True), NOW + 1) == ((), None)
    assert phase(app, state) == "Failed", "a container never ran"


def test_without_a_grace_period_a_container_is_killed_at_once() -> None:
    app = application(container("a"))
    state = states.terminating(started(app, states.launched(app, NOW), "a", NOW), 0, NOW)
    assert plan(app, state, NOW) == ((Stop("a", kill=True),), None)


def test_a_container_that_starts_during_the_termination_is_stopped_too() -> None:
    app = application()
    state = states.launched(app, NOW).with_container("main", states.starting(ContainerState()))
    state = states.terminating(state, 30, NOW)
    assert plan(app, state, NOW) == ((), None)
    assert plan(app, started(app, state, "main", NOW), NOW)[0] == (Stop("main"),)


def test_a_reboot_fails_an_application_that_ran_and_keeps_the_end_of_another() -> None:
    app = application(container("a"), container("b"), restartPolicy="Never")
    state = ended(app, all_started(app), "a", 0, NOW + 1)
    status = after_reboot(pod_status(app, state))
    codes = [each["state"]["terminated"]["exitCode"] for each in status["containerStatuses"]]
    assert (status["phase"], status["reason"], codes) == ("Failed", "VMRebooted", [0, 137])
    whole = pod_status(app, ended(app, state, "b", 0, NOW + 1))
    assert after_reboot(whole) == whole


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$(HOST):$(PORT)", "a:80", id="known names are replaced"),
        pytest.param("$(OTHER) $PORT $", "$(OTHER) $PORT $", id="everything else stays"),
        pytest.param("$$(PORT) $$", "$(PORT) $", id="two dollar signs are one"),
    ],
)
def test_variables_in_commands(text: str, expected: str) -> None:
    assert expand(text, {"HOST": "a", "PORT": "80"}) == expected


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        pytest.param({}, "metadata.uid: Required value", id="no UID"),
        pytest.param({"metadata": {"uid": "a"}}, "spec.containers: Required value", id="no container"),
        pytest.param(
            {"metadata": {"uid": "a"}, "spec": {"containers": [{"name": "a"}]}},
            "spec.containers[0].command: Required value: a container without an image needs a command",
            id="neither image nor command",
        ),
        pytest.param(
            {"metadata": {"uid": "a"}, "spec": {"containers": [container(), container()]}},
            "spec.containers: two containers have the same name",
            id="a name twice",
        ),
        pytest.param(
            {"metadata": {"uid": "a"}, "spec": {"containers": [container("../a")]}},
            "spec.containers[0].name: Invalid value: '../a': must be a DNS label",
            id="a name that would leave the directory",
        ),
        pytest.param(
            {
                "metadata": {"uid": "a"},
                "spec": {
                    "containers": [container()],
                    "volumes": [{"name": "v", "secret": {}, "files": [{"path": "../../etc/passwd"}]}],
                },
            },
            "spec.volumes[0]: the path '../../etc/passwd' must be relative and without '..'",
            id="a file outside of its volume",
        ),
    ],
)
def test_invalid_pods_are_refused(pod: Json, message: str) -> None:
    with pytest.raises(InvalidApplication) as refused:
        Application.parse(pod)
    assert str(refused.value) == message


def test_an_older_agent_goes_on_with_the_state_of_a_newer_one(tmp_path: Path) -> None:
    app = application()
    state = ended(app, all_started(app), "main", 3, NOW)
    Store(tmp_path, tmp_path).save(app.uid, state, {})
    path = tmp_path / "state.json"
    found = json.loads(path.read_text())
    main = found["state"]["containers"]["main"]
    for each in (found, found["state"], main, main["end"]):
        each["newer"] = True
    path.write_text(json.dumps(found))
    record = Store(tmp_path, tmp_path).load(NOW)
    assert record.state == state
