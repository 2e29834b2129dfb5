"""What `up --apply` makes of a manifest."""

from __future__ import annotations

import json

from local.show import LAST_APPLIED, as_applied


def test_a_manifest_is_made_as_kubectl_apply_would() -> None:
    document = {"kind": "VirtualMachinePool", "metadata": {"name": "web", "annotations": {"mine": "yes"}}, "spec": {}}
    made = as_applied(document)
    said = made["metadata"]["annotations"].pop(LAST_APPLIED)
    assert made == document
    assert json.loads(said) == document
    assert LAST_APPLIED not in document["metadata"]["annotations"]


def test_one_without_annotations_says_so_as_kubectl_does() -> None:
    made = as_applied({"kind": "VirtualMachinePool", "metadata": {"name": "web"}})
    assert json.loads(made["metadata"]["annotations"][LAST_APPLIED])["metadata"] == {"name": "web", "annotations": {}}
