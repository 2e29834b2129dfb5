"""Runs commands of `poolhouse` in this process, because a new process takes a second of a core."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import yaml
from click.testing import CliRunner, Result

from poolhouse.cli.main import poolhouse

Json = dict[str, Any]


class Namespaced(Protocol):
    @property
    def namespace(self) -> str: ...


P = TypeVar("P", bound=Namespaced)


@dataclass(frozen=True)
class Shell(Generic[P]):
    """Commands for the namespace of a test."""

    place: P
    kubeconfig: Path

    async def run(self, *arguments: str, document: Json | None = None, raises: bool = False) -> Result:
        """`document` is the standard input. With `raises`, the result has the error that `main` would print."""
        words = [*arguments, "--kubeconfig", str(self.kubeconfig), "--namespace", self.place.namespace]
        text = yaml.safe_dump(document) if document else None
        invoke = CliRunner().invoke
        result = await asyncio.to_thread(invoke, poolhouse, words, input=text, standalone_mode=not raises)
        assert raises or result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    async def json(self, *arguments: str, document: Json | None = None) -> Any:
        result = await self.run(*arguments, "-o", "json", document=document)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)
