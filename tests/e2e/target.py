"""The cluster under test: how to reach it, and what the disks of guests are made of there."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from poolhouse.stack.paths import StackPaths

Json = dict[str, Any]

OPTIONS = {
    "--context": "context of the kubeconfig; without it, the tests start an embedded stack",
    "--image": "container disk of the guests, such as registry.example/guest:1",
    "--other-image": "another container disk, to which pools are updated",
    "--http": "URL of a disk image that CDI can import",
    "--missing-http": "URL that CDI reaches and that answers 404",
    "--registry": "docker:// URL of a container disk that CDI can import",
    "--clone": "NAMESPACE/NAME of a claim that may be cloned into other namespaces",
    "--data-source": "NAMESPACE/NAME of a DataSource",
    "--storage-class": "storage class of the disks; empty: the default",
    "--disk-size": "size of the disks, at least that of the claim to clone; the default is 64Mi",
    "--release": "chart of Poolhouse, such as charts/poolhouse: upgrade Poolhouse with it, uninstall it, install it "
    "again, with the values that it has. Nobody else should use Poolhouse meanwhile",
    "--upgrade-kubevirt-to": "manifest of the operator of a later KubeVirt, which stays. Name test_release.py with it",
    "--patience": "seconds to wait for each state; the default is 600, and 180 on an embedded stack",
    "--table": "file for the table of results: Markdown, and JSON beside it",
}
SOURCES = ("http", "missing_http", "registry", "clone", "data_source")


@dataclass(frozen=True)
class Target:
    kubeconfig: Path
    context: str | None = None
    embedded: StackPaths | None = None
    """the stack, if the tests have started it"""
    image: str = "registry.invalid/guest:1"
    other_image: str = "registry.invalid/guest:2"
    storage_class: str = ""
    disk_size: str = "64Mi"
    chart: str = ""
    """with which Poolhouse is upgraded and installed again"""
    kubevirt_manifest: str = ""
    """of the release to which KubeVirt is upgraded"""
    patience_seconds: float = 600
    sources: dict[str, str] = field(default_factory=dict)
    """by their names in `SOURCES`"""

    @property
    def kubectl(self) -> list[str]:
        context = ["--context", self.context] if self.context else []
        return ["kubectl", f"--kubeconfig={self.kubeconfig}", *context]

    def source(self, name: str) -> Json:
        """The `spec` of a DataVolume that is made from this source; `blank` is always there."""
        value = self.sources.get(name, "")
        namespace, _, claim = value.partition("/")
        forms: dict[str, Json] = {
            "blank": {"source": {"blank": {}}},
            "http": {"source": {"http": {"url": value}}},
            "missing_http": {"source": {"http": {"url": value}}},
            "registry": {"source": {"registry": {"url": value}}},
            "clone": {"source": {"pvc": {"namespace": namespace, "name": claim}}},
            "data_source": {"sourceRef": {"kind": "DataSource", "namespace": namespace, "name": claim}},
        }
        claim_spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": self.disk_size}}}
        if self.storage_class:
            claim_spec["storageClassName"] = self.storage_class
        return {**forms[name], "pvc": claim_spec}


def read_target(config: pytest.Config) -> Target | None:
    """The cluster that the options name; None for an embedded stack."""
    found = {name: _option(config, name) for name in OPTIONS}
    context = found["--context"]
    if not context:
        return None
    if not found["--image"]:
        raise pytest.UsageError("--image is missing: the container disk of the guests on this cluster")
    kubeconfig = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube/config")
    given = {name: found[f"--{name.replace('_', '-')}"] for name in SOURCES}
    return Target(
        kubeconfig,
        context,
        image=found["--image"],
        other_image=found["--other-image"] or found["--image"],
        storage_class=found["--storage-class"],
        patience_seconds=float(found["--patience"] or Target.patience_seconds),
        disk_size=found["--disk-size"] or Target.disk_size,
        chart=found["--release"],
        kubevirt_manifest=found["--upgrade-kubevirt-to"],
        sources={name: value for name, value in given.items() if value},
    )


def embedded_patience(config: pytest.Config) -> float:
    return float(_option(config, "--patience") or 180)


def _option(config: pytest.Config, name: str) -> str:
    # The options exist only if pytest was called with this directory.
    return str(config.getoption(name.removeprefix("--").replace("-", "_"), default=None) or "")
