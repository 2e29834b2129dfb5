"""What of a machine is made its claimant's own.

What a guest is told while it boots can only be told to one that boots for its claim. A machine that was warm has
booted before anybody asked for it: it can't be renamed from outside, and keys reach it only where its template is made
for that (`keys`). Labels reach every machine. The status says of each wish whether it was granted, and if not, why and
what to do.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, Literal

from apimachinery.unstructured import entries
from controllers.claim.snapshot import Failure
from controllers.warmpool.ec2.tags import OURS
from controllers.warmpool.ssh_keys import wants_key
from kinds import meta
from kinds.claim import Personalization
from kinds.metav1 import Condition

Json = dict[str, Any]

SEEDS = {"cloudInitNoCloud": "noCloud", "cloudInitConfigDrive": "configDrive"}
"""the propagation method of an access credential, by the volume that it needs"""


def labels(wish: Personalization | None) -> Mapping[str, str]:
    """Without those that are not a claim's to give: admission refuses them, where there is one."""
    given = (wish.labels or {}) if wish is not None else {}
    return {key: value for key, value in given.items() if not _reserved(key)}


def _reserved(label: str) -> bool:
    return "/" in label and label.partition("/")[0].endswith(("kubevirt.io", meta.DOMAIN))


def wished(wish: Personalization | None) -> bool:
    """Whether there is anything to grant."""
    return wish is not None and bool(wish.labels or wish.hostname or wish.ssh_public_key_secret)


def personal_template(template: Json, wish: Personalization | None) -> Json:
    """For a machine that is made for the claim."""
    if wish is None or not (wish.hostname or wish.ssh_public_key_secret) or "spec" not in template:
        return template
    changed = copy.deepcopy(template)
    instance = changed["spec"].setdefault("template", {}).setdefault("spec", {})
    if wish.hostname:
        instance["hostname"] = wish.hostname
    if wish.ssh_public_key_secret and not wants_key(template) and (method := seed(template)):
        key = {"source": {"secret": {"secretName": wish.ssh_public_key_secret}}, "propagationMethod": {method: {}}}
        instance["accessCredentials"] = [*(instance.get("accessCredentials") or ()), {"sshPublicKey": key}]
    return changed


def seed(template: Json) -> str:
    """How a guest of the template is told of keys while it boots, or nothing: KubeVirt puts them on a volume that is
    there, and refuses a VM that has none."""
    volumes = [each for _, each in entries(template, "spec", "template", "spec", "volumes")]
    return next((method for kind, method in SEEDS.items() if any(kind in each for each in volumes)), "")


def beyond(wish: Personalization, launch: str, *, instance: bool, keyed: bool, seeded: bool) -> tuple[Failure, ...]:
    """Wishes that no machine of this launch can be granted. `keyed`: its template asks for a Secret of its own;
    `seeded`: it has a volume for what a guest is told while it boots."""
    found = []
    if reserved := [key for key in wish.labels or () if _reserved(key) or (instance and key in OURS)]:
        found.append(Failure("LabelsRefused", f"labels: {', '.join(reserved)} is not a claim's to give"))
    if wish.hostname and (instance or launch != "Cold"):
        found.append(
            Failure(
                "BootedBefore",
                "hostname: the machine had booted before it was claimed; a claim of a pool of no replicas has one made,"
                " which boots under the name",
            )
        )
    if wish.ssh_public_key_secret and instance:
        found.append(Failure("NotForInstances", "ssh key: an instance of EC2 has the key pair of its pool"))
    elif wish.ssh_public_key_secret and launch != "Cold" and not keyed:
        found.append(
            Failure(
                "NoSecretOfItsOwn",
                f"ssh key: the machine had booted before it was claimed, and has no Secret {meta.CLAIM_KEY}-... of its"
                f" own: name {meta.CLAIM_KEY} in an access credential of the pool's template",
            )
        )
    elif wish.ssh_public_key_secret and not keyed and not seeded:
        found.append(
            Failure(
                "NoSecretOfItsOwn",
                f"ssh key: nothing tells the guest: the pool's template needs a {' or '.join(SEEDS)} volume, or an"
                f" access credential that names {meta.CLAIM_KEY}",
            )
        )
    return tuple(found)


def personalized(wish: Personalization | None, refused: Collection[Failure] | None) -> list[Condition]:
    """The condition that says what came of it; none where nothing was wished, or where it was said before."""
    if wish is None or not wished(wish) or refused is None:
        return []
    if not refused:
        late = "; a guest that had booted has its keys within two minutes" if wish.ssh_public_key_secret else ""
        return [_condition("True", "Personalized", f"all that was wished{late}")]
    return [_condition("False", next(iter(refused)).reason, "; ".join(each.message for each in refused))]


def _condition(status: Literal["True", "False"], reason: str, message: str) -> Condition:
    return Condition(type="Personalized", status=status, reason=reason, message=message)
