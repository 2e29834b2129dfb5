"""Stand-ins for GitHub, GitLab Runner and Jenkins, and for the guests in which they run jobs.

They follow the sources of actions/scaleset, gitlab-runner (executors/custom) and jenkinsci/remoting in what the recipes
of docs/tasks/ci.md touch. What they leave out:

- GitHub: Apps as credentials, runner groups, and what the runner itself says to GitHub. The stand-in's runner asks for
  its job with the name in its configuration.
- GitLab Runner: its scripts. Each stage of a test is a script of the test.
- Jenkins: what the agent and Jenkins say after the connection, which is Java serialization. The agent ends at once.
- Guests: ssh and the guest. A command runs on this machine, in a directory that belongs to the VM.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any

from aiohttp import web

from tests.serving import serving

Json = dict[str, Any]

PREPARE_ATTEMPTS = 3
SSH = """#!/bin/sh
# Runs the command like a guest. The file `lost` makes the next connection fail.
while [ "${1#-}" != "$1" ]; do shift 2; done
vm=${1#*@}; shift
rm "$GUESTS/lost" 2>/dev/null && exit 255
[ -d "$GUESTS/$vm" ] || cp -r "$GUESTS/image" "$GUESTS/$vm"
cd "$GUESTS/$vm" && HOME=$PWD PATH=$PWD/bin:$PATH exec sh -c "$*"
"""
RUN = """#!{python}
# The runner of GitHub Actions: runs the job of its configuration, and reports the result.
import base64, json, os, subprocess, sys, urllib.request
def post(path, body):
    request = urllib.request.Request(configuration["url"] + path, json.dumps(body).encode(), method="POST")
    return json.loads(urllib.request.urlopen(request, timeout=180).read())
configuration = json.loads(base64.b64decode(os.environ["ACTIONS_RUNNER_INPUT_JITCONFIG"]))
if "exit" in configuration:
    sys.exit(configuration["exit"])
about = {{"name": configuration["name"], "vm": os.path.basename(os.environ["HOME"])}}
job = post("/runner/job", about)
code = subprocess.run(["sh", "-c", job["script"]]).returncode
post("/runner/result", about | {{"id": job["id"], "result": "failed" if code else "succeeded"}})
"""
JAVA = """#!{python}
# Connects like the agent of Jenkins with -webSocket, and ends.
import http.client, sys, urllib.parse
arguments = [each for each in sys.argv[1:] if each != "-webSocket"]
options = dict(zip(arguments[::2], arguments[1::2]))
assert open(options["-jar"]).read() == "the agent" and "-webSocket" in sys.argv, sys.argv
url = urllib.parse.urlsplit(options["-url"])
connection = http.client.HTTPConnection(url.netloc, timeout=180)
secret = open(options["-secret"].removeprefix("@")).read().strip()
headers = {{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13", "Node-Name": options["-name"], "Secret-Key": secret}}
connection.request("GET", url.path.rstrip("/") + "/wsagents/", headers=headers)
sys.exit(0 if connection.getresponse().status == 101 else 1)
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@dataclass(frozen=True)
class Guests:
    """Where commands run that are for VMs."""

    directory: Path
    kubeconfig: Path

    def __post_init__(self) -> None:
        program(self.directory / "programs" / "ssh", SSH)
        program(self.directory / "programs" / "virtctl", "#!/bin/sh\n")
        program(self.directory / "image" / "actions-runner" / "run.sh", RUN.format(python=sys.executable))
        program(self.directory / "image" / "bin" / "java", JAVA.format(python=sys.executable))

    def lose_next(self) -> None:
        (self.directory / "lost").touch()

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.directory / "programs"), str(Path(sys.executable).parent), os.environ["PATH"]])
        return {"PATH": path, "KUBECONFIG": str(self.kubeconfig), "GUESTS": str(self.directory), "HOME": "/nonexistent"}

    async def start(self, *command: str, **environment: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            env=self.environment | environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def run(self, *command: str, **environment: str) -> tuple[int, str]:
        """The exit code and the output."""
        process = await self.start(*command, **environment)
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()


@dataclass
class JobResult:
    kind: str
    """`success`, `script_failure`, `runner_system_failure` or `unknown_failure`"""
    exit_code: int = 0
    log: str = ""


@dataclass(frozen=True)
class GitLabRunner:
    """Runs a job with the executables of a custom executor, as `executors/custom` of GitLab Runner does."""

    guests: Guests
    executor: Path
    directory: Path

    async def job(self, number: int, stages: Mapping[str, str], settings: Mapping[str, str] = {}) -> JobResult:
        """Runs the stages in order. `settings` is the environment of the runner's service."""
        self.directory.mkdir(parents=True, exist_ok=True)
        codes = self.directory / f"{number}.exit-code"
        environment = {
            "TMPDIR": str(self.directory),
            "BUILD_FAILURE_EXIT_CODE": "1",
            "SYSTEM_FAILURE_EXIT_CODE": "2",
            "BUILD_EXIT_CODE_FILE": str(codes),
            "CUSTOM_ENV_CI_RUNNER_ID": "7",
            "CUSTOM_ENV_CI_JOB_ID": str(number),
            **settings,
        }
        log = ""

        async def call(*arguments: str) -> JobResult:
            nonlocal log
            code, output = await self.guests.run(str(self.executor), *arguments, **environment)
            log += output
            if code == 1:
                return JobResult("script_failure", int(codes.read_text()) if codes.exists() else 1, log)
            kinds = {0: "success", 2: "runner_system_failure"}
            return JobResult(kinds.get(code, "unknown_failure"), code, log)

        for _ in range(PREPARE_ATTEMPTS):
            prepared = await self._prepare(call, environment)
            if prepared.kind == "success":
                break
            await call("cleanup")
        else:
            return prepared
        result = prepared
        for stage, script in stages.items():
            path = self.directory / f"{number}-{stage}"
            path.write_text(script)
            result = await call("run", str(path), stage)
            if result.kind != "success":
                break
        await call("cleanup")
        return result

    async def _prepare(self, call: Any, environment: dict[str, str]) -> JobResult:
        code, output = await self.guests.run(str(self.executor), "config", **environment)
        settings = json.loads(output) if code == 0 else {}
        known = {"driver", "hostname", "builds_dir", "cache_dir", "builds_dir_is_shared", "job_env", "shell"}
        assert {"driver"} <= settings.keys() <= known, output
        environment.update(settings.get("job_env", {}))
        result: JobResult = await call("prepare")
        return result


@dataclass
class GitHub:
    """The API of runner scale sets, with one scale set."""

    url: str = ""
    messages: list[Json] = field(default_factory=list)
    """messages that the listener has not deleted"""
    jobs: dict[int, Json] = field(default_factory=dict)
    runners: dict[int, str] = field(default_factory=dict)
    removed: list[int] = field(default_factory=list)
    """runners that the listener has removed"""
    session: str = ""
    queue_token: int = 0
    refreshed: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _number: int = 0

    def queue(self, script: str) -> int:
        number = len(self.jobs) + 1
        self.jobs[number] = {"id": number, "script": script, "state": "available"}
        self._tell("JobAvailable", number, acquireJobUrl=self.url)
        return number

    def results(self) -> dict[int, str]:
        return {number: str(job.get("result", job["state"])) for number, job in self.jobs.items()}

    def expire(self) -> None:
        """The token of the message queue expires."""
        self.queue_token += 1

    @property
    def statistics(self) -> Json:
        states = [job["state"] for job in self.jobs.values()]
        assigned = sum(state in ("assigned", "running") for state in states)
        return {"totalAvailableJobs": states.count("available"), "totalAssignedJobs": assigned}

    def _tell(self, kind: str, job: int, **more: Any) -> None:
        self._number += 1
        body = json.dumps([{"messageType": kind, "runnerRequestId": job, **more}])
        message = {"messageId": self._number, "messageType": "RunnerScaleSetJobMessages", "body": body}
        self.messages.append(message)
        self.changed.set()

    def routes(self) -> list[web.RouteDef]:
        sets = "/tenant/_apis/runtime/runnerscalesets"
        return [
            web.post("/api/v3/orgs/shop/actions/runners/registration-token", self._registration),
            web.post("/api/v3/actions/runner-registration", self._admin),
            web.get(sets, self._find),
            web.post(sets, self._create),
            web.post(f"{sets}/5/sessions", self._open),
            web.patch(f"{sets}/5/sessions/{{session}}", self._refresh),
            web.delete(f"{sets}/5/sessions/{{session}}", self._close),
            web.post(f"{sets}/5/acquirejobs", self._acquire),
            web.post(f"{sets}/5/generatejitconfig", self._configure),
            web.delete("/tenant/_apis/distributedtask/pools/0/agents/{runner}", self._remove),
            web.get("/messages", self._receive),
            web.delete("/messages/{message}", self._acknowledge),
            web.post("/runner/job", self._give_job),
            web.post("/runner/result", self._take_result),
        ]

    async def _registration(self, http: web.Request) -> web.Response:
        _expect(http, "Bearer a-token")
        return web.json_response({"token": "registration", "expires_at": "2030-01-01T00:00:00Z"}, status=201)

    async def _admin(self, http: web.Request) -> web.Response:
        _expect(http, "RemoteAuth registration")
        assert await http.json() == {"url": f"{self.url}/shop", "runner_event": "register"}
        claims = base64.urlsafe_b64encode(json.dumps({"exp": time() + 3600}).encode()).decode().rstrip("=")
        return web.json_response({"url": f"{self.url}/tenant/", "token": f"e30.{claims}.x"}, status=201)

    async def _find(self, http: web.Request) -> web.Response:
        _expect(http, "Bearer e30.", api=True)
        assert http.query["name"] == "warm"
        return web.json_response({"count": 0, "value": []})

    async def _create(self, http: web.Request) -> web.Response:
        _expect(http, "Bearer e30.", api=True)
        body = await http.json()
        assert (body["name"], body["labels"]) == ("warm", [{"name": "warm", "type": "System"}])
        return web.json_response({**body, "id": 5})

    async def _open(self, http: web.Request) -> web.Response:
        _expect(http, "Bearer e30.", api=True)
        if self.session:
            return web.json_response({"message": "the scale set has a session"}, status=409)
        self.session = "0a7d9d3c-1111-4222-8333-444455556666"
        return web.json_response(self._session() | {"statistics": self.statistics})

    async def _refresh(self, http: web.Request) -> web.Response:
        _expect(http, "Bearer e30.", api=True)
        self.refreshed += 1
        return web.json_response(self._session())

    def _session(self) -> Json:
        token = f"queue-{self.queue_token}"
        return {
            "sessionId": self.session,
            "messageQueueUrl": f"{self.url}/messages?x=1",
            "messageQueueAccessToken": token,
        }

    async def _close(self, http: web.Request) -> web.Response:
        assert http.match_info["session"] == self.session
        self.session = ""
        return web.Response(status=204)

    def _expired(self, http: web.Request) -> bool:
        return http.headers["Authorization"] != f"Bearer queue-{self.queue_token}"

    async def _receive(self, http: web.Request) -> web.Response:
        if self._expired(http):
            return web.Response(status=401)
        assert int(http.headers["X-ScaleSetMaxCapacity"]) > 0
        last = int(http.query.get("lastMessageId", 0))
        for _ in range(10):  # GitHub holds the request longer
            for message in self.messages:
                if message["messageId"] > last:
                    return web.json_response(message | {"statistics": self.statistics})
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), 0.1)
            except TimeoutError:
                continue
        return web.Response(status=202)

    async def _acknowledge(self, http: web.Request) -> web.Response:
        if self._expired(http):
            return web.Response(status=401)
        self.messages = [each for each in self.messages if str(each["messageId"]) != http.match_info["message"]]
        return web.Response(status=204)

    async def _acquire(self, http: web.Request) -> web.Response:
        _expect(http, "Bearer queue-", api=True)
        if self._expired(http):
            return web.Response(status=401)
        numbers = await http.json()
        for number in numbers:
            self.jobs[number]["state"] = "assigned"
            self._tell("JobAssigned", number)
        return web.json_response({"count": len(numbers), "value": numbers})

    async def _configure(self, http: web.Request) -> web.Response:
        _expect(http, "Bearer e30.", api=True)
        name = (await http.json())["name"]
        number = len(self.runners) + 100
        self.runners[number] = name
        return web.json_response({"runner": {"id": number, "name": name}, "encodedJITConfig": self.configuration(name)})

    def configuration(self, name: str, **more: Any) -> str:
        return base64.b64encode(json.dumps({"url": self.url, "name": name, **more}).encode()).decode()

    async def _remove(self, http: web.Request) -> web.Response:
        self.removed.append(int(http.match_info["runner"]))
        return web.Response(status=204)

    async def _give_job(self, http: web.Request) -> web.Response:
        about = await http.json()
        job = next(job for job in self.jobs.values() if job["state"] == "assigned")
        job |= {"state": "running", "vm": about["vm"]}
        self._tell("JobStarted", job["id"], runnerName=about["name"])
        return web.json_response(job)

    async def _take_result(self, http: web.Request) -> web.Response:
        about = await http.json()
        self.jobs[about["id"]] |= {"state": "completed", "result": about["result"]}
        self._tell("JobCompleted", about["id"], runnerName=about["name"], result=about["result"])
        return web.json_response({})


@dataclass
class Jenkins:
    """The routes of Jenkins that an inbound agent with -webSocket uses."""

    url: str = ""
    secret: str = "5ec7e7"
    connected: list[str] = field(default_factory=list)
    """names of agents"""

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/jnlpJars/agent.jar", self._agent), web.get("/wsagents/", self._connect)]

    async def _agent(self, http: web.Request) -> web.Response:
        return web.Response(body=b"the agent")

    async def _connect(self, http: web.Request) -> web.StreamResponse:
        if http.headers.get("Secret-Key") != self.secret:
            return web.Response(status=403)
        self.connected.append(http.headers["Node-Name"])
        socket = web.WebSocketResponse()
        await socket.prepare(http)
        return socket


def _expect(http: web.Request, authorization: str, *, api: bool = False) -> None:
    assert http.headers["Authorization"].startswith(authorization), http.headers
    assert not api or http.query["api-version"] == "6.0-preview", http.url


@asynccontextmanager
async def served(service: GitHub | Jenkins) -> AsyncIterator[None]:
    async with serving(*service.routes()) as port:
        service.url = f"http://127.0.0.1:{port}"
        yield
