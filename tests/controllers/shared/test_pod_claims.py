"""Which claims belong to Pods."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.shared.pod_claims import ClaimingPod, claim_metadata, claim_name, pod_of
from poolhouse.api.kinds import meta

Json = dict[str, Any]

OWN = claim_metadata("web", "u-1")
OTHER = claim_metadata("web", "u-2")


def only(**metadata: Any) -> Json:
    return {"name": "mine", **metadata}


@pytest.mark.parametrize(
    ("metadata", "pod"),
    [
        pytest.param(OWN, ClaimingPod("web", "u-1"), id="the controllers made it"),
        pytest.param(OWN | {"ownerReferences": None}, ClaimingPod("web", "u-1", lost=True), id="it has lost its Pod"),
        pytest.param(
            OWN | {"ownerReferences": [{**OWN["ownerReferences"][0], "controller": False}]},
            ClaimingPod("web", "u-1", lost=True),
            id="its Pod only owns it",
        ),
        pytest.param(
            OWN | {"ownerReferences": OTHER["ownerReferences"]},
            ClaimingPod("web", "u-1", lost=True),
            id="it was given to another Pod",
        ),
        pytest.param(only(), None, id="a user made it"),
        pytest.param(only(ownerReferences=OWN["ownerReferences"]), None, id="a user gave it a Pod"),
        pytest.param(only(annotations=OWN["annotations"]), None, id="a user gave it the annotations"),
        pytest.param(OWN | {"name": "mine"}, None, id="it has the name of a user"),
        pytest.param(OWN | {"name": OTHER["name"]}, None, id="it has the name of the claim of another Pod"),
        pytest.param(OWN | {"annotations": {meta.POD_NAME: "web"}}, None, id="it has no UID"),
    ],
)
def test_which_pod_a_claim_belongs_to(metadata: Json, pod: ClaimingPod | None) -> None:
    assert pod_of({"metadata": metadata}) == pod


@pytest.mark.parametrize("name", ["web", "a" * 63, "a" * 53 + "." + "b" * 60, "x" * 253])
def test_a_claim_has_a_valid_name_that_only_this_pod_gets(name: str) -> None:
    assert len(claim_name(name, "u-1")) <= 63
    assert claim_name(name, "u-1") == claim_name(name, "u-1") != claim_name(name, "u-2")
    assert ".-" not in claim_name(name, "u-1")
