#!/usr/bin/env python3
"""Runs the jobs of a GitHub Actions runner scale set in VMs of a warm pool. See docs/tasks/ci.md.

The program listens for jobs as actions-runner-controller does, and needs no cluster of its own:

    GITHUB_CONFIG_URL=https://github.com/ORGANIZATION GITHUB_TOKEN=... github-scale-set.py --name warm --pool runners

A workflow uses the scale set with `runs-on: warm`. SIGTERM ends the program and the jobs that run.
"""

import argparse
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

SCALE_SETS = "_apis/runtime/runnerscalesets"
AGENTS = "_apis/distributedtask/pools/0/agents"
POLL_SECONDS = 90  # GitHub holds a request for messages for up to 50 s
RUN = (
    "read -r ACTIONS_RUNNER_INPUT_JITCONFIG && export ACTIONS_RUNNER_INPUT_JITCONFIG"
    " && cd ~/actions-runner && exec ./run.sh"
)


def send(method, url, token, body=None, scheme="Bearer", seconds=30, **headers):
    """Returns the status and the JSON of an answer. Raises urllib.error.HTTPError for a refusal."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"{scheme} {token}", "Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=seconds) as answer:
        content = answer.read()
        return answer.status, json.loads(content) if content else None


class Actions:
    """The service behind GitHub that scale sets talk to. Its token lasts about an hour."""

    def __init__(self, config_url, token):
        self.config_url, self.token = config_url, token
        self.url, self.admin, self.expires = "", "", 0.0

    def call(self, method, path, body=None, token=None, **query):
        if time.time() > self.expires - 60:
            self.log_in()
        address = f"{self.url.rstrip('/')}/{path}?{urlencode({'api-version': '6.0-preview', **query})}"
        return send(method, address, token or self.admin, body)[1]

    def log_in(self):
        parts = urlsplit(self.config_url)
        hosted = parts.hostname == "github.com" or parts.hostname.endswith(".ghe.com")
        api = f"{parts.scheme}://api.{parts.netloc}" if hosted else f"{parts.scheme}://{parts.netloc}/api/v3"
        path = parts.path.strip("/")
        scope = path if path.startswith("enterprises/") else f"{'repos' if '/' in path else 'orgs'}/{path}"
        found = send("POST", f"{api}/{scope}/actions/runners/registration-token", self.token)[1]
        body = {"url": self.config_url, "runner_event": "register"}
        _, admin = send("POST", f"{api}/actions/runner-registration", found["token"], body, scheme="RemoteAuth")
        self.url, self.admin = admin["url"], admin["token"]
        claims = self.admin.split(".")[1]
        self.expires = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]

    def scale_set(self, name, group=1):
        found = self.call("GET", SCALE_SETS, runnerGroupId=group, name=name)["value"]
        if found:
            return found[0]["id"]
        labels = [{"name": name, "type": "System"}]
        body = {"name": name, "runnerGroupId": group, "labels": labels, "RunnerSetting": {"disableUpdate": True}}
        return self.call("POST", SCALE_SETS, body)["id"]


class Session:
    """The messages of a scale set. One program at a time can have them."""

    def __init__(self, actions, scale_set):
        self.actions, self.path = actions, f"{SCALE_SETS}/{scale_set}"
        self.last = 0
        self.session = actions.call("POST", f"{self.path}/sessions", {"ownerName": socket.gethostname()})

    def messages(self, capacity):
        """Returns the number of jobs that have been assigned, and the jobs' messages."""
        url = self.session["messageQueueUrl"]
        if self.last:
            url += ("&" if "?" in url else "?") + f"lastMessageId={self.last}"
        accept = {"Accept": "application/json; api-version=6.0-preview", "X-ScaleSetMaxCapacity": str(capacity)}
        status, message = self.with_token(lambda token: send("GET", url, token, seconds=POLL_SECONDS, **accept))
        if status == 202:  # no message came
            return self.session["statistics"]["totalAssignedJobs"], []
        self.last = message["messageId"]
        self.session["statistics"] = message["statistics"]
        parts = urlsplit(self.session["messageQueueUrl"])
        done = parts._replace(path=f"{parts.path}/{self.last}").geturl()
        self.with_token(lambda token: send("DELETE", done, token))
        jobs = json.loads(message["body"] or "[]")
        if available := [job["runnerRequestId"] for job in jobs if job["messageType"] == "JobAvailable"]:
            path = f"{self.path}/acquirejobs"
            self.with_token(lambda token: self.actions.call("POST", path, available, token))
        return message["statistics"]["totalAssignedJobs"], jobs

    def with_token(self, request):
        """Sends a request with the token of the message queue, which is renewed if it has expired."""
        try:
            return request(self.session["messageQueueAccessToken"])
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
        path = f"{self.path}/sessions/{self.session['sessionId']}"
        self.session = self.session | self.actions.call("PATCH", path)
        return request(self.session["messageQueueAccessToken"])

    def runner(self, name):
        """Registers a runner for one job. Returns its ID and its configuration."""
        body = {"name": name, "workFolder": "_work"}
        found = self.actions.call("POST", f"{self.path}/generatejitconfig", body)
        return found["runner"]["id"], found["encodedJITConfig"]

    def close(self):
        self.actions.call("DELETE", f"{self.path}/sessions/{self.session['sessionId']}")


