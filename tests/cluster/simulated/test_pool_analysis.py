"""Updates that a real Prometheus or a Job judges, with guests that start and stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from controllers.pool.actions import RunJob
from controllers.pool.pools import POOLS, Pool, parse_pool
from controllers.pool.writes.jobs import run_job
from controllers.shared.sources import CRON_JOBS, JOBS
from poolhouse.manifests import rbac
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden
from poolhouse.runtime.events import EVENTS
from poolhouse.service.prometheus import Prometheus, PrometheusError, PrometheusServer
from poolhouse.stack.paths import StackPaths
from tests.cluster.pooling import Place, controller, until
from tests.cluster.simulated.test_pool_rollout import bigger, complete
from tests.cluster.test_pool import condition, said, status
from tests.generate.prometheus import ask, running_prometheus
from tests.ports import free_port
from tests.tokens import kubeconfig_with, token_of

Json = dict[str, Any]
SERIES = "last_over_time(error_ratio[5m])"
"""as it was last seen: on a busy machine a scrape may take longer than its second, and the series is stale until the
next one"""
QUERY = f"max({SERIES})"


class Exporter:
    """A target whose only metric has the value that a test sets."""

    def __init__(self) -> None:
        exporter = self
        self.value = 0.01

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(f'error_ratio{{pool="web"}} {exporter.value}\nerror_ratio{{pool="db"}} 0\n'.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    found = Exporter()
    yield found
    found.close()


@pytest.fixture(scope="module")
def address(exporter: Exporter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that scrapes the exporter every second."""
    target = {"job_name": "web", "static_configs": [{"targets": [f"127.0.0.1:{exporter.server.server_port}"]}]}
    directory = tmp_path_factory.mktemp("prometheus")
    with running_prometheus(directory, [target], lambda address: bool(ask(address, QUERY))) as found:
        yield found


@asynccontextmanager
async def client(address: str) -> AsyncIterator[Prometheus]:
    async with aiohttp.ClientSession() as session:
        yield Prometheus(PrometheusServer(address), session)


@pytest_asyncio.fixture
async def judged(simulated: StackPaths, guests: Place, address: str) -> AsyncIterator[Place]:
    async with (
        client(address) as prometheus,
        controller(simulated.kubeconfig, prometheus=prometheus),
    ):
        yield guests


def analysis(*checks: Json, **proactive: Any) -> Json:
    return {"proactive": {"analysis": {"checks": list(checks)}, **proactive}}


ERRORS = {
    "name": "errors",
    "prometheus": {"query": QUERY, "successCondition": "result < 0.05", "intervalSeconds": 10, "count": 2},
}
SMOKE = {"name": "smoke", "job": {"cronJob": "smoke-test"}}


async def observed(exporter: Exporter, address: str, value: float) -> None:
    exporter.value = value

    async def scraped() -> list[float]:
        return [float(sample["value"][1]) for sample in await asyncio.to_thread(ask, address, QUERY)]

    await until(scraped, [value])


async def test_a_prometheus_answers(address: str) -> None:
    async with client(address) as prometheus:
        assert await prometheus.query("scalar(vector(2.5))", "a") == 2.5
        assert await prometheus.query(f"count({SERIES})", "a") == 2
        assert await prometheus.query(f"absent({SERIES})", "a") is None
        for query, words in (
            (SERIES, "has 2 results; use sum"),
            ("sum(", "Prometheus answered 400: .*parse error"),
            ('"text"', "a result of type string"),
            ("error_ratio[1m]", "a result of type matrix"),
        ):
            with pytest.raises(PrometheusError, match=words):
                await prometheus.query(query, "a")


async def test_an_update_completes_when_its_checks_are_successful(
    judged: Place, exporter: Exporter, address: str
) -> None:
    await observed(exporter, address, 0.01)
    strategy = analysis(ERRORS, steps=[{"setReplicas": 1}, {"analysis": {}}])
    await judged.pool(3, maxUnavailable=1, updateStrategy=strategy)
    await complete(judged)
    assert [each["outcome"] for each in await status(judged, "history")] == ["Complete"]
    await judged.change(template=bigger())

    async def judges_one() -> bool:
        found = await judged.seen()
        reasons = {each["type"]: each["reason"] for each in found["status"]["conditions"]}
        return (reasons.get("Progressing"), found["status"]["updatedReplicas"]) == ("AnalysisRunning", 1)

    await until(judges_one, True)
    await complete(judged)
    found = (await judged.seen())["status"]
    assert found["currentRevision"] == found["updateRevision"]
    assert found["update"]["stepsDone"] == 4
    assert [each["outcome"] for each in found["history"]] == ["Complete", "Complete"]


