"""The webhook configurations."""

from __future__ import annotations

from typing import Any

import pytest

from defaulter.contract import DEFAULTED_FIELDS
from poolhouse.api.kinds import KINDS, meta
from poolhouse.manifests import webhooks

CA = b"-----BEGIN CERTIFICATE-----\n"


@pytest.mark.sentence("4.34")
def test_defaulting_fails_open_and_our_kinds_fail_closed() -> None:
    found = webhooks.configurations(url="https://127.0.0.1:1/", ca_bundle=CA, failure_policy="Fail")
    verification = next(c for c in found if c["webhooks"][0]["name"].startswith("defaulting-verification"))
    assert verification["webhooks"][0]["failurePolicy"] == "Ignore", "a webhook that only warns denies nothing"
    found = webhooks.configurations(url="https://127.0.0.1:1/", ca_bundle=CA)
    policies = {
        webhook["name"]: (webhook["failurePolicy"], webhook["clientConfig"]["url"])
        for configuration in found
        for webhook in configuration["webhooks"]
    }
    assert policies == {
        "defaulting.poolhouse.dev": ("Ignore", "https://127.0.0.1:1/mutate"),
        "defaulting-verification.poolhouse.dev": ("Ignore", "https://127.0.0.1:1/validate"),
        "pools.poolhouse.dev": ("Fail", "https://127.0.0.1:1/mutate"),
        "pools-validation.poolhouse.dev": ("Fail", "https://127.0.0.1:1/validate"),
        "scale.poolhouse.dev": ("Ignore", "https://127.0.0.1:1/validate"),
    }


@pytest.mark.sentence("4.29")
def test_defaulting_comes_after_other_webhooks_and_again_after_a_later_one() -> None:
    found = webhooks.configurations(url="https://127.0.0.1:1/", ca_bundle=CA)
    (configuration,) = (
        each for each in found if each["kind"].startswith("Mutating") and "defaulting" in each["metadata"]["name"]
    )
    assert configuration["metadata"]["name"].startswith("zz-"), "the API server calls them in the order of the names"
    (webhook,) = configuration["webhooks"]
    assert webhook["reinvocationPolicy"] == "IfNeeded"


def test_scale_subresources_of_all_kinds_with_replicas_are_reviewed() -> None:
    found = webhooks.configurations(service=webhooks.Service(), ca_bundle=CA)
    (scale,) = (w for each in found for w in each["webhooks"] if w["name"] == "scale.poolhouse.dev")
    assert {(rule["apiGroups"][0], rule["resources"][0], *rule["operations"]) for rule in scale["rules"]} == {
        (kind.group, f"{kind.plural}/scale", "UPDATE") for kind in KINDS if kind.scale is not None
    }


def test_the_webhooks_are_called_for_every_kind() -> None:
    found = webhooks.configurations(service=webhooks.Service(), ca_bundle=CA)
    ours = [each for each in found if each["metadata"]["name"] == webhooks.KINDS_CONFIGURATION]
    assert len(ours) == 2
    for configuration in ours:
        rules = configuration["webhooks"][0]["rules"]
        assert {
            (group, resource) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]
        } == {(kind.group, kind.plural) for kind in KINDS}
        assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in rules), "nothing may stop a deletion"


def test_the_match_condition_looks_for_the_record_that_the_defaulter_writes() -> None:
    assert meta.DEFAULTED_FIELDS == DEFAULTED_FIELDS


@pytest.mark.parametrize("reached", [{}, {"url": "https://a", "service": webhooks.Service()}])
def test_a_webhook_has_a_url_or_a_service(reached: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one of the two"):
        webhooks.configurations(ca_bundle=CA, **reached)
