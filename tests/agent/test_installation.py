"""The unit of systemd and the example of cloud-init fit the agent."""

from __future__ import annotations

import configparser
import tomllib

import yaml
from poolhouse_agent.__main__ import new_parser

from tests.agent import AGENT

UNIT = (AGENT / "poolhouse-agent.service").read_text()
PROJECT = tomllib.loads((AGENT / "pyproject.toml").read_text())["project"]


def test_the_unit_starts_the_command_with_options_that_it_has() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(UNIT)
    command, *options = unit["Service"]["ExecStart"].split()
    assert command.rsplit("/", 1)[-1] in PROJECT["scripts"]
    parsed = new_parser().parse_args(options)
    assert str(parsed.state_dir) == f"/var/lib/{unit['Service']['StateDirectory']}"
    assert str(parsed.runtime_dir) == f"/run/{unit['Service']['RuntimeDirectory']}"
    assert unit["Service"]["KillMode"] == "process", "else a restart of the agent stops the containers"


def test_cloud_init_writes_the_same_unit_and_installs_the_same_version() -> None:
    text = (AGENT / "cloud-init.yaml").read_text()
    assert text.startswith("#cloud-config\n")
    found = yaml.safe_load(text)
    assert [each["content"] for each in found["write_files"]] == [UNIT]
    assert any(f"poolhouse_agent-{PROJECT['version']}-" in word for command in found["runcmd"] for word in command)
