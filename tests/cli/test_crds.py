"""`poolhouse crds` prints the CRDs that are installed."""

from __future__ import annotations

import json

import yaml
from click.testing import CliRunner

from poolhouse.api.kinds import kubevirt
from poolhouse.cli.crds import crds
from poolhouse.manifests.crd import crds as render


def test_crds_prints_our_crds_as_yaml() -> None:
    answer = CliRunner().invoke(crds)
    assert answer.exit_code == 0
    assert list(yaml.safe_load_all(answer.output)) == render()


def test_crds_prints_kubevirts_crds_too_as_json() -> None:
    answer = CliRunner().invoke(crds, ["--kubevirt", "-o", "json"])
    assert answer.exit_code == 0
    assert json.loads(answer.output)["items"] == render() + render(kubevirt.KUBEVIRT_KINDS)


def test_crds_beside_kubevirt_leaves_out_replica_sets() -> None:
    answer = CliRunner().invoke(crds, ["--beside-kubevirt"])
    names = {each["metadata"]["name"] for each in yaml.safe_load_all(answer.output)}
    assert "virtualmachineinstancereplicasets.kubevirt.io" not in names
    assert "virtualmachinepools.kubevirt.io" in names
    assert "# KubeVirt has the same resource." in CliRunner().invoke(crds).output
    assert CliRunner().invoke(crds, ["--beside-kubevirt", "--kubevirt"]).exit_code == 2
