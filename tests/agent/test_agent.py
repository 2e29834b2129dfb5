"""The agent as a process: real calls, real containers."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import grpc
import grpc.aio
import pytest

from controllers.warmpool.agent import AgentEndpoint, LogsRefused, NetworkAgentClient
from tests.agent.process import Json, files_in, finished, running, running_agent, shell
from tests.waiting import eventually


async def test_containers_run_after_init_containers_and_their_exit_codes_are_reported(tmp_path: Path) -> None:
    spec = {
        "restartPolicy": "Never",
        "initContainers": [shell("echo one >> $FILE", "first"), shell("echo two >> $(FILE)", "second")],
        "containers": [
            shell("cat $FILE; pwd; echo to stderr >&2; exit 3", "fails", workingDir="/tmp"),
            shell("kill -KILL $$$$", "killed"),
            shell("true", "succeeds"),
        ],
    }
    for container in (*spec["initContainers"], *spec["containers"]):
        container["env"] = [{"name": "FILE", "value": str(tmp_path / "order")}]
    async with running_agent(tmp_path) as agent:
        await agent.launch(spec)
        status = await agent.until(finished)
        ends = {each["name"]: each["state"]["terminated"] for each in status["containerStatuses"]}
        assert {name: (end["exitCode"], end["reason"]) for name, end in ends.items()} == {
            "fails": (3, "Error"),
            "killed": (137, "Error"),
            "succeeds": (0, "Completed"),
        }
        assert ends["killed"]["signal"] == 9
        assert ends["fails"]["message"].splitlines()[:3] == ["one", "two", "/tmp"]
        assert sorted((await agent.logs("fails")).splitlines()) == ["/tmp", "one", "to stderr", "two"]
        assert status["phase"] == "Failed"
        assert [each["ready"] for each in status["initContainerStatuses"]] == [True, True]


async def test_a_launch_is_idempotent_and_another_pod_is_refused(tmp_path: Path) -> None:
    spec = {"containers": [shell("echo started; exec sleep 1000")]}
    async with running_agent(tmp_path) as agent:
        await agent.launch(spec)
        first = await agent.until(running)
        await agent.launch(spec)
        assert await agent.status() == first
        with pytest.raises(grpc.aio.AioRpcError, match="runs the Pod shop/web with UID a") as refused:
            await agent.launch(spec, uid="b")
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        with pytest.raises(grpc.aio.AioRpcError, match="containers: Required value") as invalid:
            await agent.launch({}, uid="b")
        assert invalid.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        await agent.terminate(podUID="another")
        assert await agent.status() == first


async def test_a_launch_that_cannot_be_written_is_refused_until_it_can(tmp_path: Path) -> None:
    spec = {"containers": [shell("exec sleep 1000")]}
    async with running_agent(tmp_path) as agent:
        draft = tmp_path / "state" / "state.new"
        draft.mkdir()  # no file can be written here, as on a full disk
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match="Is a directory"):
                await agent.launch(spec)
            assert "phase" not in await agent.status()
        draft.rmdir()
        await agent.launch(spec)
        await agent.until(running)


async def test_a_full_disk_ends_no_agent_and_starts_no_container_that_would_be_forgotten(tmp_path: Path) -> None:
    first = shell(f"until [ -e {tmp_path}/stop ]; do sleep 0.1; done", "first")
    spec = {"restartPolicy": "Never", "initContainers": [first], "containers": [shell(f"echo run >> {tmp_path}/runs")]}

    def refused(status: Json) -> bool:
        waits = status["containerStatuses"][0]["state"].get("waiting", {})
        return waits.get("reason") == "CreateContainerError" and "the start cannot be written" in waits["message"]

    async with running_agent(tmp_path) as agent:
        await agent.launch(spec)
        await agent.until(lambda status: "running" in status["initContainerStatuses"][0]["state"])
        draft = tmp_path / "state" / "state.new"
        draft.mkdir()  # no file can be written here, as on a full disk
        (tmp_path / "stop").touch()
        await agent.until(refused)
        await agent.end(signal.SIGKILL)
        draft.rmdir()
        await agent.start()
        assert (await agent.until(finished))["phase"] == "Succeeded"
        assert (tmp_path / "runs").read_text() == "run\n"


async def test_termination_signals_the_process_group_and_kills_after_the_grace_period(tmp_path: Path) -> None:
    obeys = shell("trap 'echo bye; exit 0' TERM; echo up; sleep 1000 & wait", "obeys")
    ignores = shell("trap '' TERM; echo up; while :; do sleep 1000; done", "ignores")
    async with running_agent(tmp_path) as agent:
        await agent.launch({"containers": [obeys, ignores]})
        await agent.until(running)
        for container in ("obeys", "ignores"):
            assert (await agent.logs(container, follow=True, limitBytes=3)) == "up\n"
        await agent.terminate(gracePeriodSeconds=1)
        ends = {
            each["name"]: each["state"]["terminated"]["exitCode"]
            for each in (await agent.status())["containerStatuses"]
        }
        assert ends == {"obeys": 0, "ignores": 137}
        assert await agent.logs("obeys", tailLines=1) == "bye\n"
        await agent.launch({"containers": [shell("true")], "restartPolicy": "Never"}, uid="b")
        assert (await agent.until(finished))["phase"] == "Succeeded"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restart_of_the_agent_neither_loses_nor_repeats_the_application(tmp_path: Path, number: int) -> None:
    script = f"echo run; touch {tmp_path}/up; until [ -e {tmp_path}/stop ]; do sleep 0.1; done; echo end; exit 7"
    spec = {"restartPolicy": "Never", "containers": [shell(script), shell(f"{script} 2>&1", "other")]}
    async with running_agent(tmp_path) as agent:
        await agent.launch(spec)
        before = await agent.until(running)
        await agent.end(number)
        await agent.start()
        assert await agent.status() == before
        await agent.launch(spec)
        (tmp_path / "stop").touch()
        status = await agent.until(finished)
        assert [each["state"]["terminated"]["exitCode"] for each in status["containerStatuses"]] == [7, 7]
        assert await agent.logs("main") == "run\nend\n"


async def test_a_container_that_ends_without_the_agent_is_reported_afterwards(tmp_path: Path) -> None:
    script = f"until [ -e {tmp_path}/stop ]; do sleep 0.1; done; exit 7"
    async with running_agent(tmp_path) as agent:
        await agent.launch({"restartPolicy": "Never", "containers": [shell(script)]})
        await agent.until(running)
        await agent.end(signal.SIGKILL)
        (tmp_path / "stop").touch()
        exit_file = tmp_path / "run" / "runs" / "main" / "0" / "exit"
        await eventually(exit_file.exists)
        await agent.start()
        status = await agent.until(finished)
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


async def test_after_a_reboot_of_the_vm_the_application_has_failed(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.launch({"containers": [shell("exec sleep 1000")]})
        await agent.until(running)
        await agent.terminate(gracePeriodSeconds=0)
    state = (tmp_path / "state" / "state.json").read_text()
    assert '"phase": "Failed"' in state
    (tmp_path / "state" / "state.json").write_text(state.replace('"phase": "Failed"', '"phase": "Running"'))
    (tmp_path / "run" / "pod").unlink()  # systemd empties the directory at boot
    async with running_agent(tmp_path) as agent:
        status = await agent.status()
        assert (status["phase"], status["reason"]) == ("Failed", "VMRebooted")
        # The controllers send a launch again if they have stopped before they wrote the answer.
        await agent.launch({"containers": [shell("exec sleep 1000")]})
        assert await agent.status() == status
        await agent.launch({"containers": [shell("exec sleep 1000")]}, uid="b")
        await agent.until(running)


@pytest.mark.skipif(subprocess.call(["unshare", "--mount", "true"]) != 0, reason="this user may not mount")
async def test_containers_share_volumes_which_are_gone_afterwards(tmp_path: Path) -> None:
    inside, outside = tmp_path / "mounted" / "deep", tmp_path / "outside"
    files = [{"path": "a/token", "content": b"\xffsecret", "mode": 0o400}]
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "key", "secret": {"secretName": "key"}, "files": files},
    ]
    mounts = [
        {"name": "scratch", "mountPath": str(inside)},
        {"name": "key", "mountPath": str(tmp_path / "key")},
        {"name": "key", "mountPath": str(tmp_path / "token"), "subPath": "a/token"},
    ]
    script = f"cmp {tmp_path}/token {tmp_path}/key/a/token && stat -c %a {tmp_path}/token && ls -A {inside}"
    spec = {
        "restartPolicy": "Never",
        "volumes": volumes,
        "initContainers": [shell(f"touch {inside}/first", "init", volumeMounts=mounts)],
        "containers": [
            shell(f"{script} && ! touch {tmp_path}/key/b", volumeMounts=mounts),
            shell(f"touch {outside}; ls -A {inside}", "without"),
        ],
    }
    async with running_agent(tmp_path) as agent:
        await agent.launch(spec)
        status = await agent.until(finished)
        assert (await agent.logs("main")).splitlines()[:2] == ["400", "first"]
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
        assert await agent.logs("without") == ""
        await agent.terminate()
    assert not [each for each in files_in(tmp_path) if "token" in each or "first" in each or "mounted" in each]
    assert outside.exists()


async def test_what_cannot_be_started_is_explained(tmp_path: Path) -> None:
    containers = [
        {"name": "nothing", "command": ["/no/such/program"]},
        shell("true", "nowhere", workingDir="/no/such/directory"),
    ]
    async with running_agent(tmp_path) as agent:
        await agent.launch({"restartPolicy": "Never", "containers": containers})
        status = await agent.until(finished)
        ends = [each["state"]["terminated"] for each in status["containerStatuses"]]
        assert [(each["exitCode"], each["reason"]) for each in ends] == [(128, "StartError")] * 2
        assert ends[0]["message"] == "exec '/no/such/program': No such file or directory"
        assert ends[1]["message"] == "chdir to workingDir '/no/such/directory': No such file or directory"


async def test_probes_gate_each_other_and_a_failed_liveness_probe_restarts_the_container(tmp_path: Path) -> None:
    def test_of(name: str) -> Json:
        return {"exec": {"command": ["test", "-e", str(tmp_path / name)]}, "periodSeconds": 1, "failureThreshold": 100}

    main = shell(
        "echo run; exec sleep 1000",
        startupProbe=test_of("started"),
        readinessProbe=test_of("ready"),
        livenessProbe={**test_of("alive"), "failureThreshold": 1, "terminationGracePeriodSeconds": 0},
    )
    async with running_agent(tmp_path) as agent:
        await agent.launch({"containers": [main]})
        status = await agent.until(running)
        assert (status["containerStatuses"][0]["started"], status["containerStatuses"][0]["ready"]) == (False, False)
        for name in ("ready", "alive", "started"):
            (tmp_path / name).touch()
        await agent.until(lambda status: bool(status["containerStatuses"][0]["ready"]))
        (tmp_path / "alive").unlink()
        status = await agent.until(lambda status: status["containerStatuses"][0]["restartCount"] >= 1)
        assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
        (tmp_path / "alive").touch()


@pytest.mark.skipif(subprocess.call(["unshare", "--mount", "true"]) != 0, reason="this user may not mount")
async def test_a_command_of_a_probe_sees_the_volumes_of_its_container(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    main = shell(
        "exec sleep 1000",
        workingDir=str(tmp_path / "work"),
        volumeMounts=[{"name": "v", "mountPath": str(tmp_path / "mounted")}],
        readinessProbe={"exec": {"command": ["cmp", "../mounted/a", "../mounted/b"]}, "timeoutSeconds": 30},
    )
    volume = {"name": "v", "configMap": {}, "files": [{"path": name, "content": b"same"} for name in ("a", "b")]}
    async with running_agent(tmp_path) as agent:
        await agent.launch({"volumes": [volume], "containers": [main]})
        await agent.until(lambda status: bool(status["containerStatuses"][0]["ready"]))


async def test_the_controllers_read_logs(tmp_path: Path) -> None:
    spec = {"restartPolicy": "Never", "containers": [shell("echo one; echo two", "main")]}
    async with running_agent(tmp_path) as agent:
        await agent.launch(spec, uid="p")
        await agent.until(finished)
        endpoint, client = AgentEndpoint("127.0.0.1", agent.port, grpc=True), NetworkAgentClient()

        async def read(**request: object) -> bytes:
            return b"".join([each async for each in client.logs(endpoint, {"podUID": "p", **request})])

        assert await read(container="main") == b"one\ntwo\n"
        assert await read(container="main", tailLines=1) == b"two\n"
        with pytest.raises(LogsRefused, match="there is no container") as refused:
            await read(container="other")
        assert refused.value.code == "NOT_FOUND"
