"""`poolhouse support-bundle`: everything that whoever helps you will ask for, in one file, without your secrets."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from cli.cluster import Cluster, cluster_options
from cli.output import count_noun, output_option, print_result

if TYPE_CHECKING:
    from runtime.api import Api
    from runtime.resource import Resource

LOG_LINES = 5000
"""of each pod, and of each file of an embedded stack"""

REDACTED = "(left out)"
SECRETIVE = frozenset(
    {
        "userData",
        "userDataBase64",
        "networkData",
        "networkDataBase64",
        "kubevirt.io/ignitiondata",
        "caBundle",
        "password",
    }
)
"""fields that may hold what nobody else should read, or that are long and say nothing"""
SECRET_SETTING = "POOLHOUSE_IDENTITY_SEED"
"""of our settings, the one that others can make use of"""
NOISE = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})


@dataclass(frozen=True)
class Page:
    """One file of the bundle."""

    path: str
    text: str


@dataclass(frozen=True)
class Listing:
    """Objects that go into one file."""

    file: str
    resource: Resource
    namespace: str | None = None
    label: str | None = None
    controller: str | None = None
    """the kind that made them, where no label says so"""

    def takes(self, document: Mapping[str, Any]) -> bool:
        owners = document["metadata"].get("ownerReferences") or ()
        return self.controller is None or any(o.get("controller") and o["kind"] == self.controller for o in owners)


@click.command("support-bundle")
@click.option(
    "--file", "-f", type=click.Path(path_type=Path), help="Where to write it; else poolhouse-DATE.tar.gz here."
)
@output_option("text")
@cluster_options
def support_bundle(cluster: Cluster, file: Path | None, output: str) -> None:
    """Collect what is needed to find out what is wrong, in one file.

    It holds our objects in all namespaces, the VMs, revisions and kept disks that they made, migrations, events, the
    pods and logs of our services, webhook configurations and versions. Secrets are not read; cloud-init data,
    certificates and variables of containers are left out, but for settings of ours that tell nobody anything. What
    your rights do not reach is named in problems.txt, and the rest is collected all the same. Look through it before
    you send it.
    """
    name = f"poolhouse-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    target = file or Path(f"{name}.tar.gz")
    of_a_stack = _of_a_stack(cluster.kubeconfig.parent)
    pages, problems = cluster.run(
        lambda api: collected(api, lambda text: click.echo(text, err=True), in_pods=not of_a_stack)
    )
    pages += of_a_stack
    pages.append(Page("versions.yaml", _yaml({"poolhouse": version("poolhouse")})))
    if problems:
        pages.append(Page("problems.txt", "\n".join(problems) + "\n"))
    _write(target, name, pages)
    missing = f"; {count_noun(len(problems), 'thing')} could not be read, see problems.txt" if problems else ""
    paths = [page.path for page in pages]
    print_result(
        output, f"{target}: {count_noun(len(pages), 'file')}{missing}", file=str(target), files=paths, problems=problems
    )


async def collected(api: Api, say: Callable[[str], None], *, in_pods: bool = True) -> tuple[list[Page], list[str]]:
    """Each part by itself: what cannot be read is a sentence, and takes nothing else along. `in_pods`: whether that is
    where our services run."""
    from runtime.errors import ApiError

    pages: list[Page] = []
    problems: list[str] = []
    home = await _home(api)
    for each in _listings(home):
        say(f"reading {each.file.removesuffix('.yaml')}")
        try:
            items, _ = await api.list(each.resource, each.namespace, label_selector=each.label)
        except ApiError as error:
            problems.append(f"{each.file}: {error}")
            continue
        items = [item for item in items if each.takes(item)]
        if items:
            pages.append(Page(each.file, _yaml([redacted(item) for item in items])))
        if each.resource.plural == "pods":
            if in_pods and not items:
                problems.append(f"{each.file}: there is no pod of ours in {home}")
            for pod in items:
                name = pod["metadata"]["name"]
                say(f"reading the log of {name}")
                try:
                    pages.append(await _log(api, each.resource, home, name))
                except ApiError as error:
                    problems.append(f"the log of {name}: {error}")
    try:
        pages.append(Page("kubernetes.yaml", _yaml(await api.request("GET", "/version"))))
    except ApiError as error:
        problems.append(f"kubernetes.yaml: {error}")
    return pages, problems


def _ours() -> str:
    from kinds import meta

    return f"{meta.PART_OF}={meta.POOLHOUSE}"


async def _home(api: Api) -> str:
    """The namespace that our services are in: that of their Deployments, else where they usually are."""
    from kinds import meta
    from runtime.errors import ApiError
    from runtime.resource import Resource

    deployments = Resource("apps", "v1", "deployments", "Deployment")
    try:
        found, _ = await api.list(deployments, None, label_selector=_ours())
    except ApiError:  # who may not look everywhere may look there
        found = []
    return min((each["metadata"]["namespace"] for each in found), default=meta.NAMESPACE)


def _listings(home: str) -> Iterator[Listing]:
    from kinds import KINDS, kubevirt, meta
    from runtime.resource import Resource

    def resource(group: str, version: str, plural: str, *, namespaced: bool = True) -> Resource:
        return Resource(group, version, plural, plural, namespaced=namespaced)

    for kind in KINDS:
        yield Listing(f"{kind.plural}.yaml", Resource.of(kind))
    for kind, warm in ((kubevirt.VM, meta.WARM_STATE), (kubevirt.VMI, meta.WARM_POOL)):
        where = Resource.of(kind)
        yield Listing(f"{kind.plural}-of-pools.yaml", where, label=meta.POOL)
        yield Listing(f"{kind.plural}-warm.yaml", where, label=warm)
    instances = Resource.of(kubevirt.VMI)
    yield Listing(f"{instances.plural}-of-replica-sets.yaml", instances, controller="VirtualMachineInstanceReplicaSet")
    yield Listing("revisions.yaml", resource("apps", "v1", "controllerrevisions"), label=meta.POOL)
    yield Listing("kept-disks.yaml", resource("", "v1", "persistentvolumeclaims"), label=meta.KEPT_BY)
    yield Listing("migrations.yaml", resource("kubevirt.io", "v1", "virtualmachineinstancemigrations"))
    yield Listing("deployments.yaml", resource("apps", "v1", "deployments"), namespace=home, label=_ours())
    yield Listing("pods.yaml", resource("", "v1", "pods"), namespace=home, label=_ours())
    yield Listing("leases.yaml", resource("coordination.k8s.io", "v1", "leases"), namespace=home)
    for group, plural in (
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    ):
        where = resource(group, "v1", plural, namespaced=False)
        yield Listing(f"{plural}.yaml", where, label=_ours())
    yield Listing("events.yaml", resource("events.k8s.io", "v1", "events"))


async def _log(api: Api, pods: Resource, namespace: str, name: str) -> Page:
    query = {"tailLines": str(LOG_LINES), "timestamps": "true"}
    return Page(f"logs/{name}.log", await api.text(pods.path(namespace, name, "log"), query=query))


def _of_a_stack(directory: Path) -> list[Page]:
    """What an embedded stack says of itself, where the kubeconfig is one's."""
    logs = directory / "logs"
    if not (directory / "endpoints.json").is_file() or not logs.is_dir():
        return []
    told = [Page(f"logs/{path.name}", _end(path)) for path in sorted(logs.iterdir()) if path.is_file()]
    status = directory / "status.json"
    return [*told, Page("stack.json", status.read_text())] if status.is_file() else told


