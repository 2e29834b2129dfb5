"""What kubeconfigs say, by kubectl's own rules: several files count as one, and of two values the first holds."""

from __future__ import annotations

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
    """those that are there"""

    @property
    def joined(self) -> Path:
        """As the Kubernetes client wants several files: one path, with the separator of $KUBECONFIG in it."""
        return Path(os.pathsep.join(map(str, self.paths)))

    @cached_property
    def contexts(self) -> Mapping[str, str]:
        """Each context's namespace."""
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
        """What cannot be read says nothing here; whoever connects is told of it."""
        return [each for path in self.paths if isinstance(each := _loaded(path), dict)]


def find_kubeconfig(given: Path | None, environment: Mapping[str, str]) -> tuple[Kubeconfig, Sequence[Path]]:
    """The kubeconfig that is meant, and where it was looked for."""
    named = [Path(each).expanduser() for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    looked = [given] if given else named or [Path.home() / ".kube" / "config"]
    return Kubeconfig(tuple(each for each in looked if _is_there(each))), looked


def _is_there(path: Path) -> bool:
    """Also where that may not be known: whoever reads it says so."""
    try:
        return path.is_file()
    except PermissionError:
        return True


def _loaded(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
