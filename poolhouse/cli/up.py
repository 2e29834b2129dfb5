"""Implements `poolhouse up`, `down` and `status` for the embedded stack."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from shlex import quote
from typing import Any

import click

from poolhouse.cli.output import Failed, Unreachable, echo, echo_block, is_structured, output_option, print_structured
from poolhouse.service.progress_bar import ProgressBar
from poolhouse.stack.components import StackError
from poolhouse.stack.lock import holder
from poolhouse.stack.paths import StackPaths
from poolhouse.stack.prerequisites import describe_full_disk
from poolhouse.stack.processes import stop_stack
from poolhouse.stack.services import SERVICES
from poolhouse.stack.status_file import StackStatus, tail

DETACHED_LOG = "supervisor"
VIRTUAL_NODE = "poolhouse"

directory = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, readable=False, path_type=Path),
    default=Path(".poolhouse"),
    show_default=True,
    help="State directory of the stack.",
)


@click.command()
@directory
@click.option(
    "--engine",
    type=click.Choice(["qemu", "simulated"]),
    default="qemu",
    show_default=True,
    help="Boot real guests, or simulate them (for thousands of VMs).",
)
@click.option("--detach", is_flag=True, help="Run in the background, and return when the stack is ready.")
@click.option("--without", multiple=True, type=click.Choice(SERVICES), help="Do not start this service; repeatable.")
@click.option(
    "--virtual-node",
    is_flag=True,
    help="Run Pods on VMs of warm pools: adds the Node `poolhouse`, and Kubernetes' scheduler and controllers of Pods.",
)
@click.option(
    "--guest-agent",
    is_flag=True,
    help="Run poolhouse-agent in the built-in Linux of real guests, which then need 256 MiB of memory.",
)
@click.option(
    "--apply",
    "manifests",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Apply a manifest when the stack is ready, and show its progress; repeatable.",
)
@click.option(
    "--certificate-hours",
    type=click.FloatRange(min=0.001),
    envvar="POOLHOUSE_CERT_HOURS",
    default=168.0,
    show_default=True,
    help="Lifetime of serving certificates.",
)
@output_option("text")
def up(
    directory: Path,
    engine: str,
    detach: bool,
    without: tuple[str, ...],
    virtual_node: bool,
    guest_agent: bool,
    manifests: tuple[Path, ...],
    certificate_hours: float,
    output: str,
) -> None:
    """Start the embedded stack, and run it until Ctrl-C: an API server, the webhook, the defaulter with libvirt, the
    controllers, and the engine, which replaces KubeVirt."""
    paths = StackPaths(directory)
    if (pid := _holder(paths)) is not None:
        stop = f"poolhouse down --dir {quote(str(paths.dir))}"
        raise Failed(f"a stack is already running in {paths.dir} (pid {pid}); `{stop}` stops it")
    from poolhouse.stack.progress import ProgressDisplay, read_manifests
    from poolhouse.stack.stack import StackOptions, run

    quiet = is_structured(output)
    with ProgressBar("starting", None, shown=not quiet) as bar:
        say = (lambda text: None) if quiet else _clocked(bar.echo)

        def progress(ready: int, total: int) -> None:
            bar.update(ready, total)
            if ready >= total:  # what follows is no part of the start
                bar.stop()

        try:
            show = ProgressDisplay(read_manifests(manifests), say) if manifests else None
            if detach:
                _detach(paths, bar, quiet=quiet)
                if quiet:
                    print_structured(output, _status(paths))
                return
            node = VIRTUAL_NODE if virtual_node else ""
            life = timedelta(hours=certificate_hours)
            wanted = StackOptions(paths, engine, frozenset(without), life, node, guest_agent)
            run(wanted, say, show.run if show else None, progress)
        except StackError as broken:
            raise Failed(str(broken)) from None


@click.command()
@directory
@output_option("text")
def down(directory: Path, output: str) -> None:
    """Stop the stack of a directory, also after its supervisor was killed. Its state stays."""
    paths = StackPaths(directory)
    try:
        if not paths.dir.is_dir():
            raise Failed(f"there is no stack in {paths.dir}")
        ended = stop_stack(paths)
    except PermissionError as error:
        raise _not_ours(paths, error) from None
    if is_structured(output):
        print_structured(output, {"dir": str(paths.dir), "ended": ended})
    else:
        echo(f"the stack in {paths.dir} has ended" if ended else f"nothing was running in {paths.dir}")


@click.command()
@directory
@output_option("text")
def status(directory: Path, output: str) -> None:
    """Show the components of the embedded stack, their endpoints and its pools. Exits with 3 if it is not running.

    This is about a stack that `poolhouse up` has started, whatever cluster the kubeconfig names. For a cluster, use
    `poolhouse overview`.
    """
    paths = StackPaths(directory)
    found = _status(paths)
    if is_structured(output):
        print_structured(output, found)
    else:
        echo_block(_table(found))
    if not found["running"]:
        raise SystemExit(Unreachable.exit_code)


def _holder(paths: StackPaths) -> int | None:
    try:
        return holder(paths.lock)
    except PermissionError as error:
        raise _not_ours(paths, error) from None


def _not_ours(paths: StackPaths, error: PermissionError) -> Failed:
    what = f" ({error.filename})" if error.filename else ""
    return Failed(f"the stack in {paths.dir} belongs to another user: {error.strerror}{what}")


def _clocked(echo: Callable[[str], None]) -> Callable[[str], None]:
    """Returns an `echo` that prints the seconds since the start before each line. A full disk, as of the log of a
    detached stack, delays the lines, and does not end the stack."""
    start = time.monotonic()

    def say(text: str) -> None:
        try:
            echo(f"{time.monotonic() - start:6.1f} s  {text}")
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    return say


def _detach(paths: StackPaths, bar: ProgressBar, *, quiet: bool) -> None:
    """Runs this command again in a process without a terminal, and waits until the stack is ready. That process goes on
    if the terminal of this one is closed."""
    log = paths.log(DETACHED_LOG)
    arguments = [argument for argument in sys.argv[1:] if argument != "--detach"]
    with paths.writing():
        paths.create()
        log.touch(mode=0o600)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with log.open("ab") as file:
        shown = file.tell()
        child = subprocess.Popen(
            [sys.executable, "-P", "-u", "-m", "poolhouse.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while child.poll() is None:
            report = StackStatus.read(paths.status)
            shown = _echo_from(log, shown, bar, quiet)
            if report is not None and report.pid == child.pid and report.total:
                bar.update(report.ready_parts, report.total)
            if report is not None and report.pid == child.pid and report.phase == "ready":
                return
            time.sleep(0.1)
    except (KeyboardInterrupt, SystemExit):
        child.terminate()
        child.wait()
        raise
    _echo_from(log, shown, bar, quiet)
    if not quiet:
        raise SystemExit(Failed.exit_code)  # the child has printed the reason
    report = StackStatus.read(paths.status)
    message = report.message if report is not None and report.pid == child.pid else ""
    raise Failed(message or f"the stack did not start; the end of {log}:\n{tail(log)}")


def _echo_from(log: Path, position: int, bar: ProgressBar, quiet: bool) -> int:
    with log.open("rb") as file:
        file.seek(position)
        text = file.read()
    if text and not quiet:
        for line in text.decode("utf-8", "replace").splitlines():
            bar.echo(line)
    return position + len(text)


def _status(paths: StackPaths) -> dict[str, Any]:
    running = _holder(paths) is not None
    report = StackStatus.read(paths.status)
    found: dict[str, Any] = {"dir": str(paths.dir), "running": running}
    if report is not None:
        found |= vars(report)
        if not running:
            found |= {"phase": "broken" if report.phase == "broken" else "ended", "parts": [], "pid": None}
    if running:
        found["kubeconfig"] = str(paths.kubeconfig)
        found["endpoints"] = _endpoints(paths)
        found["pools"] = _pools(paths)
        found["message"] = describe_full_disk(paths)
    return found


def _endpoints(paths: StackPaths) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(paths.endpoints.read_text())
        return found
    except (OSError, ValueError):
        return {}


def _pools(paths: StackPaths) -> list[dict[str, Any]] | None:
    """Returns the pools; None if the API server does not answer."""
    from poolhouse.stack.progress import list_pools

    try:
        return asyncio.run(list_pools(paths.kubeconfig))
    except OSError:
        return None


def _table(found: dict[str, Any]) -> str:
    if not found["running"]:
        why = f": {found['message']}" if found.get("message") else ""
        hint = "`poolhouse up` starts one; `poolhouse overview` shows a cluster"
        return f"no stack is running in {found['dir']}{why} (this is about the embedded stack: {hint})"
    down = [part["name"] for part in found.get("parts", []) if not part["ready"]]
    state = f"not ready: {', '.join(down)}" if found.get("phase") == "ready" and down else found.get("phase")
    lines = [f"embedded stack in {found['dir']}: {state} (pid {found.get('pid')}, engine {found.get('engine')})"]
    lines += [*filter(None, (found.get("message"),)), ""]
    lines.append(f"{'PART':26}{'PID':>8}  {'READY':7}{'RESTARTS':>8}")
    for part in found.get("parts", []):
        ready = "yes" if part["ready"] else "no"
        lines.append(f"{part['name']:26}{part['pid'] or '-':>8}  {ready:7}{part['restarts']:>8}")
    lines += ["", *(f"{name:26}{where}" for name, where in found["endpoints"].items())]
    pools = found["pools"]
    if not os.access(found["kubeconfig"], os.R_OK):
        return "\n".join([*lines, "", f"the stack belongs to another user: you may not read {found['kubeconfig']}"])
    if pools is None:
        lines += ["", "the API server does not answer"]
    elif pools:
        lines += ["", f"{'POOL':34}{'DESIRED':>8}{'CURRENT':>8}{'READY':>8}"]
        for pool in pools:
            name = f"{pool['namespace']}/{pool['name']}"
            lines.append(f"{name:34}{pool['desired']:>8}{pool['current']:>8}{pool['ready']:>8}")
    lines += ["", f"export KUBECONFIG={quote(os.fspath(found['kubeconfig']))}"]
    return "\n".join(lines)
