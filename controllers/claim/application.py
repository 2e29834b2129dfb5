"""What `spec.application` of a claim becomes: the spec of a Pod for an agent, or commands for cloud-init.

The agent of an EC2 instance gets the whole application, with the values of its Secrets, at the hand-over. A VM has no
agent: KubeVirt can neither run a program in a guest nor change its cloud-init data after it has booted. So a VM is
created for the claim, and cloud-init starts the commands of the application as systemd services.
"""

import copy
from base64 import b64decode
from typing import Any

import yaml

from controllers.claim.personalization import CLOUD_INIT_METHODS, TRANSIENT
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import Failure
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds.application import Application, Container
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import SECRETS

CLOUD_CONFIG = "#cloud-config"
RESTARTS = {"Always": "always", "OnFailure": "on-failure", "Never": "no"}
"""systemd's setting Restart, by restart policy"""


def refusal(application: Application | None, template: Json, *, allowed: bool) -> Failure | None:
    """Why no VM of the pool can run the application, or None."""
    if application is None:
        return None
    if not allowed:
        message = "application: claimPolicy.allowApplication of the pool is not true"
        return Failure(ClaimReason.APPLICATION_NOT_ALLOWED, message)
    if "spec" not in template:
        if template.get("protocol") == "GRPC":
            return None
        return _unsupported("spec.ec2.protocol of the pool is not GRPC, so its instances have no agent")
    if images := [c.name for c in application.containers if c.image]:
        return _unsupported(f"container {images[0]} has an image, and a VM has no agent that runs it; give a command")
    if secrets := application.secrets:
        return _unsupported(f"Secret {secrets[0]}: the cloud-init data of a VM is no secret; only agents get Secrets")
    if _cloud_config(template) is None:
        volume = f"a {' or '.join(CLOUD_INIT_METHODS)} volume with userData that begins with {CLOUD_CONFIG}"
        return _unsupported(f"the pool's template needs {volume}")
    return None


def needs_boot(application: Application | None, template: Json) -> str:
    """Why only a VM that is created for the claim can run the application, or an empty string."""
    if application is None or "spec" not in template:
        return ""
    return "the application of the claim starts when its VM boots"


def with_application(template: Json, application: Application | None) -> Json:
    """The template of a VM that is created for the claim, whose cloud-init starts the application."""
    config = _cloud_config(template)
    if application is None or config is None:
        return template
    changed = copy.deepcopy(template)
    volume, kind = _cloud_init_volume(changed) or ({}, "")
    commands = [_service(container, application.restart_policy) for container in application.containers]
    given = config.get("runcmd")
    config["runcmd"] = [*(given if isinstance(given, list) else []), *commands]
    volume[kind]["userData"] = f"{CLOUD_CONFIG}\n{yaml.safe_dump(config, sort_keys=False)}"
    return changed


async def read_pod_spec(api: Api, namespace: str, application: Application) -> Json | Failure:
    """The application as the spec of a Pod, with the values of Secrets in the place of their names. Raises errors that
    pass by themselves."""
    contents: dict[str, Json | None] = {}
    for name in application.secrets:
        try:
            contents[name] = (await api.get(SECRETS, namespace, name)).get("data") or {}
        except NotFound:
            contents[name] = None
        except TRANSIENT:
            raise
        except ApiError as error:
            message = f"application: Secret {name}: {error.message}; see Applications in the documentation of EC2"
            return Failure(ClaimReason.SECRETS_FORBIDDEN, message)
    spec = application.json()
    for container, document in zip(application.containers, spec["containers"], strict=True):
        env = []
        for variable in container.env:
            value: str | None = variable.value or ""
            if variable.value_from is not None:
                ref = variable.value_from.secret_key_ref
                value = _entry(contents[ref.name], ref.key)
                if value is None and not ref.optional:
                    there = "has no" if contents[ref.name] is not None else "does not exist; it needs"
                    message = f"application: Secret {ref.name} {there} entry {ref.key} of text"
                    return Failure(ClaimReason.APPLICATION_SECRET_MISSING, message)
            if value is not None:
                env.append({"name": variable.name, "value": value})
        document["env"] = env
    return spec


def _entry(content: Json | None, key: str) -> str | None:
    try:
        return b64decode(str((content or {})[key])).decode()
    except (KeyError, ValueError):
        return None


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
    except yaml.YAMLError:
        return None
    if config is None:
        return {}
    return config if isinstance(config, dict) else None
