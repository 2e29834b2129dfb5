"""Whether VMs of a pool can run `spec.application` of a claim, and how cloud-init starts it in a VM without an agent.

An agent gets the whole application at the hand-over. Without an agent, KubeVirt can neither run a program in a guest
nor change its cloud-init data after it has booted. So a VM is created for the claim, and cloud-init starts the commands
of the application as systemd services.
"""

import copy
from collections.abc import Iterator
from typing import Any

import yaml

from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import Failure
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.application import Application, Container
from poolhouse.api.kubevirt.volumes import CLOUD_INIT_METHODS

CLOUD_CONFIG = "#cloud-config"
WITHOUT_AGENT = "set spec.agent of the pool. Without an agent an application is only commands with plain values"
RESTARTS = {"Always": "always", "OnFailure": "on-failure", "Never": "no"}
"""systemd's setting Restart, by restart policy"""


def refusal(application: Application | None, template: Json, *, allowed: bool) -> Failure | None:
    """Why no VM of the pool can run the application, or None."""
    if application is None:
        return None
    if not allowed:
        message = "application: claimPolicy.allowApplication of the pool is not true"
        return Failure(ClaimReason.APPLICATION_NOT_ALLOWED, message)
    if has_agent(template):
        return None
    if "spec" not in template:
        return _unsupported("spec.ec2.protocol of the pool is not GRPC, so its instances have no agent")
    if needs := next(_needs_of_an_agent(application), ""):
        return _unsupported(f"{needs}, and the pool has no agent; {WITHOUT_AGENT}")
    if _cloud_config(template) is None:
        volume = f"a {' or '.join(CLOUD_INIT_METHODS)} volume with userData that begins with {CLOUD_CONFIG}"
        return _unsupported(f"the pool's template needs {volume}, or the pool needs spec.agent")
    return None


def has_agent(template: Json) -> bool:
    """Whether an agent in the pool's VMs or instances starts applications."""
    if "spec" in template:
        return bool(at(template, "metadata", "annotations", meta.AGENT))
    return template.get("protocol") == "GRPC"


def _needs_of_an_agent(application: Application) -> Iterator[str]:
    """What cloud-init cannot do for the application."""
    if application.init_containers:
        yield f"init container {application.init_containers[0].name} needs an agent that waits for its end"
    for container in application.containers:
        if container.image:
            yield f"container {container.name} has an image"
        if container.liveness_probe or container.readiness_probe or container.startup_probe:
            yield f"container {container.name} has a probe"
    if application.volumes:
        yield f"the application has volume {application.volumes[0].name}"
    if application.secrets:
        yield f"cloud-init data is no secret, so it cannot have Secret {application.secrets[0]}"
    if application.config_maps:
        yield f"only an agent gets ConfigMap {application.config_maps[0]}"


def needs_boot(application: Application | None, template: Json) -> str:
    """Why only a VM that is created for the claim can run the application, or an empty string."""
    if application is None or "spec" not in template or has_agent(template):
        return ""
    return "the application of the claim starts when its VM boots"


def with_application(template: Json, application: Application | None) -> Json:
    """The template of a VM that is created for the claim, whose cloud-init starts the application."""
    config = _cloud_config(template)
    if application is None or config is None or has_agent(template):
        return template
    changed = copy.deepcopy(template)
    volume, kind = _cloud_init_volume(changed) or ({}, "")
    commands = [_service(container, application.restart_policy) for container in application.containers]
    given = config.get("runcmd")
    config["runcmd"] = [*(given if isinstance(given, list) else []), *commands]
    volume[kind]["userData"] = f"{CLOUD_CONFIG}\n{yaml.safe_dump(config, sort_keys=False)}"
    return changed


def _unsupported(message: str) -> Failure:
    return Failure(ClaimReason.APPLICATION_UNSUPPORTED, f"application: {message}")


def _service(container: Container, restart_policy: str) -> list[str]:
    """The command that starts the program as a service of systemd."""
    options = [f"--unit=poolhouse-{container.name}", f"--property=Restart={RESTARTS[restart_policy]}"]
    if container.working_dir:
        options.append(f"--working-directory={container.working_dir}")
    options += [f"--setenv={variable.name}={variable.value or ''}" for variable in container.env]
    return ["systemd-run", *options, "--", *container.command, *container.args]


def _cloud_init_volume(template: Json) -> tuple[Json, str] | None:
    for _, volume in entries(template, "spec", "template", "spec", "volumes"):
        for kind in CLOUD_INIT_METHODS:
            if isinstance(volume.get(kind), dict):
                return volume, kind
    return None


def _cloud_config(template: Json) -> dict[str, Any] | None:
    """The cloud-config of the template's cloud-init volume. None if there is none that can be extended."""
    found = _cloud_init_volume(template)
    text = at(found[0], found[1], "userData") if found is not None else None
    if not isinstance(text, str) or not text.startswith(CLOUD_CONFIG):
        return None
    try:
        config = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if config is None:
        return {}
    return config if isinstance(config, dict) else None
