"""Builds a Dockerfile without a container engine, and runs the image as a cluster would.

    sudo python -m tests.image.clean_root Dockerfile.defaulter --base DIR [--arg NAME=VALUE]... [--keep DIR]

It runs the steps of the Dockerfile: each stage is a directory, each RUN a chroot with its own mounts. DIR is a root of
the base's distribution, for example from debootstrap. The image runs as another user, with a read-only root apart from
its volumes, no capabilities, only harmless devices and only a loopback network. There the defaulter must get ready, set
the defaults of a VM, answer with its version and pass its health check. An image without a health check must run its
default command. Instructions that this program does not know, layers and shell entry points are errors.

The tests of the chart can use the kept images and run every pod in them:

    sudo POOLHOUSE_IMAGES=DIR python -m pytest tests/charts/test_release.py    # DIR/poolhouse, DIR/poolhouse-defaulter
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

PASSED_ON = ("http_proxy", "https_proxy", "no_proxy")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
IGNORED = ("EXPOSE", "LABEL")
CONFIG = "config.json"
"""beside the stages: the user and the environment of the processes"""
_VARIABLE = re.compile(r"\$\{(\w+)(?::([+-])([^{}]*(?:\{[^{}]*\}[^{}]*)*))?\}|\$(\w+)")


@dataclass
class Stage:
    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0"
    volumes: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n", "", lines).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def expand(text: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        known = variables.get(match.group(1) or match.group(4), "")
        if match.group(2) == "+":
            return expand(match.group(3), variables) if known else ""
        return known or (expand(match.group(3), variables) if match.group(2) == "-" else "")

    return _VARIABLE.sub(value, text)


def build(dockerfile: Path, base: Path, arguments: Mapping[str, str], work: Path) -> Stage:
    """Builds the stages; returns the last one."""
    context, shared = dockerfile.resolve().parent, dict[str, str]()
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for name, rest in instructions(dockerfile.read_text()):
        if name == "ARG":
            key, _, default = rest.partition("=")
            known = stage.variables if stage is not None else shared
            known[key] = arguments.get(key, shared.get(key) or expand(default, {**shared, **known}))
        elif name == "FROM":
            image, _, alias = expand(rest, shared).partition(" AS ")
            earlier = stages.get(image, Stage(base))
            stage = replace(deepcopy(earlier), root=work / (alias or "final"), variables={})
            if image == "scratch":
                stage.root.mkdir()
            else:
                print(f"== FROM {image} (here {earlier.root})", flush=True)
                subprocess.run(["cp", "-a", "--reflink=auto", str(earlier.root), str(stage.root)], check=True)
            stages[alias or "final"] = stage
        elif stage is None:
            raise SystemExit(f"{name} before FROM")
        else:
            _step(name, rest, stage, stages, context)
    assert stage is not None
    return stage


def _step(name: str, rest: str, stage: Stage, stages: Mapping[str, Stage], context: Path) -> None:
    match name:
        case "RUN":
            print(f"-- RUN {' '.join(rest.split())[:100]}", flush=True)
            run(stage, rest)
        case "COPY":
            _copy(stage, shlex.split(rest), stages, context)
        case "ENV":
            for pair in shlex.split(rest):
                key, _, value = pair.partition("=")
                stage.environment[key] = expand(value, {**stage.variables, **stage.environment})
        case "WORKDIR":
            stage.workdir = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "USER":
            stage.user = rest
        case "VOLUME":
            stage.volumes.append(rest)
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        case "CMD":
            stage.command = json.loads(rest)
        case "HEALTHCHECK":
            stage.healthcheck = json.loads(rest.partition(" CMD ")[2])
        case _ if name not in IGNORED:
            raise SystemExit(f"this file has no line for {name}")


def _copy(stage: Stage, words: list[str], stages: Mapping[str, Stage], context: Path) -> None:
    origin = context
    if words[0].startswith("--from="):
        origin = stages[words.pop(0).partition("=")[2]].root
    *sources, target = words
    place = stage.root / os.path.normpath(os.path.join(stage.workdir, target)).lstrip("/")
    for source in sources:
        found = origin / source.lstrip("/")
        into = place / found.name if target.endswith("/") else place
        if found.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True, ignore=ignored)
        else:
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, into)


def run(stage: Stage, command: str) -> None:
    """Runs one RUN with the network and the certificates of this machine, and with its own mounts."""
    (stage.root / "etc/resolv.conf").touch()
    (stage.root / "run/certificates").touch()
    script = f"""
      mount -t proc proc {stage.root}/proc; mount --rbind /dev {stage.root}/dev
      mount --bind /etc/resolv.conf {stage.root}/etc/resolv.conf
      mount --bind {CERTIFICATES} {stage.root}/run/certificates
      exec chroot {stage.root} /bin/sh -c 'cd "$1" && exec /bin/sh -c "$2"' sh "$0" "$1"
    """
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {"PATH": path, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    environment |= {"PIP_CERT": "/run/certificates", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment |= {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {**stage.variables, **stage.environment}
    isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    subprocess.run([*isolated, "sh", "-ec", script, stage.workdir, command], env=environment, check=True)


CHECK = """
import json, os, subprocess, sys, time, urllib.request as u
healthcheck = json.loads(sys.argv[1])
url = "http://127.0.0.1:8085"

def get(path, body=None):
    request = u.Request(url + path, body, {"Content-Type": "application/json"})
    return u.urlopen(request, timeout=10).read()