async def test_an_update_whose_check_fails_is_rolled_back_and_not_tried_again(
    simulated: StackPaths, guests: Place, exporter: Exporter, address: str
) -> None:
    await observed(exporter, address, 0.5)
    async with client(address) as prometheus:
        async with controller(simulated.kubeconfig, prometheus=prometheus):
            await guests.pool(3, maxUnavailable=1, updateStrategy=analysis(ERRORS))
            await complete(guests)
            await guests.change(template=bigger())
            await until(lambda: condition(guests, "Progressing"), ("False", "UpdateAborted"))
            await until(lambda: said(guests, "Progressing", "3 of 3 VMs have the former template"), True)
        # The same template is not tried again, also not by another leader.
        await observed(exporter, address, 0.01)
        async with controller(simulated.kubeconfig, prometheus=prometheus):
            await until(lambda: status(guests, "readyReplicas"), 3)
            assert await condition(guests, "Progressing") == ("False", "UpdateAborted")
            words = "check errors failed 1 times, failureLimit is 0: result is 0.5, successCondition is result < 0.05"
            assert await said(guests, "Progressing", words)
            events, _ = await guests.api.list(EVENTS, guests.namespace)
            assert [each["note"] for each in events if each["reason"] == "UpdateAborted" and words in each["note"]]
            last = (await status(guests, "history"))[-1]
            assert (last["outcome"], last["reason"]) == ("RolledBack", "AnalysisFailed")
            domains = [vm["spec"]["template"]["spec"]["domain"] for vm in (await guests.vms()).values()]
            assert all((domain.get("cpu") or {}).get("cores") != 4 for domain in domains)
            # A user tries it again, and the checks count from the beginning.
            aborted = (await status(guests, "update"))["aborted"]["time"]
            annotations = {"poolhouse.dev/retry": aborted}
            await guests.api.patch(POOLS, guests.namespace, "web", {"metadata": {"annotations": annotations}})
            await complete(guests)
            assert [each["outcome"] for each in await status(guests, "history")] == ["Complete", "Complete"]


async def test_an_update_without_an_answer_of_prometheus_waits(simulated: StackPaths, guests: Place) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    strategy = analysis(ERRORS, steps=[{"setReplicas": 1}, {"analysis": {}}])
    async with (
        client(nowhere) as prometheus,
        controller(simulated.kubeconfig, prometheus=prometheus),
    ):
        await guests.pool(3, maxUnavailable=1, updateStrategy=strategy)
        await complete(guests)
        await guests.change(template=bigger())
        await until(lambda: condition(guests, "Progressing"), ("True", "AnalysisInconclusive"))
        await until(lambda: said(guests, "Progressing", "check errors: Error: Prometheus cannot be reached"), True)
        await guests.change(progressDeadlineSeconds=15)
        await until(lambda: condition(guests, "Progressing"), ("False", "ProgressDeadlineExceeded"))
        assert await said(guests, "Progressing", "check errors was not successful for 15 s")
        assert await status(guests, "updatedReplicas") == 1
        # With `rollback` too: nothing says that the template is bad.
        changed = await guests.change(updateStrategy={"proactive": {"rollback": {}}})
        await until(lambda: status(guests, "observedGeneration"), changed["metadata"]["generation"])
        assert await condition(guests, "Progressing") == ("False", "ProgressDeadlineExceeded")
        assert await status(guests, "updatedReplicas") == 1


