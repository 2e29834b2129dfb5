"""All commands: options, completion, help, exit codes and failures."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from poolhouse.cli.cluster import Cluster, tell_if_late, with_namespace
from poolhouse.cli.main import COMMANDS, CommandEntry, main, poolhouse, program_name
from poolhouse.cli.output import Failed
from poolhouse.cli.parameters import NameType
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden, NotFound, NotServed, Unauthorized
from tests.waiting import PATIENCE_SECONDS, wait_until

CLUSTER_OPTIONS = {"--kubeconfig", "--context", "--namespace", "-n", "--request-timeout"}
WITHOUT_A_NAME_OF_THE_CLUSTER = {("claim", "name"), ("hook", "namespace")}


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(poolhouse)
    for name in COMMANDS:
        found = poolhouse.get_command(context, name)
        yield name, found
        if isinstance(found, click.Group):
            yield from ((f"{name} {each}", inner) for each, inner in found.commands.items())


LEAVES = [(name, each) for name, each in commands() if not isinstance(each, click.Group)]
ASKING = [
    pytest.param(each, id=name)
    for name, each in LEAVES
    if any("--kubeconfig" in option.opts for option in each.params) and name not in ("hooks", "ssh", "claim console")
]


def options(command: click.Command) -> set[str]:
    return {each for option in command.params for each in option.opts}


@pytest.mark.parametrize("command", ASKING)
def test_commands_with_a_cluster_have_the_options_of_kubectl(command: click.Command) -> None:
    assert options(command) >= CLUSTER_OPTIONS
    [output] = [each for each in command.params if each.name == "output"]
    assert {"json", "yaml"} <= set(output.type.choices)


@pytest.mark.parametrize("command", ASKING)
def test_every_name_of_something_in_the_cluster_is_completed(command: click.Command) -> None:
    named = [each for each in command.params if each.name in ("pool", "vm", "name", "gone", "namespace")]
    for each in named:
        if (command.name, each.name) not in WITHOUT_A_NAME_OF_THE_CLUSTER:
            assert each._custom_shell_complete or isinstance(each.type, NameType), f"{command.name} {each.name}"


@pytest.mark.parametrize("command", [pytest.param(each, id=name) for name, each in LEAVES])
def test_every_command_and_option_has_help(command: click.Command) -> None:
    assert command.help
    silent = [each.opts for each in command.params if isinstance(each, click.Option) and not each.help]
    assert not silent


def test_a_command_without_its_packages_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "crds", CommandEntry("nowhere.to.be.found:it", ""))
    result = CliRunner().invoke(poolhouse, ["crds"])
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: this installation does not include the command: nowhere is not installed\n",
    )


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/usr/bin/poolhouse", "poolhouse"),
        ("/root/.krew/bin/kubectl-poolhouse", "kubectl poolhouse"),
        ("poolhouse/cli/main.py", "poolhouse"),
    ],
)
def test_usage_has_the_name_of_the_program(program: str, name: str) -> None:
    assert program_name(program) == name


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(["crds"], 0, id="done"),
        pytest.param(["why", "x", "--kubeconfig", "/none"], 1, id="refused"),
        pytest.param(["why"], 2, id="an argument is missing"),
        pytest.param(["nonsense"], 2, id="there is no such command"),
        pytest.param(["why", "x", "--request-timeout", "soon"], 2, id="no time"),
    ],
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == code


@pytest.mark.parametrize(
    "format_", [["-o", "json"], ["-ojson"], ["--output=json"], ["-o", "yaml"], ["-oyaml"], ["--output", "yaml"]]
)
def test_errors_are_printed_in_the_structured_format(format_: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["why", "x", "--kubeconfig", "/none", *format_])
    out = capsys.readouterr().out
    read = json.loads(out) if "json" in format_[-1] else yaml.safe_load(out)
    assert read["error"].startswith("there is no kubeconfig /none")


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of a cluster that does not answer."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: nobody else answers there
        path = tmp_path / "kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "current-context": "a",
                    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                    "clusters": [{"name": "a", "cluster": {"server": f"https://127.0.0.1:{held.getsockname()[1]}"}}],
                    "users": [{"name": "a", "user": {}}],
                }
            )
        )
        yield path


def test_an_unreachable_cluster_is_one_line_with_a_remedy(away: Path) -> None:
    result = CliRunner().invoke(poolhouse, ["why", "x", "--kubeconfig", str(away), "--request-timeout", "60s"])
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1
    assert "cannot connect to 127.0.0.1:" in result.stderr
    assert ": Connection refused; " in result.stderr
    assert "--context" in result.stderr


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        pytest.param(
            ExceptionGroup("", [ExceptionGroup("", [Forbidden("you may not")])]), "^you may not$", id="of many"
        ),
        pytest.param(
            Unauthorized("Unauthorized", status=401), "does not accept the credentials of .*kubeconfig", id="old"
        ),
        pytest.param(
            NotServed("the API server does not serve x.poolhouse.dev", status=404),
            "does not serve x.poolhouse.dev in the cluster of .*kubeconfig; `poolhouse doctor` says what is missing",
            id="another cluster",
        ),
    ],
)
def test_an_api_error_is_one_message(away: Path, refused: Exception, said: str) -> None:
    async def work(api: Api) -> None:
        raise refused

    with pytest.raises(Failed, match=said):
        Cluster(away, "default").run(work)


REFUSED = '{} is forbidden: User "ann" cannot list resource "{}" in API group "{}" {}'


@pytest.mark.parametrize(
    ("everywhere", "refused", "said"),
    [
        pytest.param(
            True,
            REFUSED.format("x", "virtualmachineclaims", "poolhouse.dev", "at the cluster scope"),
            "you may not list virtualmachineclaims.poolhouse.dev in all namespaces; choose one with -n",
            id="-A without the right to list all namespaces",
        ),
        pytest.param(
            True,
            REFUSED.format("x", "persistentvolumeclaims", "", "at the cluster scope"),
            "you may not list persistentvolumeclaims in all namespaces; choose one with -n",
            id="a kind of the core group",
        ),
        pytest.param(
            False,
            message := REFUSED.format("x", "virtualmachineclaims", "poolhouse.dev", 'in the namespace "shop"'),
            message,
            id="the message of the API server is enough for one namespace",
        ),
        pytest.param(True, "plugins are closed", "plugins are closed", id="any other reason stays as it is"),
    ],
)
def test_a_list_of_all_namespaces_that_is_refused_names_what_to_do(
    away: Path, everywhere: bool, refused: str, said: str
) -> None:
    async def work(api: Api) -> None:
        raise Forbidden(refused, status=403)

    with pytest.raises(Failed) as error:
        Cluster(away, "shop", everywhere=everywhere).run(work)
    assert error.value.message == said


async def test_a_program_for_credentials_that_takes_long_is_named() -> None:
    late, in_time = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await tell_if_late(late.wait(), 0, late.set)
        await tell_if_late(asyncio.sleep(0), PATIENCE_SECONDS, in_time.set)
    assert (late.is_set(), in_time.is_set()) == (True, False)


def test_an_empty_kubeconfig_is_reported_as_invalid(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("")
    result = CliRunner().invoke(poolhouse, ["disks", "--kubeconfig", str(path)])
    assert result.exit_code == 1
    assert f"cannot read the address of the API server from {path}: the file is not a valid kubeconfig" in result.stderr


def test_a_stopped_embedded_stack_is_reported(away: Path) -> None:
    away.with_name("status.json").write_text("{}")
    result = CliRunner().invoke(poolhouse, ["disks", "--dir", str(away.parent)])
    assert result.exit_code == 3
    assert (
        result.stderr == f"Error: no stack is running in {away.parent}; `poolhouse up --dir {away.parent}` starts it\n"
    )


def started(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "poolhouse.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        preexec_fn=_hear_interrupts,  # noqa: PLW1509 (nothing else in it can take a lock)
    )


def _hear_interrupts() -> None:
    """Who runs in the background of a shell was told to ignore them, and hands that on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        pytest.param("statsu", "status", id="a misspelt command"),
        pytest.param("version", "--version", id="a command of kubectl"),
    ],
)
def test_a_word_that_is_no_command_gets_a_suggestion(word: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([word])
    assert f"No such command '{word}'. Did you mean '{meant}'?" in capsys.readouterr().err


def test_an_option_before_the_command_is_refused_with_the_right_order(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["-n", "shop", "why", "web-1"])
    error = capsys.readouterr().err
    assert "No such option '-n'. Give the command first: " in error
    assert " why -n ..." in error


@pytest.mark.parametrize("group", ["claim", "import", "lifecycle", "policy", "rollout", "warmpool"])
def test_the_help_of_a_group_has_the_whole_sentence_of_each_command(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([group, "--help"])
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        pytest.param(["claim", "release", "mine"], " release'", id="a command of another group"),
        pytest.param(["claim", "lst"], " claim list'", id="a misspelt command of a group with a default"),
        pytest.param(["claim", "-n", "w", "lst"], " claim list'", id="after an option"),
        pytest.param(["claim", "--pool", "lst", "--timeout", "1s", "lst"], " claim list'", id="after several options"),
    ],
)
def test_a_word_that_is_no_command_of_claim_gets_a_suggestion(
    line: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(line)
    assert f"{meant}? If it is a name, write '" in capsys.readouterr().err


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize("option", [[], ["--detach"]])
def test_an_unusable_directory_of_a_stack_is_named(tmp_path: Path, option: list[str]) -> None:
    (tmp_path / "file").touch()
    said = CliRunner().invoke(
        poolhouse, ["up", "--engine", "simulated", "--dir", str(tmp_path / "file" / "d"), *option]
    )
    assert said.exit_code == 1
    assert "cannot hold a stack: Not a directory" in said.output


def test_an_invalid_server_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = Path(__file__).parents[2] / "examples" / "vm.yaml"
    with pytest.raises(SystemExit) as ended:
        main(["default", "-f", str(manifest), "--server", "nonsense"])
    assert ended.value.code == 3
    assert "nonsense does not answer: unknown url type" in capsys.readouterr().err


def test_a_closed_pipe_is_not_an_error() -> None:
    with started("crds") as process:
        process.stdout.close()
        assert process.stderr.read() == b""


def test_an_interrupt_prints_no_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with started("default", "-f", str(pipe)) as process, pipe.open("wb"):
        # A signal between Python's last look for signals and the system call would not end the call.
        wait_until(lambda: "pipe_read" in Path(f"/proc/{process.pid}/wchan").read_text())
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=180)[1]
    assert process.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in said


