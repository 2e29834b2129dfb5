"""Requests and rendering, with views that were filled by hand and an API server that is away."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml

from poolhouse.api.kinds import meta
from poolhouse.api.kinds.kubevirt import VM, VMI
from poolhouse.api.kinds.resource_types import POOLS
from poolhouse.cli.cluster import Cluster
from poolhouse.console.app import Console, Frame
from poolhouse.console.change import MAX_DRAFTS
from poolhouse.console.cluster_state import ClusterState
from poolhouse.console.context import Context
from poolhouse.console.server import Guard
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Conflict, Forbidden, NotFound, Unauthorized, Unreachable
from poolhouse.runtime.resource import VMIS, VMS, object_key
from tests.builders import manifest, owned_by, vm_spec, vmi_spec

Json = dict[str, Any]
PORT, TOKEN = 8123, "s3cret"
HOST = f"127.0.0.1:{PORT}"
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}


@dataclass
class Client:
    """A browser, and the views that the pages show."""

    http: httpx.AsyncClient
    state: ClusterState

    def add(self, kind: str, document: Json) -> None:
        for informer in self.state.informers:
            if informer.resource.kind == kind:
                informer.change(object_key(document), document)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(f"/{TOKEN}{path}", headers=headers)

    async def post(self, path: str, **values: str) -> httpx.Response:
        return await self.http.post(f"/{TOKEN}{path}", data=values, headers={"origin": f"http://{HOST}"})


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    async with await Api.connect(kubeconfig, user_agent="tests", timeout_seconds=2) as api:
        state = ClusterState(api, None, "alice")
        console = Console(Context(state, Cluster(kubeconfig, "shop")), Frame(f"/{TOKEN}", "cluster"))
        transport = httpx.ASGITransport(Guard(console, PORT, TOKEN))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as http:
            yield Client(http, state)


def text(answer: httpx.Response) -> str:
    """What a user reads."""
    body = answer.text.partition("<main")[2]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def pool(replicas: int, **metadata: Any) -> Json:
    metadata = {"name": "web", "namespace": "shop", "uid": "pool", "generation": 1, "resourceVersion": "1", **metadata}
    status = {"observedGeneration": 1, "replicas": replicas}
    return manifest(POOLS, spec={"replicas": replicas, "template": {"spec": vm_spec()}}, status=status, **metadata)


def vm(number: int) -> Json:
    metadata: Json = {"uid": f"vm-{number}", "resourceVersion": "1", "ownerReferences": owned_by(POOLS, "web", "pool")}
    status = {"ready": True, "created": True, "printableStatus": "Running"}
    return manifest(VMS, f"web-{number}", vm_spec(), "shop", status=status, **metadata)


def vmi(number: int, node: str) -> Json:
    owners = owned_by(VMS, f"web-{number}", f"vm-{number}")
    metadata: Json = {"uid": f"vmi-{number}", "resourceVersion": "1", "ownerReferences": owners}
    status = {"phase": "Running", "nodeName": node, "conditions": [{"type": "Ready", "status": "True"}]}
    return manifest(VMIS, f"web-{number}", vmi_spec({}), "shop", status=status, **metadata)


async def test_an_empty_cluster_has_pages(client: Client) -> None:
    for path, says in (
        ("/", "There is no object of Poolhouse here yet"),
        ("/warm", "There is no warm pool here yet"),
        ("/change", "Paste or edit the YAML"),
    ):
        answer = await client.get(path)
        assert answer.status_code == 200
        assert says in text(answer)
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/nothing", "There is no page /nothing."),
        ("/vpool/shop/absent", "There is no vpool absent in namespace shop."),
        ("/pods/shop/x", "There is no pods x in namespace shop."),
        ("/migpol/-/absent", "There is no migpol absent."),
        ("/static/..%2Fapp.py", ""),
        ("/static/none.js", ""),
    ],
)
async def test_what_is_not_there_is_not_found(client: Client, path: str, says: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    assert says in text(answer)


@pytest.mark.parametrize("path", ["", "/", "/warm", "/static/console.js", "/events?path=/", "/vpool/shop/absent"])
async def test_head_has_the_status_and_the_headers_of_get(client: Client, path: str) -> None:
    head = await client.http.head(f"/{TOKEN}{path}")
    assert head.content == b""
    if not path.startswith("/events"):  # which does not end
        get = await client.get(path)
        assert (head.status_code, head.headers) == (get.status_code, get.headers)


async def test_a_request_without_the_right_host_gets_nothing(client: Client) -> None:
    answer = await client.get("/", host="evil.example")
    assert answer.status_code == 403
    assert "<main" not in answer.text


async def test_names_are_text_and_never_markup(client: Client) -> None:
    evil = pool(1, name="<script>x</script>")
    evil["status"]["conditions"] = [{"type": "Stalled", "status": "True", "reason": "R", "message": "<img src=x>"}]
    client.add("VirtualMachinePool", evil)
    page = (await client.get("/?q=%22%3E%3Cscript%3E")).text + (await client.get("/")).text
    assert "<script>x" not in page
    assert "<img" not in page
    assert "&lt;img src=x&gt;" in page


async def test_a_pool_shows_its_vms_by_node_and_pages_them(client: Client) -> None:
    client.add("VirtualMachinePool", pool(250))
    for number in range(1, 251):
        client.add(VM.kind, vm(number))
        client.add(VMI.kind, vmi(number, f"node-{number % 2}"))
    answer = await client.get("/vpool/shop/web")
    assert answer.status_code == 200
    assert answer.text.count('<rect class="old ready"') == 250  # no revision says which template they have
    assert "node-0 125" in text(answer)
    assert "250 VMs · Previous page 1 of 3" in text(answer)
    third = text(await client.get("/vpool/shop/web?page=3"))
    assert "web-250" in third.partition("Search VMs")[2]
    found = text(await client.get("/vpool/shop/web?q=web-17+node-1"))
    assert "6 VMs" in found.partition("Search VMs")[2]  # web-17, 171, 173, 175, 177 and 179


@pytest.mark.parametrize("path", ["/", "/warm", "/policies"])
async def test_a_user_without_rights_reads_what_to_ask_for(path: str, client: Client) -> None:
    for informer in client.state.informers:
        informer.reflector.error = Forbidden("no", status=403)
    client.state.remember = _nothing
    page = text(await client.get(path))
    assert "There is no" not in page
    assert "in all namespaces, so the console shows none. Ask an administrator for the ClusterRole view" in page


async def _nothing(*_: Any) -> None:
    return None


async def test_a_state_is_told_by_the_type_of_an_error_and_not_by_its_text(client: Client) -> None:
    for informer in client.state.informers:
        if informer.resource.kind == VM.kind:
            informer.reflector.error = Conflict("Connection 403 Forbidden", status=409)
    page = text(await client.get("/"))
    assert "virtualmachines: 409: Connection 403 Forbidden" in page
    assert "may not list" not in page
    assert "The API server does not answer" not in page


@pytest.mark.parametrize(
    ("error", "listed", "lost"),
    [
        pytest.param(Forbidden("no", status=403), True, True, id="a right was taken away"),
        pytest.param(Unauthorized("no", status=401), True, True, id="the token has ended"),
        pytest.param(Forbidden("no", status=403), False, False, id="there never was a right"),
        pytest.param(
            Forbidden("no", status=403, call="watch pods"), True, False, id="the user may list, and not watch"
        ),
        pytest.param(Conflict("no", status=409), True, False, id="another error"),
    ],
)
async def test_a_right_is_lost_if_what_was_listed_is_refused(
    error: ApiError, listed: bool, lost: bool, client: Client
) -> None:
    for informer in client.state.informers:
        if informer.resource.kind == VM.kind and listed:
            informer.replace({})
    reflector = next(each.reflector for each in client.state.informers if each.resource.kind == VM.kind)
    for tell in reflector.on_error:
        tell(error)
    assert client.state.lost_right.is_set() is lost


@pytest.mark.parametrize(
    ("error", "stays"),
    [
        pytest.param(Unreachable("no answer"), True, id="no answer"),
        pytest.param(Forbidden("no", status=403), False, id="refused"),
        pytest.param(Unauthorized("no", status=401), False, id="the token has ended"),
        pytest.param(NotFound("no", status=404), False, id="deleted"),
    ],
)
async def test_what_was_read_stays_without_an_answer(client: Client, error: ApiError, stays: bool) -> None:
    async def read() -> str:
        return "read"

    async def fail() -> str:
        raise error

    assert await client.state.remember("vm", 1, read, seconds=0) == "read"
    for _ in range(2):
        if stays:
            assert await client.state.remember("vm", 2, fail, seconds=0) == "read"
        else:
            with pytest.raises(type(error)):
                await client.state.remember("vm", 2, fail, seconds=0)


@pytest.mark.parametrize("path", ["/", "/warm", "/policies"])
async def test_each_page_has_the_outage_of_poolhouse_itself(client: Client, path: str) -> None:
    assert "outage" not in text(await client.get(path))
    client.state.outage = "Poolhouse itself has an outage: webhook: <a> fails; `poolhouse doctor` says what to do"
    answer = await client.get(path)
    assert "webhook: &lt;a&gt; fails; <code>poolhouse doctor</code> says what to do" in answer.text


async def test_an_invalid_pool_says_why(client: Client) -> None:
    broken = pool(1)
    broken["spec"]["maxUnavailable"] = {"no": "number"}
    client.add("VirtualMachinePool", broken)
    assert "The spec is invalid" in text(await client.get("/vpool/shop/web"))


async def test_without_the_api_server_an_act_fails_with_its_error(client: Client) -> None:
    answer = await client.post("/act/pause/vpool/shop/web")
    assert answer.status_code == 303
    assert "failed=yes" in answer.headers["location"]
    assert "cannot+connect" in answer.headers["location"].replace("%20", "+")


@pytest.mark.parametrize("path", ["/act/explode/vpool/shop/web", "/act/pause/pod/shop/web"])
async def test_an_act_that_does_not_exist(client: Client, path: str) -> None:
    assert (await client.post(path)).status_code == 404


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "YAML: invalid YAML"),
        ("", "YAML: contains no object"),
        ("kind: Pod", "the console changes VirtualMachinePool"),
        ("kind: VirtualMachinePool\nmetadata: {}", "metadata.name: is missing"),
        ("[1]", "must be an object"),
    ],
)
async def test_a_change_that_cannot_be_planned_says_why(client: Client, document: str, says: str) -> None:
    answer = await client.post("/change", yaml=document)
    assert answer.status_code == 303
    for _ in range(2):  # the plan has an address, which can be reloaded
        page = await client.http.get(answer.headers["location"])
        assert page.status_code == 200
        assert says in text(page)


async def test_only_the_last_drafts_are_kept(client: Client) -> None:
    first = (await client.post("/change", yaml="a")).headers["location"]
    for _ in range(MAX_DRAFTS):
        last = (await client.post("/change", yaml="b")).headers["location"]
    assert "does not have this plan any more" in text(await client.http.get(first))
    assert "b</textarea>" in (await client.http.get(last)).text


async def test_a_form_that_is_too_large_is_refused(client: Client) -> None:
    answer = await client.post("/change", yaml="x" * 1_100_000)
    assert answer.status_code == 422
    assert "at most 1048576 bytes" in text(answer)


class Revisions:
    """An API server with a pool and its two revisions, which answers dry runs of JSON patches."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.now = lambda: datetime.now(UTC)

    async def get(self, *_: Any) -> Json:
        return self.document

    async def list(self, *_: Any) -> tuple[list[Json], str]:
        owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachinePool", "name": "web", "uid": "pool"}
        metadata = {"ownerReferences": [{**owner, "controller": True}], "namespace": "shop"}
        halted = {"spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}}}
        templates = (("web-1", halted), ("web-2", self.document["spec"]["template"]))
        found = [
            {"metadata": {**metadata, "name": name}, "revision": number, "data": {"template": template}}
            for number, (name, template) in enumerate(templates, start=1)
        ]
        return found, "1"

    async def patch(self, *given: Any, dry_run: bool, **_: Any) -> Json:
        assert dry_run
        changes = {each["path"].rpartition("/")[2]: each["value"] for each in given[-1] if each["op"] == "add"}
        return {**self.document, "spec": {**self.document["spec"], **changes}}


async def test_the_question_before_an_undo_shows_its_plan(client: Client) -> None:
    status = {"observedGeneration": 1, "replicas": 1, "updateRevision": "web-2", "currentRevision": "web-2"}
    ended = [{"revision": each, "outcome": "Complete", "time": "2026-03-01T12:00:00Z"} for each in ("web-1", "web-2")]
    document = {**pool(1), "status": {**status, "history": ended}}
    client.add("VirtualMachinePool", document)
    for kind, made in (("VirtualMachine", vm(1)), ("VirtualMachineInstance", vmi(1, "node-1"))):
        client.add(kind, {**made, "metadata": {**made["metadata"], "labels": {meta.REVISION: "2"}}})
    api = Revisions(document)
    for each in (await api.list())[0]:
        client.add("ControllerRevision", each)
    client.state.api = api
    answer = await client.get("/act/undo/vpool/shop/web?revision=1")
    assert answer.status_code == 200, answer.text
    shown = text(answer)
    assert "1 action in 1 round, if all succeed." in shown
    assert "1 Update web-1 the template has changed: it halts the VM" in shown
    assert "Then web has the template of revision 1 again." in shown
    assert "+      runStrategy: Halted" in answer.text


async def test_the_question_before_an_act_without_a_preview_says_what_is_lost(client: Client) -> None:
    document = {**claim(), "spec": {}}
    client.state.api = Revisions(document)
    shown = text(await client.get("/act/release/vmclaim/shop/mine"))
    assert "Release vmclaim/mine? ci-1 and its disks are deleted. Gives the VM back." in shown


async def test_the_question_before_a_scale_in_names_the_vms(client: Client) -> None:
    status = {"observedGeneration": 1, "replicas": 2, "updateRevision": "web-2", "currentRevision": "web-2"}
    document = {**pool(2), "status": status}
    client.add("VirtualMachinePool", document)
    client.state.api = Revisions(document)
    for number in (1, 2):
        client.add("VirtualMachine", vm(number))
        client.add("VirtualMachineInstance", vmi(number, "node-1"))
    answer = await client.get("/act/scale/vpool/shop/web?replicas=1")
    shown = text(answer)
    assert "web deletes 1 VM." in shown
    assert "1 Delete web-1" in shown
    assert "+  replicas: 1" in answer.text


async def test_an_act_without_a_field_asks_once(client: Client) -> None:
    client.state.api = Reviews()
    client.add("VirtualMachineClaim", claim())
    page = await client.get("/vmclaim/shop/mine")
    assert f'<form method="get" action="/{TOKEN}/act/release/vmclaim/shop/mine"' in page.text


CLAIM_STATUS = {
    "phase": "Ready",
    "poolName": "ci",
    "vmRef": {"name": "ci-1", "uid": "v"},
    "addresses": ["10.0.0.1"],
    "expiresAt": "2126-03-01T12:00:00.000000Z",
}


def claim(**status: Any) -> Json:
    metadata = {"name": "mine", "namespace": "shop", "uid": "c", "annotations": {meta.REQUESTER: "ann"}}
    return {"metadata": metadata, "spec": {}, "status": {**CLAIM_STATUS, **status}}


class Reviews:
    """An API server that refuses the user some rights, and has no events."""

    def __init__(self, *refused: str) -> None:
        self._refused = refused
        self.now = lambda: datetime.now(UTC)

    async def request(self, method: str, path: str, *, body: Json) -> Json:
        asked = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": f"{asked['verb']} {asked['resource']}" not in self._refused}}

    async def list(self, *_: Any, **__: Any) -> tuple[list[Json], str]:
        return [], "1"


async def test_the_page_of_a_claim_has_what_its_user_needs(client: Client) -> None:
    client.add("VirtualMachineClaim", claim())
    client.state.api = Reviews()
    page = await client.get("/vmclaim/shop/mine")
    shown = text(page)
    for part in ("Address 10.0.0.1", "Held until 2126-03-01T12:00:00Z (in ", "Requested by ann", "Extend…", "Release…"):
        assert part in shown
    assert "kubectl poolhouse ssh mine USER -n shop" in shown
    for path in ("vm/shop/ci-1", "vmwp/shop/ci", "console/shop/ci-1", "vnc/shop/ci-1"):
        assert f'href="/{TOKEN}/{path}"' in page.text


async def test_a_claim_links_to_nothing_that_its_user_may_not_see(client: Client) -> None:
    client.add("VirtualMachineClaim", claim())
    client.state.api = Reviews("get virtualmachines", "get virtualmachineinstances")
    page = await client.get("/vmclaim/shop/mine")
    assert "VM ci-1" in text(page)
    assert "Screen: you may not get virtualmachineinstances/vnc here" in text(page)
    assert not any(f'href="/{TOKEN}/{each}/shop/ci-1"' in page.text for each in ("vm", "console", "vnc"))


@pytest.mark.parametrize("phase", ["Queued", "Released", "Failed"])
async def test_a_claim_without_a_vm_offers_no_way_to_it(client: Client, phase: str) -> None:
    client.add("VirtualMachineClaim", claim(phase=phase, finishedAt="2026-03-01T12:00:00Z"))
    client.state.api = Reviews()
    shown = text(await client.get("/vmclaim/shop/mine"))
    assert not any(part in shown for part in ("kubectl poolhouse ssh", "Screen", "Held until", "Extend"))


def refuse(client: Client, kind: str, verb: str) -> None:
    """The API server refuses the user to list or watch the kind."""
    for informer in client.state.informers:
        if informer.resource.kind == kind:
            call = f"{verb} {informer.resource.plural}"
            informer.reflector.error = Forbidden("no", status=403, call=call)


async def test_a_user_without_the_right_to_list_learns_which_right_is_missing(client: Client) -> None:
    refuse(client, "VirtualMachinePool", "list")
    answer = await client.get("/vpool/shop/web")
    assert answer.status_code == 404
    assert (
        "You may not see whether there is a vpool web in namespace shop: "
        "the right to list virtualmachinepools in all namespaces is missing."
    ) in text(answer)


async def test_a_kind_that_is_listed_and_not_watched_is_not_called_hidden(client: Client) -> None:
    refuse(client, "VirtualMachineWarmPool", "watch")
    page = text(await client.get("/warm"))
    late = "Changes of these resources appear late, because you have no right to watch them: virtualmachinewarmpools."
    assert late in page
    assert "Not shown" not in page


async def test_no_events_are_not_taken_for_no_past(client: Client) -> None:
    client.add("VirtualMachineClaim", claim())
    client.state.api = Reviews()
    assert "There are no events about it. Kubernetes keeps events for an hour, and sums up many" in text(
        await client.get("/vmclaim/shop/mine")
    )


@pytest.mark.parametrize(
    ("running", "says"),
    [
        pytest.param(3, "Disruption budget: 1 of 1 in use", id="within the budget"),
        pytest.param(1, "Disruption budget: used up, 3 VMs are missing or being updated, 1 may be", id="beyond it"),
    ],
)
async def test_a_disruption_budget_never_has_more_in_use_than_it_allows(
    client: Client, running: int, says: str
) -> None:
    client.add("VirtualMachinePool", pool(4))
    for number in range(1, running + 1):
        client.add(VM.kind, vm(number))
        client.add(VMI.kind, vmi(number, "node"))
    assert says in text(await client.get("/vpool/shop/web"))


async def test_the_claim_of_another_user_is_not_called_yours(client: Client) -> None:
    client.add("VirtualMachineClaim", claim())
    assert "mine: ci-1 is in use at 10.0.0.1" in text(await client.get("/warm"))
    client.state.user = "ann"
    assert "mine: ci-1 is yours at 10.0.0.1" in text(await client.get("/warm"))


async def test_the_overview_separates_the_message_from_the_vm_of_a_claim(client: Client) -> None:
    lost = {"type": "Stalled", "status": "True", "reason": "VMLost", "message": "not by the controllers"}
    failed = claim(phase="Bound", observedGeneration=1, conditions=[lost])
    client.add("VirtualMachineClaim", {**failed, "metadata": {**failed["metadata"], "generation": 1}})
    assert "not by the controllers; ci-1 at 10.0.0.1" in text(await client.get("/"))