def _end(path: Path) -> str:
    return "".join(path.read_text(errors="replace").splitlines(keepends=True)[-LOG_LINES:])


def redacted(value: Any) -> Any:
    """The same without what may be secret, and without the fields that only say who wrote what."""
    if isinstance(value, Mapping):
        shown = {
            key: REDACTED if key in SECRETIVE else redacted(each) for key, each in value.items() if key not in NOISE
        }
        if isinstance(variables := shown.get("env"), list):
            shown["env"] = [_variable(each) for each in variables]
        return shown
    return [redacted(each) for each in value] if isinstance(value, list) else value


def _variable(each: Any) -> Any:
    """Of a container. People put passwords of proxies and keys of clouds there; of ours it is known what they say."""
    name = str(each.get("name")) if isinstance(each, Mapping) else ""
    known = name.startswith("POOLHOUSE_") and name != SECRET_SETTING
    return each if known or not name or "value" not in each else {**each, "value": REDACTED}


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=120)


def _write(target: Path, name: str, pages: Sequence[Page]) -> None:
    with tarfile.open(target, "w:gz") as archive:
        target.chmod(0o600)
        for page in pages:
            raw = page.text.encode()
            info = tarfile.TarInfo(f"{name}/{page.path}")
            info.size, info.mtime, info.mode = len(raw), int(time.time()), 0o600
            archive.addfile(info, io.BytesIO(raw))
