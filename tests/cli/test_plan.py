"""The namespace of an object in a file, beside `-n`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controllers.pool.hypothetical_snapshot import hypothetical_snapshot as of_pool
from controllers.pool.stores import Stores as PoolStores
from controllers.replicaset.observe import Stores as SetStores
from controllers.replicaset.simulate import hypothetical_snapshot as of_set
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.manifests import Manifest
from poolhouse.cli.output import Failed
from poolhouse.cli.plan import _in_namespace, _print, plan, pool_answer, replica_set_answer, valid
from tests.controllers.pool.builders import NOW
from tests.controllers.replicaset.builders import document as replica_set
from tests.kinds.documents import pool

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {namespace: current}}]
"""


def document(namespace: str | None) -> Any:
    made = pool()
    made["metadata"] = {"name": "web", **({"namespace": namespace} if namespace else {})}
    return made


@pytest.mark.parametrize(
    ("requested", "given", "expected"),
    [
        pytest.param(None, None, "current", id="the namespace of the context"),
        pytest.param(None, "shop", "shop", id="the namespace of the file"),
        pytest.param("shop", None, "shop", id="the namespace of -n"),
        pytest.param("shop", "shop", "shop", id="the same in both"),
        pytest.param("test", "shop", None, id="different ones"),
    ],
)
def test_the_namespace_of_an_object(requested: str | None, given: str | None, expected: str | None) -> None:
    cluster = Cluster(Path("none"), requested or "current", requested_namespace=requested)
    manifest = Manifest(document(given), "pool.yaml")
    if expected is not None:
        assert _in_namespace(manifest, cluster).document["metadata"]["namespace"] == expected
        return
    with pytest.raises(Failed, match=r"pool.yaml: metadata.namespace is shop, and -n is test"):
        _in_namespace(manifest, cluster)


def test_a_file_of_another_namespace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "pool.json").write_text(json.dumps(document("shop")))
    options = ["-f", str(tmp_path / "pool.json"), "--kubeconfig", str(tmp_path / "kubeconfig"), "-n", "test"]
    result = CliRunner().invoke(plan, options)
    assert (result.exit_code, "metadata.namespace is shop, and -n is test" in result.output) == (1, True)


def test_the_plan_of_too_many_vms_ends_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    made = document("shop")
    made["spec"]["replicas"] = 10**9
    for found in (
        pool_answer(valid(of_pool(PoolStores(), made, 250)), NOW, max_actions=1000),
        replica_set_answer(valid(of_set(SetStores(), replica_set(10**9), 250)), NOW, max_actions=1000),
    ):
        assert (len(found["plan"]), found["complete"]) == (1000, False)
        _print(found, "")
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "web: the first 1000 actions in 4 rounds, if all succeed"
        assert "  more actions follow; the simulation ends here" in lines
