"""Applies `spec.personalization` of a claim to its VM: labels, SSH keys and a hostname.

Every VM can get labels. A claim with a hostname gets a VM that boots for it, and that can get keys by cloud-init. A VM
that booted before the claim can get SSH keys if the pool's template prepares it (`ssh_keys`). The condition
Personalized lists what the VM did not get, with the cause and a solution.
"""

import copy
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import Claim, Failure
from controllers.shared.conditions import condition
from controllers.warmpool import ssh_keys
from controllers.warmpool.backends import WriteConflict, translated_errors
from controllers.warmpool.warm_vm import WarmVM, parse_warm_vm
from poolhouse.api.apimachinery.unstructured import Json, entries
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.claim import Personalization
from poolhouse.api.kinds.ec2 import RESERVED_TAGS
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kubevirt.volumes import CLOUD_INIT_METHODS
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.errors import ApiError, Conflict, NotFound, Throttled, Unavailable, Unreachable, WebhookFailed
from poolhouse.runtime.resource import SECRETS, VMIS, VMS

TRANSIENT = (Conflict, Throttled, Unavailable, Unreachable, WebhookFailed)
"""errors that may pass if the same request is repeated"""
SYNCHRONIZED = "AccessCredentialsSynchronized"
"""the VMI condition with which KubeVirt reports that the guest agent got a Secret's keys"""


def is_personalized(personalization: Personalization | None) -> bool:
    return personalization is not None and bool(
        personalization.labels or personalization.hostname or personalization.ssh_public_key_secret
    )


def hostname_needs_boot(personalization: Personalization | None, template: Json) -> str:
    """Why only a VM that is created for the claim can get the hostname, or an empty string."""
    if personalization is None or not personalization.hostname or "spec" not in template:
        return ""
    return "the hostname of the claim is set when its VM boots"


def forbidden(personalization: Personalization | None, allowed: tuple[str, ...] | None) -> str:
    """Why the pool refuses the personalization, or an empty string. A pool allows only the fields in `allowed`."""
    given = personalization.model_dump(by_alias=True, exclude_none=True) if personalization is not None else {}
    if refused := [name for name, value in given.items() if value and name not in (allowed or ())]:
        permitted = ", ".join(allowed or ()) or "none"
        return (
            f"personalization.{refused[0]} is not one of the pool's claimPolicy.allowedPersonalization, which are:"
            f" {permitted}"
        )
    return ""


def labels(personalization: Personalization | None) -> Mapping[str, str]:
    """The labels without reserved labels. Admission also refuses reserved labels, but may not run."""
    given = (personalization.labels or {}) if personalization is not None else {}
    return {key: value for key, value in given.items() if not _is_reserved(key)}


def _is_reserved(label: str) -> bool:
    return "/" in label and label.partition("/")[0].endswith(("kubevirt.io", meta.DOMAIN))


def personalize_template(template: Json, personalization: Personalization | None) -> Json:
    """Adds the hostname and the SSH keys to the template of a VM that is created for the claim."""
    if (
        personalization is None
        or not (personalization.hostname or personalization.ssh_public_key_secret)
        or "spec" not in template
    ):
        return template
    changed = copy.deepcopy(template)
    vmi = changed["spec"].setdefault("template", {}).setdefault("spec", {})
    if personalization.hostname:
        vmi["hostname"] = personalization.hostname
    if secret := key_at_boot(personalization, template):
        source: Json = {"secret": {"secretName": secret}}
        key: Json = {"source": source, "propagationMethod": {cloud_init_method(template): {}}}
        vmi["accessCredentials"] = [*(vmi.get("accessCredentials") or ()), {"sshPublicKey": key}]
    return changed


def key_at_boot(personalization: Personalization | None, template: Json) -> str:
    """The Secret whose keys cloud-init passes to a VM that is created for the claim, or an empty string."""
    if personalization is None or not personalization.ssh_public_key_secret or ssh_keys.wants_key(template):
        return ""
    return personalization.ssh_public_key_secret if cloud_init_method(template) else ""


