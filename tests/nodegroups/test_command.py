"""The options of the command, and which addresses need certificates."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from poolhouse.cli.main import poolhouse
from poolhouse.runtime.credentials import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("localhost", True), ("[::1]", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--listen", "0.0.0.0:8086"], "is not loopback, where anybody could delete nodes"),
        (["--listen", "8086"], "'8086' is not HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "'127.0.0.1:99999' is not HOST:PORT"),
        (["--tls-cert", __file__], "give --tls-cert, --tls-key and --client-ca together"),
    ],
)
def test_usage(arguments: list[str], expected: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    given = ["cluster-autoscaler-provider", "--kubeconfig", str(kubeconfig), *arguments]
    result = CliRunner().invoke(poolhouse, given)
    assert result.exit_code == 2
    assert expected in result.output
