"""Implements `poolhouse support-bundle`, which collects objects, events and logs without secrets in a file."""

from __future__ import annotations

import io
import re
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

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import Cluster, cluster_options, stack_of
from poolhouse.cli.output import Failed, echo, output_option, print_result

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api
    from poolhouse.runtime.resource import Resource

LOG_LINES = 5000
"""limit for each pod, and for each log file of an embedded stack"""

REDACTED = "(left out)"
SECRET = frozenset(
    {
        "userData",
        "userDataBase64",
        "networkData",
        "networkDataBase64",
        "kubevirt.io/ignitiondata",
        "caBundle",
        "extraHeaders",
        "password",
    }
)
"""fields that can contain secrets or long certificates"""
SECRET_VARIABLE = "POOLHOUSE_IDENTITY_SEED"
"""the only setting of Poolhouse that must stay secret"""
KNOWN_ANNOTATIONS = ("poolhouse.dev", "kubevirt.io", "kubernetes.io", "k8s.io", "helm.sh")
"""domains of annotations whose meaning is known; other annotations may hold anything"""
_SECRET_NAME = re.compile(r"pass|pwd|secret|token|cred|auth|seed|private|api.?key|access.?key|^key$", re.IGNORECASE)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
# No part of these two patterns can match what the part before it matches, and neither goes beyond the next "://": any
# tenant may write a long text that almost matches, and the time of a search must not grow with its square.
_USER_OF_URL = re.compile(r"(?<=://)[^/@:\s]+:[^/@\s]*(?=@)")
_QUERY_OF_URL = re.compile(r"""(?<=://)((?:(?!://)[^\s?"'\\])+\?)([^\s"'\\]+)""")
_PLAIN_QUERY = re.compile(r"timeout=[0-9]+m?s")
"""a parameter of the URLs of webhooks, which errors of the API server name"""
_KERNEL_ARGUMENT = re.compile(r'(?:[^\s"]|"[^"]*(?:"|\Z))+')
"""a word of the kernel's command line, whose quotes may contain spaces"""
_PLAIN_ARGUMENT = re.compile(
    r"(console|earlycon)=[A-Za-z0-9,]+|(loglevel|panic|net\.ifnames)=[0-9]+|rootfstype=[a-z0-9]+|init=/[\w/.-]+|"
    r"root=(/dev/[\w/.-]+|(PART)?(UUID|LABEL)=[\w.-]+)"
)
"""kernel arguments whose values are known to be no secrets; of others only the names are shown"""
_FLAG = re.compile(r"[A-Za-z0-9_.-]+")
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9+/_=-]{20,}")
"""a word that looks like a key: long, and with letters and digits"""
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
OMITTED = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})


@dataclass(frozen=True)
class Page:
    """A file of the bundle."""

    path: str
    text: str


@dataclass(frozen=True)
class ObjectList:
    """A list of objects for one file."""

    file: str
    resource: Resource
    namespace: str | None = None
    label: str | None = None
    controller: str | None = None
    """kind of the objects' controller, for objects that cannot be selected by a label"""

    def includes(self, document: Json) -> bool:
        return self.controller is None or (controller_of(document) or {}).get("kind") == self.controller


@click.command("support-bundle")
@click.option("--file", "-f", type=click.Path(path_type=Path), help="Output file. Default: poolhouse-DATE.tar.gz.")
@output_option("text")
@cluster_options
def support_bundle(cluster: Cluster, file: Path | None, output: str) -> None:
    """Collect objects, events and logs for support in one file.

    The file contains the objects of Poolhouse in all namespaces, their VMs, revisions and retained disks, migrations,
    events, the pods and logs of Poolhouse's services, webhook configurations and versions. It contains no Secrets,
    cloud-init data, certificates, headers and parameters of URLs, environment variables except settings of Poolhouse,
    annotations except those of Kubernetes, KubeVirt, Helm and Poolhouse, and no values of kernel arguments except
    common ones. Objects that you may not read are listed in problems.txt. Check the file before you send it.
    """
    name = f"poolhouse-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    target = file or Path(f"{name}.tar.gz")
    if not target.parent.is_dir() or target.is_dir():
        raise Failed(f"{target} cannot be written: {target.parent} is no directory, or {target} is one")
    stack = stack_of(cluster.kubeconfig)
    stack_pages = _pages_of_stack(stack) if stack is not None else []
    pages, problems = cluster.run(lambda api: collect(api, lambda text: echo(text, err=True), in_pods=not stack_pages))
    pages += stack_pages
    pages.append(Page("versions.yaml", _yaml({"poolhouse": version("poolhouse")})))
    if problems:
        pages.append(Page("problems.txt", "\n".join(problems) + "\n"))
    try:
        _write(target, name, pages)
    except OSError as error:
        raise Failed(f"{target} cannot be written: {error.strerror}") from None
    missing = f"; {count_noun(len(problems), 'problem')} in problems.txt" if problems else ""
    paths = [page.path for page in pages]
    print_result(
        output, f"{target}: {count_noun(len(pages), 'file')}{missing}", file=str(target), files=paths, problems=problems
    )


