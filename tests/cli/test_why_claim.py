"""What `poolhouse why vmclaim/NAME` says."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.cli.why_claim import claim_name, facts, past

CREATED = "2026-03-01T11:00:00Z"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vmclaim/mine", "mine"),
        ("vmclaims/mine", "mine"),
        ("virtualmachineclaim.poolhouse.dev/mine", "mine"),
        ("mine", ""),
        ("vpool/mine", ""),
        ("web-1/0a1b", ""),
        ("vmclaim/mine/0a1b", ""),
    ],
)
def test_the_forms_of_a_claim(text: str, name: str) -> None:
    assert claim_name(text) == name


@pytest.mark.parametrize(
    ("spec", "status", "fact"),
    [
        pytest.param(
            {"poolName": "web"}, {}, "it waits for a VM of the warm pool web; `poolhouse warmpool why web`", id="new"
        ),
        pytest.param(
            {}, {"phase": "Queued"}, "it waits for a VM of the default warm pool of the namespace", id="no pool"
        ),
        pytest.param(
            {},
            {"phase": "Ready", "boundAt": CREATED, "expiresAt": "2026-03-01T12:00:00.123Z"},
            "it ends at 2026-03-01T12:00:00Z",
            id="a time limit",
        ),
        pytest.param({}, {"phase": "Ready", "boundAt": CREATED}, "it has no time limit", id="no time limit"),
        pytest.param(
            {},
            {"phase": "Released", "finishedAt": CREATED},
            f"it has ended at {CREATED}; it never had a VM",
            id="unbound",
        ),
        pytest.param({"release": True}, {"phase": "Queued"}, "its release was requested", id="release is requested"),
        pytest.param(
            {},
            {"phase": "Expired", "boundAt": CREATED, "finishedAt": "2026-03-01T12:00:00.5Z"},
            "it has ended at 2026-03-01T12:00:00Z",
            id="ended",
        ),
    ],
)
def test_the_facts_about_a_claim(spec: dict[str, Any], status: dict[str, Any], fact: str) -> None:
    metadata = {"creationTimestamp": CREATED, "annotations": {"poolhouse.dev/requester": "alice"}}
    first, second = facts({"metadata": metadata, "spec": spec, "status": status})
    assert first == f"it was created at {CREATED} by alice"
    assert second.startswith(fact)


def test_only_events_about_this_claim_are_shown() -> None:
    def event(uid: str, minute: int) -> dict[str, Any]:
        return {
            "regarding": {"uid": uid},
            "eventTime": f"2026-03-01T11:{minute:02}:00Z",
            "reason": f"R{minute}",
            "note": "",
        }

    events = [event("u", 2), event("other", 1), event("u", 1)]
    assert [each["reason"] for each in past(events, "u")] == ["R1", "R2"]
