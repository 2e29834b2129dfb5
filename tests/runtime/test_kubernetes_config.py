"""The reader of kubeconfigs is imported without the models, and a program can still import them."""

import subprocess
import sys


def run(code: str) -> str:
    """Runs the code in a new process, because this one has imported everything. Returns the last line."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[-1]


IMPORTED = """
import sys
from poolhouse.runtime.kubernetes_config import import_config
config, configuration = import_config()
assert configuration() and config.load_kube_config and config.load_incluster_config
print(sum(name.startswith("kubernetes.") for name in sys.modules))
"""
THE_REST = """
import kubernetes.client
from kubernetes.aio import client, config as same
assert client.V1Pod and client.ApiClient and client.Configuration is configuration and same is config
assert kubernetes.client.V1Pod
print("all")
"""
BEFORE = """
import kubernetes.aio.client as before
from poolhouse.runtime.kubernetes_config import import_config
print(import_config()[1] is before.Configuration)
"""


def test_the_kubeconfig_reader_is_imported_without_the_models() -> None:
    assert int(run(IMPORTED)) < 30


def test_the_rest_of_the_client_can_be_imported_later() -> None:
    assert run(IMPORTED + THE_REST) == "all"


def test_a_client_that_was_imported_before_is_used() -> None:
    assert run(BEFORE) == "True"