async def test_a_job_judges_an_update(simulated: StackPaths, guests: Place) -> None:
    async with controller(simulated.kubeconfig):
        await guests.pool(2, updateStrategy=analysis(SMOKE))
        await complete(guests)
        await cron_job(guests, {})
        await guests.change(template=bigger())
        await until(lambda: said(guests, "ReplicaFailure", 'lacks the label poolhouse.dev/pool-analysis: "true"'), True)
        assert await jobs(guests) == []
        labels = {"metadata": {"labels": {"poolhouse.dev/pool-analysis": "true"}}}
        await guests.api.patch(CRON_JOBS, guests.namespace, "smoke-test", labels)
        await until(lambda: count(guests), 1)
        (job,) = await jobs(guests)
        await until(lambda: condition(guests, "Progressing"), ("True", "AnalysisRunning"))
        owner = job["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"]) == ("VirtualMachinePool", "web")
        assert job["spec"]["template"]["metadata"]["annotations"]["poolhouse.dev/analysed-pool"] == "web"
        assert job["spec"]["ttlSecondsAfterFinished"] == 86400
        await ended(guests, job, "Complete")
        await complete(guests)
        # The next update fails.
        again = bigger()
        again["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 2}
        await guests.change(template=again)
        await until(lambda: count(guests), 2)
        (second,) = [each for each in await jobs(guests) if each["metadata"]["name"] != job["metadata"]["name"]]
        await ended(guests, second, "Failed")
        await until(lambda: condition(guests, "Progressing"), ("False", "UpdateAborted"))
        assert await said(guests, "Progressing", "check smoke failed: Job")
        assert await said(guests, "Progressing", "BackoffLimitExceeded")


async def test_the_right_to_create_jobs_is_the_operators_choice(
    simulated: StackPaths, guests: Place, tmp_path: Path
) -> None:
    await guests.pool(1)
    await cron_job(guests, {"poolhouse.dev/pool-analysis": "true"})
    pool = parse_pool(await guests.seen())
    assert isinstance(pool, Pool)
    action = RunJob("web-smoke", "smoke", "smoke-test", "web-1", "a test")
    account = {"metadata": {"namespace": guests.namespace, "name": "controllers"}}
    path = f"/api/v1/namespaces/{guests.namespace}/serviceaccounts"
    await guests.api.request("POST", path, body=account)
    token = await token_of(guests.api, guests.namespace, "controllers")
    kubeconfig = kubeconfig_with(token, simulated.kubeconfig, tmp_path / "kubeconfig")
    async with await Api.connect(kubeconfig, user_agent="tests") as controllers:
        with pytest.raises(Forbidden, match=r"controllers\.analysis\.jobs"):
            await run_job(controllers, pool, action)
        group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{guests.namespace}"
        here = {"namespace": guests.namespace, "name": "jobs"}
        rules = [each.rule() for each in rbac.ANALYSIS_JOB_RULES]
        await guests.api.request("POST", f"{group}/roles", body={"metadata": here, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": "controllers", "namespace": guests.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jobs"}
        binding = {"metadata": here, "roleRef": role, "subjects": [subject]}
        await guests.api.request("POST", f"{group}/rolebindings", body=binding)

        async def created() -> list[str]:
            with suppress(Forbidden):  # the API server hears of a new role after a moment
                await run_job(controllers, pool, action)
            return [each["metadata"]["name"] for each in await jobs(guests)]

        await until(created, ["web-smoke"])
        await run_job(controllers, pool, action)
        assert (await controllers.get(JOBS, guests.namespace, "web-smoke"))["spec"]["ttlSecondsAfterFinished"] == 86400


async def cron_job(place: Place, labels: Json) -> None:
    container = {"name": "test", "image": "registry.example/test"}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": pod}}}
    metadata = {"namespace": place.namespace, "name": "smoke-test", "labels": labels}
    await place.api.create(CRON_JOBS, {"metadata": metadata, "spec": spec})


async def jobs(place: Place) -> list[Json]:
    items, _ = await place.api.list(JOBS, place.namespace)
    return items


async def count(place: Place) -> int:
    return len(await jobs(place))


async def ended(place: Place, job: Json, condition: str) -> None:
    """Ends a Job, as the Job controller would. The API server wants its intermediate condition first."""
    before = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[condition]
    reason = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
    time = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": each, "status": "True", "lastTransitionTime": time, **(reason if condition == "Failed" else {})}
        for each in (before, condition)
    ]
    change: Json = {"conditions": conditions, "startTime": time}
    change |= {"completionTime": time} if condition == "Complete" else {}
    await place.api.patch(JOBS, place.namespace, job["metadata"]["name"], {"status": change}, subresource="status")