async def collect(api: Api, say: Callable[[str], None], *, in_pods: bool = True) -> tuple[list[Page], list[str]]:
    """Returns the pages, and a message for each failed read. `in_pods`: whether the services run in pods."""
    from poolhouse.runtime.errors import ApiError

    pages: list[Page] = []
    problems: list[str] = []
    home = await _service_namespace(api)
    for each in _object_lists(home):
        say(f"reading {each.file.removesuffix('.yaml')}")
        try:
            items, _ = await api.list(each.resource, each.namespace, label_selector=each.label)
        except ApiError as error:
            problems.append(f"{each.file}: {error}")
            continue
        items = [item for item in items if each.includes(item)]
        if items:
            pages.append(Page(each.file, _yaml([redacted(item) for item in items])))
        if each.resource.plural == "pods":
            if in_pods and not items:
                problems.append(f"{each.file}: there is no pod of Poolhouse in {home}")
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


async def _service_namespace(api: Api) -> str:
    """Returns the namespace of the services' Deployments; the default namespace if there are none."""
    from poolhouse.api.kinds import meta
    from poolhouse.runtime.errors import ApiError
    from poolhouse.runtime.resource import DEPLOYMENTS

    try:
        found, _ = await api.list(DEPLOYMENTS, None, label_selector=meta.OURS)
    except ApiError:  # the user may have rights in the default namespace only
        found = []
    return min((each["metadata"]["namespace"] for each in found), default=meta.NAMESPACE)


def _object_lists(home: str) -> Iterator[ObjectList]:
    from poolhouse.api.kinds import KINDS, kubevirt, meta
    from poolhouse.runtime.resource import Resource

    def resource(group: str, version: str, plural: str, *, namespaced: bool = True) -> Resource:
        return Resource(group, version, plural, plural, namespaced=namespaced)

    for kind in KINDS:
        yield ObjectList(f"{kind.plural}.yaml", Resource.of(kind))
    for kind, warm in ((kubevirt.VM, meta.WARM_STATE), (kubevirt.VMI, meta.WARM_POOL)):
        where = Resource.of(kind)
        yield ObjectList(f"{kind.plural}-of-pools.yaml", where, label=meta.POOL)
        yield ObjectList(f"{kind.plural}-warm.yaml", where, label=warm)
    instances = Resource.of(kubevirt.VMI)
    yield ObjectList(
        f"{instances.plural}-of-replica-sets.yaml", instances, controller="VirtualMachineInstanceReplicaSet"
    )
    yield ObjectList("revisions.yaml", resource("apps", "v1", "controllerrevisions"), label=meta.POOL)
    yield ObjectList("retained-disks.yaml", resource("", "v1", "persistentvolumeclaims"), label=meta.KEPT_BY)
    yield ObjectList("migrations.yaml", resource("kubevirt.io", "v1", "virtualmachineinstancemigrations"))
    yield ObjectList("deployments.yaml", resource("apps", "v1", "deployments"), namespace=home, label=meta.OURS)
    yield ObjectList("pods.yaml", resource("", "v1", "pods"), namespace=home, label=meta.OURS)
    yield ObjectList("leases.yaml", resource("coordination.k8s.io", "v1", "leases"), namespace=home)
    for group, plural in (
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    ):
        where = resource(group, "v1", plural, namespaced=False)
        yield ObjectList(f"{plural}.yaml", where, label=meta.OURS)
    yield ObjectList("events.yaml", resource("events.k8s.io", "v1", "events"))