for attempt in range(600):
    try:
        get("/readyz")
        break
    except OSError:
        assert attempt < 599, "it does not get ready"
        time.sleep(0.1)
print("ready after", round(attempt / 10, 1), "s, as user", os.getuid(), "of groups", os.getgroups())
vm = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a", "namespace": "b"}, "spec": {
    "runStrategy": "Halted", "template": {"spec": {
    "domain": {"memory": {"guest": "1Gi"}, "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
    "volumes": [{"name": "root", "emptyDisk": {"capacity": "1Gi"}}]}}}}
domain = json.loads(get("/apis/vms/defaults", json.dumps(vm).encode()))["spec"]["template"]["spec"]["domain"]
print("machine", domain["machine"]["type"], "root disk", domain["devices"]["disks"][0]["disk"]["pciAddress"])
version = json.loads(get("/version"))
print("libvirt", version["libvirt"], "QEMU", version["qemu"])
begun = time.monotonic()
for _ in range(50):
    get("/apis/vms/defaults", json.dumps(vm).encode())
print("50 answers in", round(time.monotonic() - begun, 2), "s")
assert subprocess.run(healthcheck).returncode == 0, "the health check fails"
for path in ("/x", "/opt/poolhouse/x", "/tmp/x", "/etc/x"):
    try:
        open(path, "w")
    except OSError:
        continue
    sys.exit(path + " can be written")
assert not os.path.exists("/dev/kvm")
assert os.getuid() != 0
status = open("/proc/self/status").read()
assert "CapEff:\\t0000000000000000" in status and "NoNewPrivs:\\t1" in status, status
try:
    u.urlopen("http://192.0.2.1", timeout=2)
    sys.exit("there is a network")
except OSError as error:
    print("no network:", error)
print("read-only root, no capability, no device, health check: all hold")
"""


def check(stage: Stage) -> None:
    """Starts the image with its entry point as the first process, and checks it from outside."""
    volumes = dict.fromkeys(stage.volumes, "")
    environment = dict(stage.environment)
    container = subprocess.Popen(
        confined(stage.root, stage.user, volumes, [*stage.entrypoint, *stage.command], network=False), env=environment
    )
    try:
        if not stage.healthcheck:
            if container.wait(60) != 0:
                raise SystemExit(f"{stage.entrypoint} {stage.command} ends with {container.returncode}")
            return
        time.sleep(1)
        first = first_process(container.pid)
        beside = [
            "nsenter",
            "--target",
            str(first),
            "--net",
            "--mount",
            "--pid",
            "--",
            *as_user(stage.root, stage.user),
        ]
        python = [stage.entrypoint[0].rpartition("/")[0] + "/python", "-c", CHECK, json.dumps(stage.healthcheck)]
        subprocess.run([*beside, *python], env=environment, check=True, timeout=180)
        os.kill(first, signal.SIGTERM)
        if container.wait(30) != 0:
            raise SystemExit(f"it ends with {container.returncode}")
        print("it ends well")
    finally:
        container.kill()


def as_user(root: Path, user: str) -> list[str]:
    """The prefix of a command that runs it as another user in this root, without a way to gain privileges."""
    chroot = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin") or "chroot"
    return ["setpriv", "--no-new-privs", chroot, f"--userspec={user}", "--groups=", str(root)]


def confined(
    root: Path, user: str, volumes: Mapping[str, str], command: Sequence[str], *, network: bool = True
) -> list[str]:
    """The command as in a container: it is the first process, only volumes are writable (directories of this machine or
    in memory), and only harmless devices exist. Without `network` there is only loopback."""
    uid = user.partition(":")[0]
    for path in volumes:
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    bound = "\n".join(
        f"mount --bind {source} {root}{path}" if source else f"mount -t tmpfs -o mode=0700,uid={uid} tmpfs {root}{path}"
        for path, source in volumes.items()
    )
    mounts = f"""
      {"" if network else "ip link set lo up"}
      mount --bind {root} {root}; mount -o remount,bind,ro {root}
      mount -t proc proc {root}/proc
      mount -t tmpfs -o mode=0755 tmpfs {root}/dev
      for device in null zero urandom random; do
        touch {root}/dev/$device; mount --bind /dev/$device {root}/dev/$device
      done
      {bound}
      exec "$@"
    """
    isolated = ["unshare", *([] if network else ["--net"]), "--mount", "--pid", "--fork", "--kill-child"]
    return [*isolated, "sh", "-ec", mounts, "sh", *as_user(root, user), *command]


def first_process(container: int) -> int:
    """The process that gets the signals of the container."""
    return int(Path(f"/proc/{container}/task/{container}/children").read_text().split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dockerfile", type=Path)
    parser.add_argument("--base", type=Path, required=True, help="a root of the base's distribution")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="a build argument")
    parser.add_argument("--keep", type=Path, help="where the stages stay; without it they are removed")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("chroot and mounts need root")
    arguments = dict(pair.split("=", 1) for pair in options.arg)
    work = options.keep or Path(tempfile.mkdtemp(prefix="clean-root-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        stage = build(options.dockerfile, options.base.resolve(), arguments, work)
        size = subprocess.run(["du", "-sxm", str(stage.root)], capture_output=True, text=True, check=True).stdout
        print(f"== built: {size.split()[0]} MB with its base", flush=True)
        (work / CONFIG).write_text(json.dumps({"User": stage.user, "Env": stage.environment}))
        check(stage)
    finally:
        if options.keep is None:
            shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
