"""boto3 against a server that answers like EC2: what is sent, and what each answer means."""

from __future__ import annotations

import ast
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from controllers.warmpool.ec2 import client
from controllers.warmpool.ec2.client import Boto3EC2Client, EC2Client
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.ec2.tags import CLUSTER
from controllers.warmpool.events import SERVER_UNAVAILABLE, create_failure
from poolhouse.runtime.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unavailable,
    Unreachable,
)

Json = dict[str, Any]
Asked = dict[str, str]

INSTANCE = "<item><instanceId>{}</instanceId><instanceState><name>running</name></instanceState></item>"
LAUNCHED = f"<RunInstancesResponse><instancesSet>{INSTANCE.format('i-1')}</instancesSet></RunInstancesResponse>"


def error_body(code: str) -> str:
    error = f"<Error><Code>{code}</Code><Message>said EC2</Message></Error>"
    return f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>"


def page(instance: str, following: str = "") -> str:
    group = f"<item><instancesSet>{INSTANCE.format(instance)}</instancesSet></item>"
    more = f"<nextToken>{following}</nextToken>" if following else ""
    return f"<DescribeInstancesResponse><reservationSet>{group}</reservationSet>{more}</DescribeInstancesResponse>"


@dataclass
class Ec2:
    """Each question gets the next of `answers`, the last one for ever; None is a connection that breaks."""

    answers: list[tuple[int, str] | None] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def next(self) -> tuple[int, str] | None:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Handler(BaseHTTPRequestHandler):
    ec2: Ec2

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.ec2.asked.append({key: value[0] for key, value in parse_qs(body).items()})
        if (answer := self.ec2.next()) is None:
            return
        status, text = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Tests do not log requests."""


@pytest.fixture(scope="module")
def aws() -> Iterator[tuple[Boto3EC2Client, Callable[..., Ec2]]]:
    with pytest.MonkeyPatch.context() as patch:
        for key, value in (("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")):
            patch.setenv(key, value)
        patch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
        handler = type("Handler", (Handler,), {"ec2": Ec2()})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()

        def answers(*given: tuple[int, str] | None) -> Ec2:
            handler.ec2 = Ec2(list(given))
            return handler.ec2

        try:
            yield (
                Boto3EC2Client(EC2Settings(region="us-east-1", endpoint=f"http://127.0.0.1:{server.server_port}")),
                answers,
            )
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


async def test_a_launch_without_answer_is_repeated_with_the_same_token(aws: Any) -> None:
    ec2_client, answers = aws
    ec2 = answers(None, (200, LAUNCHED))
    made = await ec2_client.run({"ImageId": "ami-1", "ClientToken": "once"})
    assert made["InstanceId"] == "i-1"
    assert [(each["Action"], each["ClientToken"]) for each in ec2.asked] == [("RunInstances", "once")] * 2


async def test_all_pages_are_read(aws: Any) -> None:
    ec2_client, answers = aws
    ec2 = answers((200, page("i-1", "more")), (200, page("i-2")))
    found = await ec2_client.describe({"instance-state-name": ["running"]})
    assert [each["InstanceId"] for each in found] == ["i-1", "i-2"]
    assert [each.get("NextToken") for each in ec2.asked] == [None, "more"]
    assert all(each["Filter.1.Value.1"] == "running" for each in ec2.asked)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        # As EC2 sends them: a full zone is an error of the server, credentials that expired one of the request.
        (500, "InsufficientInstanceCapacity", Forbidden),
        (503, "RequestLimitExceeded", Throttled),
        (400, "RequestExpired", Forbidden),
        (401, "AuthFailure", Forbidden),
        (403, "UnauthorizedOperation", Forbidden),
        (400, "InvalidInstanceID.NotFound", NotFound),
    ],
)
async def test_refusals_over_http(aws: Any, status: int, code: str, kind: type[ApiError]) -> None:
    ec2_client, answers = aws
    answers((status, error_body(code)))
    with pytest.raises(kind, match=f"{code}: said EC2") as raised:
        await ec2_client.terminate("i-1")
    assert (create_failure(raised.value).reason == "InsufficientCapacity") is (code in client.CAPACITY_ERRORS)
    assert isinstance(raised.value, SERVER_UNAVAILABLE) is (code in client.THROTTLING_ERRORS)


@pytest.mark.parametrize("answer", [None, (502, "<html>a proxy</html>"), (200, "<html>a proxy")])
async def test_a_missing_answer_leaves_the_outcome_unknown(aws: Any, answer: tuple[int, str] | None) -> None:
    ec2_client, answers = aws
    answers(answer)
    with pytest.raises(SERVER_UNAVAILABLE):
        await ec2_client.tag("i-1", {"WarmPool": "Ready"})


async def test_calls_without_credentials_are_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    ec2_client: EC2Client = Boto3EC2Client(EC2Settings(region="us-east-1", endpoint="http://127.0.0.1:9"))
    with pytest.raises(Forbidden, match="credentials"):
        await ec2_client.describe({})


async def test_a_closed_port_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    with pytest.raises(Unreachable):
        await Boto3EC2Client(EC2Settings(region="us-east-1", endpoint="http://127.0.0.1:9")).describe({})


def test_throttling_errors_include_those_of_boto3() -> None:
    from botocore.retries.standard import ThrottledRetryableChecker

    of_other_services = {
        "ProvisionedThroughputExceededException",
        "TransactionInProgressException",
        "LimitExceededException",
    }
    assert set(ThrottledRetryableChecker._THROTTLED_ERROR_CODES) - of_other_services <= client.THROTTLING_ERRORS


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("InvalidInstanceID.NotFound", 400, NotFound),
        ("InvalidAMIID.NotFound", 400, Invalid),
        ("InvalidParameterValue", 400, Invalid),
        ("RequestLimitExceeded", 503, Throttled),
        ("UnauthorizedOperation", 403, Forbidden),
        ("AuthFailure", 401, Forbidden),
        ("IdempotentParameterMismatch", 400, AlreadyExists),
        ("InternalError", 500, Unavailable),
        ("RequestTimeout", 400, Unavailable),
        ("", 502, Unavailable),
    ],
)
def test_api_errors(code: str, status: int, kind: type[ApiError]) -> None:
    error = client.api_error({"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}})
    assert type(error) is kind


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("InsufficientHostCapacity", id="no dedicated host"),
        pytest.param("InsufficientInstanceCapacity", id="a full zone"),
        pytest.param("InstanceLimitExceeded", id="the quota of instances"),
        pytest.param("VcpuLimitExceeded", id="the quota of processors"),
        pytest.param("HostLimitExceeded", id="the quota of hosts"),
        pytest.param("InsufficientFreeAddressesInSubnet", id="no address in the subnet"),
        *sorted(client.CAPACITY_ERRORS),
    ],
)
@pytest.mark.sentence("5.5", "5.59")
def test_missing_capacity_is_reported_like_a_full_quota(code: str) -> None:
    error = client.api_error(
        {"Error": {"Code": code, "Message": "none left"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    )
    assert create_failure(error).reason == "InsufficientCapacity"


# The rights that docs/reference/ec2.md gives to the controllers

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "ec2.md"
WITHOUT_A_CALL = {"iam:PassRole", "s3:GetObject"}
"""needed by RunInstances with an instance profile, and by whoever uses a signed URL of the controllers"""


def statements() -> list[Json]:
    (policy,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found: list[Json] = json.loads(policy)["Statement"]
    return found


def as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def called_methods() -> Iterator[str]:
    """Methods of boto3's client that are called, such as `run_instances`."""
    for node in ast.walk(ast.parse(Path(client.__file__).read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if ast.unparse(node.func.value) != "self._ec2":
                continue
            if node.func.attr == "get_paginator":
                yield ast.literal_eval(node.args[0])
            else:
                yield node.func.attr


@pytest.mark.sentence("5.6")
def test_the_documented_rights_are_those_of_the_calls() -> None:
    needed = {f"ec2:{''.join(word.title() for word in name.split('_'))}" for name in called_methods()}
    assert len(needed) == 4
    granted = {action for each in statements() for action in as_list(each["Action"])}
    assert granted == needed | WITHOUT_A_CALL


def test_the_documented_rights_cover_only_instances_of_the_cluster() -> None:
    """Every change of an instance needs the tag of the cluster, and a launch must set it."""
    for each in statements():
        actions, on_instances = as_list(each["Action"]), any("instance/" in r for r in as_list(each["Resource"]))
        if not on_instances:
            assert each["Resource"] != "*" or actions == ["ec2:DescribeInstances"]
            continue
        (condition,) = each["Condition"].values()
        assert condition in (
            {f"aws:RequestTag/{CLUSTER}": "CLUSTER"},
            {f"aws:ResourceTag/{CLUSTER}": "CLUSTER"},
            {"ec2:CreateAction": "RunInstances"},
        )