async def _log(api: Api, pods: Resource, namespace: str, name: str) -> Page:
    query = {"tailLines": str(LOG_LINES), "timestamps": "true"}
    return Page(f"logs/{name}.log", await api.text(pods.path(namespace, name, "log"), query=query))


def _pages_of_stack(directory: Path) -> list[Page]:
    """Returns the logs and the status of the embedded stack."""
    logs = sorted((directory / "logs").iterdir())
    pages = [Page(f"logs/{path.name}", _tail(path)) for path in logs if path.is_file()]
    status = directory / "status.json"
    return [*pages, Page("stack.json", status.read_text())] if status.is_file() else pages


def _tail(path: Path) -> str:
    return "".join(path.read_text(errors="replace").splitlines(keepends=True)[-LOG_LINES:])


def redacted(value: Any) -> Any:
    """Returns the value without secrets, managedFields and the last applied configuration."""
    if isinstance(value, Mapping):
        return {key: _field(key, each) for key, each in value.items() if key not in OMITTED}
    if isinstance(value, str):
        return _USER_OF_URL.sub(REDACTED, _QUERY_OF_URL.sub(_query, _PRIVATE_KEY.sub(REDACTED, value)))
    return [redacted(each) for each in value] if isinstance(value, list) else value


def _field(key: str, value: Any) -> Any:
    if key in SECRET:
        return REDACTED
    if key == "annotations" and isinstance(value, Mapping):
        shown = redacted(value)
        return {name: text if _is_known(name) else REDACTED for name, text in shown.items()}
    if key in ("env", "httpHeaders") and isinstance(value, list):
        return [_variable(redacted(each)) for each in value]
    if key == "kernelArgs" and isinstance(value, str):
        return _kernel_arguments(value)
    if key in ("args", "command") and isinstance(value, list):
        return [_argument(each) if isinstance(each, str) else each for each in redacted(value)]
    return redacted(value)


def _is_known(annotation: str) -> bool:
    domain = annotation.rpartition("/")[0]
    return any(domain == known or domain.endswith(f".{known}") for known in KNOWN_ANNOTATIONS)


def _variable(each: Any) -> Any:
    """Redacts an environment variable or a header, except settings of Poolhouse that are not secret."""
    name = str(each.get("name")) if isinstance(each, Mapping) else ""
    if not name or "value" not in each:
        return each
    known = name.startswith("POOLHOUSE_") and name != SECRET_VARIABLE
    return each if known and not _looks_secret("", str(each["value"])) else {**each, "value": REDACTED}


def _query(found: re.Match[str]) -> str:
    """Redacts the parameters of a URL: those of a presigned URL give everybody access to the object."""
    parameters = found[2].split("&")
    return found[1] + "&".join(each if _PLAIN_QUERY.fullmatch(each) else REDACTED for each in parameters)


def _kernel_arguments(text: str) -> str:
    """Redacts all values, because nothing tells a short password from another value."""
    found, init = [], False
    for word in _KERNEL_ARGUMENT.findall(text):
        name, is_assigned, _ = word.partition("=")
        is_flag = _FLAG.fullmatch(word) and not _looks_secret("", word)
        if not init and (is_flag or _PLAIN_ARGUMENT.fullmatch(word)):
            found.append(word)
        else:
            found.append(f"{name}={REDACTED}" if is_assigned and _FLAG.fullmatch(name) else REDACTED)
        init = init or word == "--"  # what follows are arguments of init, whose form is unknown
    return " ".join(found)


def _argument(text: str) -> str:
    """Redacts the value of an argument such as `name=value` if it looks like a secret."""
    name, is_assigned, value = text.partition("=")
    if not is_assigned:
        return REDACTED if _looks_secret("", text) else text
    return f"{name}={REDACTED}" if _looks_secret(name, value) else text


def _looks_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name) or (_RANDOM.fullmatch(value) and not _UUID.fullmatch(value)))


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
