"""Implements `poolhouse default`, which sets the defaults of VMs as admission does, without a cluster."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.cluster_settings import choose, excerpt
from poolhouse.cli.manifests import print_manifests, read_manifests
from poolhouse.cli.output import Failed, Unreachable, echo, echo_block, install_extra, output_option
from poolhouse.runtime.credentials import proxy_from_environment
from poolhouse.service.user_cache import cache_dir

if TYPE_CHECKING:
    from defaulter.worker_process import SingleWorker

Ask = Callable[[Json, bool], tuple[int, bytes]]


@click.command()
@click.option("-f", "--filename", "source", required=True, type=click.File("rb"), help="Manifest; - reads stdin.")
@click.option("--server", metavar="URL", help="Use the defaulter at this URL instead of the local libvirt.")
@click.option("--namespace", "-n", default="default", show_default=True, help="Namespace of VMs without one.")
@click.option("--kubevirt", type=click.File("rb"), help="The cluster's KubeVirt object, whose settings apply.")
@click.option("--seed", default="", help="Seed of MAC addresses, firmware UUIDs and serials, as in the cluster.")
@output_option("yaml", "json", "xml")
def default(source: Any, server: str | None, namespace: str, kubevirt: Any | None, seed: str, output: str) -> None:
    """Set the defaults of VMs as admission does, without a cluster.

    Prints all documents of the file, with the defaults of the VMs. Other objects stay unchanged. With -o xml, prints
    only the libvirt domains.
    """
    given = [each.document for each in read_manifests(source)]
    answers: list[Any] = []
    values = {"namespace": namespace, "seed": seed, "kubevirt": _read_kubevirt(kubevirt) if kubevirt else None}
    with _connect(server, {name: value for name, value in values.items() if value}) as ask:
        for document in given:
            answers += _answers(document, ask, output)
    if output == "xml":
        echo_block("\n".join(answers))
    else:
        print_manifests(output, answers)


def _read_kubevirt(source: Any) -> Json:
    found = choose(each.document for each in read_manifests(source) if each.document.get("kind") == "KubeVirt")
    if found is None:
        raise click.UsageError("--kubevirt: the file contains no object of the kind KubeVirt")
    return excerpt(found)


def _answers(document: Json, ask: Ask, output: str) -> Iterator[Any]:
    from defaulter.vm_paths import is_libvirt_vm, locate

    if locate(document) is None and not is_libvirt_vm(document):
        if output != "xml":
            yield document
        return
    status, content = ask(document, output == "xml")
    if status in (200, 204):
        if output == "xml":
            if content:  # a VM whose defaults need no libvirt has no domain
                yield content.decode()
            return
        answer = json.loads(content)
        for warning in answer["warnings"]:
            echo(f"Warning: {warning}", err=True)
        yield answer["object"]
        return
    problems = json.loads(content).get("problems", [])
    text = "\n".join(f"{p['path']}: {p['message']}" if p["path"] else p["message"] for p in problems)
    raise (Failed if status in (400, 413, 422) else Unreachable)(text or f"the defaulter answered {status}")


@contextmanager
def _connect(server: str | None, values: Json) -> Iterator[Ask]:
    """Yields a function that calls a defaulter: a server, or a local worker with libvirt. Each request contains the
    values."""

    def envelope(document: Json) -> bytes:
        return json.dumps({"kind": "DefaultingRequest", "object": document, **values}, default=str).encode()

    if server is not None:
        url = server.rstrip("/")
        yield lambda document, as_xml: _remote(url, envelope(document), as_xml)
        return
    from defaulter.errors import LibvirtUnavailable
    from defaulter.worker_protocol import Operation

    def ask(document: Json, as_xml: bool) -> tuple[int, bytes]:
        try:
            return worker.ask(Operation.DOMAIN if as_xml else Operation.DOCUMENT, envelope(document))
        except LibvirtUnavailable as error:
            raise Unreachable(str(error)) from None

    with closing(_start_worker()) as worker:
        yield ask


def _start_worker() -> SingleWorker:
    if find_spec("libvirt") is None:  # the extra `cli` does not contain it
        raise Unreachable(f"the Python module libvirt is missing: {install_extra('defaulter')}, or give --server")
    from defaulter.errors import LibvirtUnavailable
    from defaulter.settings import Settings
    from defaulter.worker_process import SingleWorker

    try:
        settings = Settings.read(os.environ)
        cache = cache_dir() / "qemu"
        return SingleWorker(settings.overrides, settings.seed, settings.user, cache).__enter__()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except LibvirtUnavailable as error:
        hint = "install libvirt-daemon-driver-qemu and qemu-system-x86, or give --server"
        raise Unreachable(f"{error}: {hint}") from None


def fetch(server: str, path: str, body: bytes | None, accept: str, timeout: float) -> tuple[int, bytes]:
    """Returns the status and the content of a response. Sends a POST with a body, else a GET."""
    headers = {"Content-Type": "application/json", "Accept": accept} if body is not None else {}
    try:
        request = urllib.request.Request(server + path, body, headers)
        proxy = proxy_from_environment(server)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({request.type: proxy} if proxy else {}))
        with opener.open(request, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except (OSError, ValueError) as error:
        raise Unreachable(f"{server} does not answer: {getattr(error, 'reason', error)}") from None


def _remote(server: str, body: bytes, as_xml: bool) -> tuple[int, bytes]:
    accept = "application/xml" if as_xml else "application/json"
    status, content = fetch(server, "/apis/vms/defaults", body, accept, 10)
    if not _is_answer(status, content, as_xml):
        raise Unreachable(f"{server} is not a defaulter: it answered {status} without a VM")
    return status, content


def _is_answer(status: int, content: bytes, as_xml: bool) -> bool:
    """Whether the response is from a defaulter and not from another server."""
    from defaulter.contract import DefaultingResponse, Problems

    if status in (200, 204) and as_xml:
        return not content or content.startswith(b"<domain")
    try:
        (DefaultingResponse if status == 200 else Problems).model_validate_json(content)
    except ValueError:
        return False
    return True
