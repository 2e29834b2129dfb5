"""How the command's arguments are read, and what it prints."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import MIGRATION_POLICY
from poolhouse.api.migrationpolicies.explanation import ClusterState, explain
from poolhouse.cli.main import poolhouse
from poolhouse.cli.output import Failed
from poolhouse.cli.policy import _applied, _label, _lines, _not_found, _policies
from poolhouse.runtime.errors import Forbidden, NotFound
from poolhouse.runtime.resource import Resource
from tests.kinds.policies import policy
from webhook.explain import PolicyExplainer, parse_question


@pytest.mark.parametrize(
    ("text", "label"), [("gpu=nvidia", ("gpu", "nvidia")), ("gpu=", ("gpu", "")), ("gpu-", ("gpu", None))]
)
def test_a_label_is_supposed_or_taken_away(text: str, label: tuple[str, str | None]) -> None:
    assert _label(text) == label


def test_half_a_label_is_a_mistake() -> None:
    with pytest.raises(click.UsageError, match="KEY=VALUE"):
        _label("gpu")


def test_policies_are_taken_in_the_form_that_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(yaml.safe_dump_all([policy("one", {"a": True}), policy("other", {"b": ""})]))
    with file.open("rb") as source:
        found = [each.document for each in _policies([source])]
    assert [each["metadata"]["name"] for each in found] == ["one", "other"]
    assert found[0]["spec"]["selectors"]["virtualMachineInstanceSelector"]["matchLabels"] == {"a": "true"}


class Stored:
    """An API that has policies by name."""

    def __init__(self, *policies: Json) -> None:
        self._policies = {each["metadata"]["name"]: each for each in policies}

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        if name not in self._policies:
            raise NotFound(f'"{name}" not found', status=404)
        return self._policies[name]


def applied(file: Path, *stored: Json) -> list[Json]:
    with file.open("rb") as source:
        return asyncio.run(_applied(Stored(*stored), _policies([source])))


def test_problems_of_policies_are_reported_with_their_file(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(
        yaml.safe_dump_all([policy("one", {"a": "b"}), policy("two", {"a": "c"}, bandwidthPerMigration="x")])
    )
    with pytest.raises(Failed) as refused:
        applied(file)
    assert str(refused.value).startswith(f"{file}, document 2: two: spec.bandwidthPerMigration: ")


def test_fields_that_the_file_does_not_have_keep_their_values(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump({**policy("one"), "spec": {"allowPostCopy": True}}))
    (found,) = applied(file, policy("one", {"a": "b"}, bandwidthPerMigration="1Gi"))
    assert found["spec"] == {**policy("one", {"a": "b"}, bandwidthPerMigration="1Gi")["spec"], "allowPostCopy": True}


def test_a_name_that_no_policy_can_have_is_refused_before_it_is_in_a_path(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    for name in ("../x", "", None, 7):
        file.write_text(yaml.safe_dump({**policy("p", {"a": "b"}), "metadata": {"name": name}}))
        with file.open("rb") as source, pytest.raises(Failed, match=r"metadata\.name"):
            _policies([source])


def test_a_policy_that_has_no_name_yet_is_sent_back(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump({**policy("p", {"a": "b"}), "metadata": {"generateName": "p-"}}))
    with file.open("rb") as source, pytest.raises(Failed) as refused:
        _policies([source])
    assert str(refused.value).startswith(f"{file}: p-: metadata.name: is missing; generateName")


@pytest.mark.parametrize(
    ("kind", "paths", "said"),
    [
        ("VirtualMachineInstance", {"name"}, 'virtualmachineinstances.kubevirt.io "web" not found in namespace shop'),
        ("VirtualMachine", {"name"}, 'virtualmachines.kubevirt.io "web" not found in namespace shop'),
        ("VirtualMachine", {"namespace"}, 'namespaces "shop" not found'),
    ],
)
def test_a_missing_object_is_reported_in_the_form_of_kubectl(kind: str, paths: set[str], said: str) -> None:
    assert _not_found(kind, "web", "shop", paths) == said


def test_the_answer_in_words() -> None:
    there = ClusterState(
        (policy("gold", {"gpu": ""}, {"tier": "gold"}, allowPostCopy=True), policy("gpu", {"gpu": ""}), policy("draft"))
    )
    told = explain({"gpu": "nvidia"}, {"tier": "gold"}, there)
    told |= {"namespace": "shop", "name": "web", "supposed": False, "halted": False, "stamped": "gpu"}
    lines = list(_lines(told, others=True))
    assert lines[0] == "shop/web uses gold: it goes before gpu: it matches more labels, 2 to 1"
    assert "  1. gold: gpu=nvidia, namespace tier=gold" in lines
    assert any(line.startswith("  -  draft: ") for line in lines)
    assert any(line.split() == ["allowPostCopy", "true", "policy", "gold"] for line in lines)
    assert any(line.split() == ["completionTimeoutPerGiB", "150", "built-in", "default"] for line in lines)
    assert "its label is not up to date: it names gpu" in lines[-1]


def test_a_halted_vm_would_use_a_policy() -> None:
    told = explain({"gpu": "nvidia"}, {}, ClusterState((policy("gpu", {"gpu": ""}),), {}, None))
    told |= {"namespace": "shop", "name": "web", "supposed": False, "halted": True, "stamped": None}
    lines = list(_lines(told, others=False))
    assert lines[0] == "shop/web would use gpu, if it ran: no other policy matches"
    assert not any(line.startswith("note:") for line in lines)


class OneNamespace:
    """An API for a user with a RoleBinding, who may get VMs and VMIs."""

    def __init__(self, vmi: Json | None) -> None:
        self._vmi = vmi

    async def request(self, method: str, path: str, **_: Any) -> Json:
        match path.split("/")[-2:]:
            case ["virtualmachineinstances", _] if self._vmi is not None:
                return self._vmi
            case ["virtualmachineinstances", _]:
                raise NotFound("not found", status=404)
            case ["virtualmachines", _]:
                return {"spec": {"template": {}}}
        raise Forbidden('migrationpolicies is forbidden: User "anna" cannot list it', status=403)


def seen_by_tenant(vmi: Json | None, **more: Any) -> list[str]:
    """What `policy explain` prints for the VMI, or for a halted VM."""

    async def asked() -> Json:
        explainer = PolicyExplainer(OneNamespace(vmi))
        question = parse_question({"namespace": "shop", "name": "web", **more})
        try:
            return await explainer.explain(question)
        except Forbidden as error:
            return await explainer.explain_by_label(question, error)

    return list(_lines(asyncio.run(asked()), others=True))


def test_a_user_who_may_not_list_policies_sees_what_the_label_names() -> None:
    lines = seen_by_tenant({"metadata": {"labels": {MIGRATION_POLICY: "gold"}}, "status": {"phase": "Running"}})
    assert lines[0] == f"shop/web uses gold: the label {MIGRATION_POLICY} of its VMI names it"
    assert 'User "anna" cannot list it: you cannot see the other policies' in lines[1]
    lines = seen_by_tenant({"metadata": {}, "status": {"phase": "Running"}})
    assert lines[0] == f"shop/web uses no policy: the label {MIGRATION_POLICY} of its VMI names none"


@pytest.mark.parametrize(
    ("vmi", "more"),
    [
        pytest.param(None, {}, id="a halted VM has no label"),
        pytest.param({"metadata": {}}, {"withLabels": {"gpu": "nvidia"}}, id="an assumed label is not that of the VMI"),
    ],
)
def test_without_a_label_the_right_is_missing(vmi: Json | None, more: Json) -> None:
    with pytest.raises(Forbidden, match="migrationpolicies is forbidden"):
        seen_by_tenant(vmi, **more)


@pytest.mark.parametrize(
    "arguments", [["impact"], ["explain"], ["explain", "pod/x"], ["explain", "x", "--with-label", "y"]]
)
def test_invalid_usage_is_an_error(arguments: list[str], tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    found = CliRunner().invoke(poolhouse, ["policy", *arguments, "--kubeconfig", str(kubeconfig)])
    assert found.exit_code == 2