def cloud_init_method(template: Json) -> str:
    """The propagation method for keys at boot, or an empty string without a cloud-init volume."""
    volumes = [volume for _, volume in entries(template, "spec", "template", "spec", "volumes")]
    return next(
        (method for kind, method in CLOUD_INIT_METHODS.items() if any(each.get(kind) is not None for each in volumes)),
        "",
    )


def impossible(
    personalization: Personalization, launch_type: str, *, is_instance: bool, has_secret: bool, has_cloud_init: bool
) -> list[Failure]:
    """The requests that the VM cannot fulfil. `has_secret`: the template asks for a Secret for each VM."""
    found = []
    reserved = [
        key for key in personalization.labels or () if _is_reserved(key) or (is_instance and key in RESERVED_TAGS)
    ]
    if reserved:
        message = f"labels: {', '.join(reserved)}: reserved; choose other names"
        found.append(Failure(ClaimReason.LABELS_REJECTED, message))
    if personalization.hostname and is_instance:
        message = "hostname: AWS names an EC2 instance"
        found.append(Failure(ClaimReason.UNSUPPORTED_ON_EC2, message))
    if personalization.ssh_public_key_secret and is_instance:
        message = "ssh key: an EC2 instance has the key pair of its pool"
        found.append(Failure(ClaimReason.UNSUPPORTED_ON_EC2, message))
    elif personalization.ssh_public_key_secret and not (has_secret or (launch_type == "Cold" and has_cloud_init)):
        credential = f"an access credential that names {meta.CLAIM_KEY}"
        message = f"ssh key: the VM booted before it was claimed: the pool's template needs {credential}"
        if launch_type == "Cold":
            volume = f"a {' or '.join(CLOUD_INIT_METHODS)} volume"
            message = f"ssh key: nothing passes it to the guest: the pool's template needs {volume}, or {credential}"
        found.append(Failure(ClaimReason.VM_SECRET_MISSING, message))
    return found


def personalized_condition(
    personalization: Personalization | None, failures: Collection[Failure] | None
) -> list[Condition]:
    """The condition Personalized, or nothing if the claim asks for nothing or its status has the condition."""
    if not is_personalized(personalization) or personalization is None or failures is None:
        return []
    if not failures:
        late = (
            "; a guest that had booted has its keys within two minutes" if personalization.ssh_public_key_secret else ""
        )
        message = f"everything that spec.personalization asks for{late}"
        return [condition("Personalized", True, ClaimReason.PERSONALIZED, message)]
    return [condition("Personalized", False, next(iter(failures)).reason, "; ".join(each.message for each in failures))]


