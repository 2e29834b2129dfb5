"""Migration policies in a whole stack: admission, controllers, engine and questions over HTTP together."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from poolhouse.runtime.resource import NAMESPACES, VMS
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest, vm_spec
from tests.kinds.policies import policy
from tests.kinds.test_migrationpolicy import FULL
from tests.waiting import wait_until

Json = dict[str, Any]

KUBECTL = shutil.which("kubectl") or shutil.which("kubectl", path=str(Path(sys.executable).parent))
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="needs kubectl")
EXAMPLE = Path(__file__).parents[3] / "examples" / "migration-policies.yaml"


class Stack:
    def __init__(self, paths: StackPaths) -> None:
        self.paths = paths
        self.endpoints: Json = json.loads(paths.endpoints.read_text())

    def kubectl(self, *arguments: str, document: str = "", code: int = 0) -> str:
        command = [str(KUBECTL), "--kubeconfig", str(self.paths.kubeconfig), *arguments]
        done = subprocess.run(command, input=document, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def apply(self, *documents: Json, code: int = 0) -> str:
        return self.kubectl("apply", "-f", "-", document=yaml.safe_dump_all(documents), code=code)

    def wait(self, what: str, path: str, value: str, *more: str) -> None:
        self.kubectl("wait", what, f"--for=jsonpath={path}={value}", "--timeout=180s", *more)

    def explain(self, document: Json, token: str) -> httpx.Response:
        trust = ssl.create_default_context(cafile=self.endpoints["ca"])
        with httpx.Client(base_url=self.endpoints["webhook"], verify=trust, timeout=180) as client:
            headers = {"Authorization": f"Bearer {token}"}
            return client.post("/apis/policies/explain", json=document, headers=headers)


@pytest.fixture(scope="module")
def everything(whole: StackPaths) -> Stack:
    return Stack(whole)


@pytest.mark.sentence("3.8", "3.20")
def test_the_manifest_of_the_design_is_applied_and_its_copy_refused(everything: Stack) -> None:
    written = yaml.safe_load(FULL)
    everything.apply(written)
    stored = json.loads(everything.kubectl("get", "migrationpolicies.kubevirt.io", "my-awesome-policy", "-o", "json"))
    assert stored["spec"]["selectors"]["namespaceSelector"]["matchLabels"]["hpc-workloads"] == "true"
    said = everything.apply({**written, "metadata": {"name": "copy"}}, code=1)
    assert 'those of policy "my-awesome-policy"' in said
    assert "spec.selectors" in said
    assert "comes before" in everything.apply(
        policy("tie", {"workload-type": "db", "zone": ""}, {"hpc-workloads": True, "xyz-workloads-type": ""})
    )
    assert "matches no VM" in everything.apply(policy("nobody"))
    everything.kubectl("delete", "migrationpolicies.kubevirt.io", "--all")


def test_a_vm_that_starts_obeys_its_policy_and_a_tenant_may_ask_why(everything: Stack) -> None:
    everything.apply(
        manifest(NAMESPACES, "shop", labels={"hpc-workloads": "true"}),
        *yaml.safe_load_all(EXAMPLE.read_text()),
        manifest(VMS, "db", vm_spec(labels={"workload-type": "db", "operating-system": "debian"}), "shop"),
    )
    label = r"{.metadata.labels.poolhouse\.dev/migration-policy}"
    everything.kubectl("wait", "vmi/db", "--for=create", "--timeout=180s", "-n", "shop")
    everything.wait("vmi/db", label, "databases", "-n", "shop")
    everything.wait("migrationpolicies.kubevirt.io/computing", "{.status.losses}", "1")
    everything.wait("migrationpolicies.kubevirt.io/databases", "{.status.wins}", "1")
    everything.kubectl("wait", "migrationpolicies.kubevirt.io/databases", "--for=condition=Enforced", "--timeout=180s")

    everything.kubectl("create", "serviceaccount", "jane", "-n", "shop")
    token = everything.kubectl("create", "token", "jane", "-n", "shop").strip()
    asked = {"namespace": "shop", "name": "db"}
    assert everything.explain(asked, "nobody").status_code == 401
    assert everything.explain(asked, token).status_code == 403
    # Kubernetes' own role: KubeVirt's kinds and ours are part of it.
    everything.kubectl("create", "clusterrolebinding", "jane", "--clusterrole=view", "--serviceaccount=shop:jane")
    # The API server hears of new rights in a moment.
    wait_until(lambda: everything.explain(asked, token).status_code == 200)
    told = everything.explain(asked, token).json()
    assert told["policy"] == told["stamped"] == "databases"
    assert [each["name"] for each in told["candidates"]] == ["databases", "computing"]
    assert any("could not be read" in note for note in told["notes"])
    assert everything.explain({**asked, "withLabels": {"workload-type": "web"}}, token).json()["policy"] == "computing"


def test_users_cannot_write_the_label_of_the_enforced_policy(everything: Stack) -> None:
    said = everything.kubectl(
        "label", "vmi/db", "-n", "shop", "poolhouse.dev/migration-policy=computing", "--overwrite", code=1
    )
    assert "Poolhouse only" in said