class Runners:
    """The claims with a runner. A runner counts until GitHub says that its job is completed."""

    def __init__(self, session, options):
        self.session, self.options = session, options
        self.running = {}

    def start(self):
        name = f"{self.options.name}-{uuid4().hex[:8]}"
        number, configuration = self.session.runner(name)
        claim = ["poolhouse", "claim", name, "--pool", self.options.pool, "--ttl", self.options.ttl]
        process = subprocess.Popen(
            [*claim, "--ssh", self.options.user, "--rm", "--exec", RUN], stdin=subprocess.PIPE, text=True
        )
        self.running[name] = number, process
        # The configuration is a secret: the VM gets it as input, so that no list of processes shows it.
        with suppress(BrokenPipeError):  # the process has failed already
            process.stdin.write(configuration + "\n")
            process.stdin.close()

    def adjust(self, assigned, jobs):
        for job in jobs:
            if job["messageType"] == "JobCompleted":
                self.running.pop(job.get("runnerName"), None)
        for name, (number, process) in list(self.running.items()):
            if process.poll():  # it has never run a job: no VM was ready, or the VM was lost
                print(f"{name}: ended with {process.returncode}", file=sys.stderr, flush=True)
                del self.running[name]
                try:
                    self.session.actions.call("DELETE", f"{AGENTS}/{number}")
                except urllib.error.HTTPError as error:
                    if error.code != 404:
                        raise
        for _ in range(min(assigned, self.options.max) - len(self.running)):
            self.start()

    def end(self):
        for _, process in self.running.values():
            process.terminate()  # it releases its claim
        for _, process in self.running.values():
            process.wait()


def listen(options):
    if shutil.which("poolhouse") is None:
        sys.exit("poolhouse is not installed")
    actions = Actions(os.environ["GITHUB_CONFIG_URL"].rstrip("/"), os.environ["GITHUB_TOKEN"])
    session = Session(actions, actions.scale_set(options.name))
    runners, pause = Runners(session, options), 1
    try:
        runners.adjust(session.session["statistics"]["totalAssignedJobs"], [])
        while True:
            try:
                runners.adjust(*session.messages(options.max))
                pause = 1
            except (OSError, TimeoutError) as error:
                print(f"GitHub: {error}; trying again in {pause} s", file=sys.stderr, flush=True)
                time.sleep(pause)
                pause = min(2 * pause, 60)
    finally:
        runners.end()
        session.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="name of the scale set, for `runs-on`")
    parser.add_argument("--pool", required=True, help="warm pool")
    parser.add_argument("--user", default="ci", help="user of the VMs (default: ci)")
    parser.add_argument("--max", type=int, default=20, help="most jobs at once (default: 20)")
    parser.add_argument("--ttl", default="6h", help="time limit of a VM (default: 6h)")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options = parser.parse_args()
    try:
        listen(options)
    except urllib.error.HTTPError as error:
        sys.exit(f"GitHub refuses {error.url}: {error}")


if __name__ == "__main__":
    main()