LEAN = """
import asyncio, sys
from poolhouse.cli.main import poolhouse
import poolhouse.cli.overview, poolhouse.cli.tree, poolhouse.cli.claims, poolhouse.cli.release, poolhouse.cli.completion
from poolhouse.runtime.api import Api
from poolhouse.cli.resources import CLAIMS
from poolhouse.runtime.kubernetes_config import import_config
import_config()
heavy = ("pydantic", "prometheus_client", "rich", "kubernetes.aio.client.models", "kubernetes.client", "cryptography")
print([name for name in heavy if name in sys.modules])
"""


def test_commands_that_list_import_nothing_that_costs_more_than_their_work() -> None:
    found = subprocess.run([sys.executable, "-c", LEAN], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("call", "kind", "name", "said"),
    [
        (
            "GET /apis/pool.kubevirt.io/v1beta1/namespaces/shop/virtualmachinepools/web",
            "x",
            "web",
            " in namespace shop",
        ),
        ("GET /api/v1/namespaces/shop", "namespaces", "shop", ""),
        ("POST /apis/kubevirt.io/v1/namespaces/shop/virtualmachines", "namespaces", "shop", ""),
        ("GET /apis/poolhouse.dev/v1alpha1/migrationpolicies/web", "x", "web", ""),
    ],
)
def test_a_missing_object_is_reported_with_its_namespace(call: str, kind: str, name: str, said: str) -> None:
    message = f'{kind} "{name}" not found'
    error = NotFound(message, status=404, details={"name": name, "kind": kind}, call=call)
    assert with_namespace(error) == message + said


def test_a_full_disk_below_the_output_is_no_bug() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "poolhouse.cli.main", "crds"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Error: the output cannot be written: No space left on device\n")
