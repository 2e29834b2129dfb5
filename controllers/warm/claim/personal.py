"""What of a machine is made its claimant's own.

What a guest is told while it boots can only be told to one that boots for its claim. A machine that was warm has
booted before anybody asked for it: KubeVirt can neither rename it nor give it a Secret that it didn't have. So the
status says of each wish whether it was granted, and why not.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from kinds.claim import Personalization
from kinds.condition import Condition

Json = dict[str, Any]


def labels(wish: Personalization | None) -> Mapping[str, str]:
    return dict(wish.labels or {}) if wish is not None else {}


def personal_template(template: Json, wish: Personalization | None) -> Json:
    """For a machine that is made for the claim."""
    if wish is None or not (wish.hostname or wish.ssh_public_key_secret) or "spec" not in template:
        return template
    changed = copy.deepcopy(template)
    instance = changed["spec"].setdefault("template", {}).setdefault("spec", {})
    if wish.hostname:
        instance["hostname"] = wish.hostname
    if wish.ssh_public_key_secret:
        key = {"source": {"secret": {"secretName": wish.ssh_public_key_secret}}, "propagationMethod": {"noCloud": {}}}
        instance["accessCredentials"] = [*(instance.get("accessCredentials") or ()), {"sshPublicKey": key}]
    return changed


def personalized(wish: Personalization | None, launch: str) -> list[Condition]:
    """The condition that says what came of it; none where nothing was wished."""
    if wish is None or not (wish.labels or wish.hostname or wish.ssh_public_key_secret):
        return []
    late = [name for name, value in (("hostname", wish.hostname), ("ssh key", wish.ssh_public_key_secret)) if value]
    if launch == "Cold" or not late:
        return [Condition(type="Personalized", status="True", reason="Personalized", message="all that was wished")]
    said = f"{' and '.join(late)}: the machine had booted before it was claimed; only a cold start can be given these"
    return [Condition(type="Personalized", status="False", reason="BootedBefore", message=said)]
