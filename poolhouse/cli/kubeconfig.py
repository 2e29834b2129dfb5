"""Reads kubeconfigs by kubectl's rules: files are merged, and the first file with a value wins."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from poolhouse.api.apimachinery.yaml_reader import InvalidYAML, load
from poolhouse.service.user_cache import home_dir


@dataclass(frozen=True)
class Kubeconfig:
    paths: tuple[Path, ...]
    """existing kubeconfig files"""

    @property
    def joined(self) -> Path:
        """The files as one path in the form of $KUBECONFIG, for the Kubernetes client."""
        return Path(os.pathsep.join(map(str, self.paths)))

    @cached_property
    def contexts(self) -> Mapping[str, str]:
        """The namespaces of the contexts, by context name."""
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
        """Returns the documents of the valid files. The client reports invalid files when it connects."""
        return [each for path in self.paths if isinstance(each := _load(path), dict)]


def find_kubeconfig(given: Path | None, environment: Mapping[str, str]) -> tuple[Kubeconfig, Sequence[Path]]:
    """Returns the kubeconfig to use, and the paths that were searched."""
    named = [Path(each).expanduser() for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    searched = [given] if given else named or [home_dir() / ".kube" / "config"]
    return Kubeconfig(tuple(each for each in searched if _exists(each))), searched


def _exists(path: Path) -> bool:
    """Whether the file exists. Returns True without permission to check, so that reading reports the error."""
    try:
        return path.is_file()
    except PermissionError:
        return True
    except OSError:  # the name is too long
        return False


def _load(path: Path) -> Any:
    try:
        return load(path.read_bytes())
    except (OSError, InvalidYAML):
        return None