@dataclass(frozen=True)
class Personalizer:
    """Personalizes a VM. The calls are idempotent, so a restarted controller can repeat them."""

    api: Api

    async def personalize(self, claim: Claim, vm: WarmVM, template: Json | None) -> tuple[WarmVM, tuple[Failure, ...]]:
        """Returns the changed VM, and the requests that failed. `template` is the pool's, or None for a deleted pool.
        Raises WriteConflict and OutcomeUnknown."""
        personalization, is_instance = claim.spec.personalization, claim.status.instance_ref is not None
        assert personalization is not None
        has_secret = template is None or ssh_keys.wants_key(template)
        failures: list[Failure | None] = [
            *impossible(
                personalization,
                claim.status.launch_type or "",
                is_instance=is_instance,
                has_secret=has_secret,
                has_cloud_init=template is None or bool(cloud_init_method(template)),
            )
        ]
        try:
            with translated_errors():
                if personalization.labels and not is_instance:
                    vm, failure = await self._label(vm, dict(labels(personalization)))
                    failures.append(failure)
                if personalization.ssh_public_key_secret and has_secret and not is_instance:
                    failures.append(await self._copy_keys(vm, personalization.ssh_public_key_secret))
                elif claim.status.launch_type == "Cold" and (secret := key_at_boot(personalization, template or {})):
                    failures.append(await self._invalid_keys(vm.namespace, secret))
        except Conflict as error:
            raise WriteConflict(str(error)) from error
        return vm, tuple(each for each in failures if each is not None)

    async def _label(self, vm: WarmVM, given: dict[str, str]) -> tuple[WarmVM, Failure | None]:
        """Labels the VM's template and the VMI. KubeVirt does not copy new labels to a running VMI."""
        change = {"metadata": {"uid": vm.uid, "resourceVersion": vm.resource_version}}
        template = {"spec": {"template": {"metadata": {"labels": given}}}}
        try:
            changed = parse_warm_vm(await self.api.patch(VMS, vm.namespace, vm.name, {**change, **template}))
            vm = replace(changed, vmi=vm.vmi, node=vm.node)
            if vm.vmi is not None:
                with suppress(NotFound):  # the next VMI gets the labels from the template
                    labelled = {"metadata": {"uid": vm.vmi.uid, "labels": given}}
                    await self.api.patch(VMIS, vm.namespace, vm.vmi.name, labelled)
        except TRANSIENT:
            raise
        except ApiError as error:
            return vm, Failure(ClaimReason.LABELS_REJECTED, f"labels: {error.message}")
        return vm, None

    async def permitted(self, claim: Claim, template: Json) -> Personalization | None:
        """The personalization without a Secret that holds other things than public keys. The condition Personalized
        reports it when the VM is personalized."""
        personalization = claim.spec.personalization
        secret = key_at_boot(personalization, template)
        if personalization is None or not secret or not await self._invalid_keys(claim.namespace, secret):
            return personalization
        return personalization.model_copy(update={"ssh_public_key_secret": None})

    async def _invalid_keys(self, namespace: str, source: str) -> Failure | None:
        """Why the Secret must not be passed to a guest: it does not hold public keys only, or cannot be read."""
        try:
            found = await self._public_keys(namespace, source)
        except TRANSIENT:
            raise
        except ApiError as error:
            return _secrets_forbidden(error)
        return found if isinstance(found, Failure) else None

    async def _public_keys(self, namespace: str, source: str) -> dict[str, str] | Failure:
        given = await find(self.api, SECRETS, namespace, source)
        if given is None:
            message = f"ssh key: Secret {source} does not exist in namespace {namespace}"
            return Failure(ClaimReason.INVALID_PUBLIC_KEYS, message)
        keys, others = ssh_keys.public_keys(given.get("data") or {})
        if others or not keys:
            what = f"{', '.join(others)} in Secret {source}" if others else f"Secret {source}"
            message = f"ssh key: {what} is not a list of SSH public keys; remove everything else"
            return Failure(ClaimReason.INVALID_PUBLIC_KEYS, message)
        return keys

    async def _copy_keys(self, vm: WarmVM, source: str) -> Failure | None:
        name = ssh_keys.secret_name(vm.name)
        try:
            own, keys = await find(self.api, SECRETS, vm.namespace, name), await self._public_keys(vm.namespace, source)
            if own is None or not ssh_keys.is_of(own, vm):
                found = "does not exist" if own is None else "belongs to another VM"
                return Failure(ClaimReason.VM_SECRET_MISSING, f"ssh key: Secret {name} of this VM {found}")
            if isinstance(keys, Failure):
                return keys
            await self._write(own, keys)
        except TRANSIENT:
            raise
        except ApiError as error:
            return _secrets_forbidden(error)
        if vm.vmi is not None and SYNCHRONIZED in vm.vmi.conditions:
            return None
        return Failure(
            ClaimReason.CREDENTIALS_NOT_SYNCHRONIZED,
            f"ssh key: it is in Secret {name}, but the VMI's condition {SYNCHRONIZED} is not True: the guest needs"
            " qemu-guest-agent, and the access credential needs propagationMethod qemuGuestAgent; the embedded engine"
            " passes keys to no guest",
        )

    async def _write(self, secret: Json, data: dict[str, str]) -> None:
        metadata = secret["metadata"]
        version = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        # The null values remove entries of an earlier attempt.
        change = {"metadata": version, "data": dict.fromkeys(secret.get("data") or {}) | data}
        await self.api.patch(SECRETS, metadata["namespace"], metadata["name"], change)


def _secrets_forbidden(error: ApiError) -> Failure:
    message = f"ssh key: {error.message}; see SSH keys in the documentation of warm pools"
    return Failure(ClaimReason.SECRETS_FORBIDDEN, message)
