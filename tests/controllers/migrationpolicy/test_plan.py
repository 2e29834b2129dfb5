"""What is done about a policy, and about an instance."""

from __future__ import annotations

import pytest

from controllers.migrationpolicy import state
from controllers.migrationpolicy.plan import Create, Delete, Repair, Stamp, plan, stamp
from migrationpolicies.upstream import upstream_spec
from tests.controllers.migrationpolicy.builders import enforcer, given, policy

DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("known", "action"),
    [
        pytest.param(given(), Create(upstream_spec("gold", {})), id="nothing enforces it yet"),
        pytest.param(given(enforcer=enforcer()), None, id="in step"),
        pytest.param(given(served=False), None, id="KubeVirt's kind is not there"),
        pytest.param(given(policy(metadata=DELETED), enforcer=enforcer()), None, id="being deleted, by its owner"),
        pytest.param(given(enforcer=enforcer(metadata=DELETED)), None, id="going: it is made again when it is gone"),
        pytest.param(
            given(enforcer=enforcer(spec={"allowPostCopy": True})),
            Repair("uid-of-gold", upstream_spec("gold", {}), "allowPostCopy, selectors differed from the policy"),
            id="drift",
        ),
        pytest.param(
            given(policy(allowPostCopy=True, disableTLS=True), enforcer=enforcer()),
            Repair(
                "uid-of-gold", upstream_spec("gold", {"allowPostCopy": True}), "allowPostCopy differed from the policy"
            ),
            id="the policy was changed",
        ),
        pytest.param(given(enforcer=enforcer(owner="", marked=False)), None, id="somebody else's of the same name"),
        pytest.param(
            given(enforcer=enforcer(owner="another", marked=True)), None, id="marked as ours is not owned by us"
        ),
        pytest.param(
            given(enforcer=enforcer(owner="")),
            Repair("uid-of-gold", upstream_spec("gold", {}), "it had lost its owner"),
            id="ours of an earlier life is taken back",
        ),
        pytest.param(
            given(elder="old", enforcer=enforcer()),
            Delete("uid-of-gold", "the policy takes no part in deciding"),
            id="it lost the race",
        ),
        pytest.param(given(elder="old"), None, id="it lost the race and nothing enforces it"),
        pytest.param(
            given(elder="old", enforcer=enforcer(owner="", marked=False)), None, id="it lost, and the other is not ours"
        ),
        pytest.param(
            given(policy(instance={}), enforcer=enforcer()),
            Delete("uid-of-gold", "the policy takes no part in deciding"),
            id="for nobody any more",
        ),
        pytest.param(given(policy(instance={"bad key": ""})), None, id="not valid, past the webhook"),
    ],
)
def test_what_enforces_a_policy_is_kept_in_step(known, action) -> None:
    assert plan(known) == action


def instance(*, stamped: str | None = None, phase: str = "Running", **metadata):
    labels = {"app": "web", **({"poolhouse.dev/migration-policy": stamped} if stamped else {})}
    return state.instance(
        {
            "metadata": {"namespace": "shop", "name": "web", "uid": "u", "labels": labels, **metadata},
            "status": {"phase": phase},
        }
    )


@pytest.mark.parametrize(
    ("found", "winner", "action"),
    [
        pytest.param(instance(), "gold", Stamp("u", "gold", "it obeys gold"), id="stamped"),
        pytest.param(instance(stamped="gold"), "gold", None, id="stamped already"),
        pytest.param(instance(stamped="lead"), "gold", Stamp("u", "gold", "it obeys gold, not lead"), id="another"),
        pytest.param(instance(stamped="gold"), None, Stamp("u", None, "no policy matches it any more"), id="taken off"),
        pytest.param(instance(), None, None, id="none, and none there"),
        pytest.param(instance(**DELETED), "gold", None, id="going"),
        pytest.param(instance(phase="Succeeded"), "gold", None, id="over"),
    ],
)
def test_an_instance_carries_the_name_of_its_winner(found, winner, action) -> None:
    assert stamp(found, winner) == action


def test_the_stamp_is_no_label_that_decides() -> None:
    assert instance(stamped="gold").labels == {"app": "web"}
