"""Imports leave out what costs more than all the rest, and everything is still there for who asks for it."""

import subprocess
import sys


def run(code: str) -> str:
    """Runs the code in a new process, because this one has imported everything."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_kubeconfig_reader_is_imported_without_the_models() -> None:
    found = run(
        "import sys; from runtime.lean_imports import import_kubernetes_config; import_kubernetes_config()\n"
        "from kubernetes.aio import client, config\n"
        "assert client.Configuration() and config.load_kube_config and config.load_incluster_config\n"
        "print(sum(name.startswith('kubernetes.') for name in sys.modules), end=' ')\n"
        "print(client.V1Pod.__name__, client.ApiClient.__name__)\n"
        "import kubernetes.client; print(kubernetes.client.V1Pod.__name__)"
    )
    modules, *names = found.split()
    assert int(modules) < 30
    assert names == ["V1Pod", "ApiClient", "V1Pod"]


def test_a_client_that_was_imported_before_is_used() -> None:
    assert (
        run(
            "import kubernetes.aio.client as before\n"
            "from runtime.lean_imports import import_kubernetes_config; import_kubernetes_config()\n"
            "from kubernetes.aio import client; print(client is before)"
        )
        == "True"
    )
