"""Reads kubeconfigs by kubectl's rules: files are merged, and the first file with a value wins."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Kubeconfig:
    paths: tuple[Path, ...]
    """the files that exist"""

    @property
    def joined(self) -> Path:
        """One path for the Kubernetes client: the files joined by the separator of $KUBECONFIG."""
        return Path(os.pathsep.join(map(str, self.paths)))

    @cached_property
    def contexts(self) -> Mapping[str, str]:
        """Namespaces by context."""
        namespaces: dict[str, str] = {}
        for each in self._entries("contexts"):
            inner = each.get("context")
            namespace = inner.get("namespace") if isinstance(inner, dict) else None
            namespaces.setdefault(str(each.get("name")), str(namespace or "default"))
        return namespaces

    @cached_property
    def current(self) -> str | None:
        return next((str(each["current-context"]) for each in self._documents if each.get("current-context")), None)

    def _entries(self, field: str) -> list[dict[str, Any]]:
        lists = [each.get(field) for each in self._documents]
        return [entry for entries in lists if isinstance(entries, list) for entry in entries if isinstance(entry, dict)]

    @cached_property
    def _documents(self) -> list[dict[str, Any]]:
        """Invalid files are left out here; the connection reports them."""
        return [each for path in self.paths if isinstance(each := _load(path), dict)]


def find_kubeconfig(given: Path | None, environment: Mapping[str, str]) -> tuple[Kubeconfig, Sequence[Path]]:
    """The kubeconfig to use, and the paths that were searched."""
    named = [Path(each).expanduser() for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    searched = [given] if given else named or [Path.home() / ".kube" / "config"]
    return Kubeconfig(tuple(each for each in searched if _exists(each))), searched


def _exists(path: Path) -> bool:
    """True also without permission to know it: reading the file reports the error."""
    try:
        return path.is_file()
    except PermissionError:
        return True


def _load(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
