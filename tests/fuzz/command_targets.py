"""The target of the command line: files that a user gives to a command."""

import contextlib
import io
import os
from pathlib import Path
from random import Random
from typing import Any

import yaml

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.main import main as poolhouse
from tests.fuzz import documents
from tests.fuzz.mutations import WORDS, mutate, mutate_bytes
from tests.fuzz.oracles import Finding


class Commands:
    """The command line, with files, kubeconfigs and options of any content. No cluster answers."""

    name, share = "commands", 6

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file, self._kubeconfig = folder / "input.yaml", folder / "kubeconfig"

    def generate(self, random: Random) -> Json:
        some = random.sample(documents.manifests(), random.choice((1, 1, 2)))
        if random.random() < 0.6:
            some = [mutate(random, each, some) for each in some]
        text = yaml.safe_dump_all(some, sort_keys=False)
        if random.random() < 0.4:
            text = mutate_bytes(random, text.encode()).decode("latin-1")
        if random.random() < 0.2:
            text = random.choice(YAML_TRAPS)
        arguments = [*random.choice(COMMANDS)]
        if random.random() < 0.3:
            where = random.randrange(len(arguments))
            arguments[where] = random.choice((*WORDS, "-h", "--bogus", "-o")).replace("\x00", "")
        if random.random() < 0.4:
            arguments += ["-o", random.choice(("json", "yaml", "text", "name", "x"))]
        return {"arguments": arguments, "file": text, "kubeconfig": random.choice(("", "", "", text[:2000]))}

    def repair(self, given: Any) -> Json | None:
        arguments = given.get("arguments") if isinstance(given, dict) else None
        texts = [given.get("file"), given.get("kubeconfig"), *(arguments or ())] if isinstance(arguments, list) else [0]
        whole = all(isinstance(each, str) and "\x00" not in each for each in texts)
        return given if whole and arguments and arguments[0] in ALLOWED else None

    def run(self, given: Json) -> None:
        if given["arguments"][0] not in ALLOWED:
            given = {**given, "arguments": ["plan", *given["arguments"][1:]]}
        self._file.write_bytes(given["file"].encode("utf-8", "surrogateescape"))
        self._kubeconfig.write_text(given["kubeconfig"] or NOWHERE)
        arguments = [
            word.replace("FILE", str(self._file)).replace("KUBECONFIG", str(self._kubeconfig))
            for word in given["arguments"]
        ]
        output, errors = io.StringIO(), io.StringIO()
        before = os.getcwd()
        os.chdir(self._folder)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                poolhouse(arguments)
        except SystemExit as ended:
            code = ended.code
        finally:
            os.chdir(before)
        if code not in (0, 1, 2, 3):
            raise Finding("crash", f"exit code {code}")
        if "Traceback" in errors.getvalue():
            raise Finding("crash", errors.getvalue()[-300:])
        if code and not errors.getvalue().strip():
            raise Finding("no path", f"exit code {code} without a message")


NOWHERE = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {token: a}}]
current-context: a
"""
_CLUSTER = ("--kubeconfig", "KUBECONFIG")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("default", "-f", "FILE", "--server", "http://127.0.0.1:9"),
    ("default", "-f", "FILE", "--kubevirt", "FILE", "--server", "http://127.0.0.1:9"),
    ("plan", "-f", "FILE", *_CLUSTER),
    ("plan", "-f", "FILE", "-n", "shop", *_CLUSTER),
    ("policy", "explain", "vm/a", "--with-policy", "FILE", *_CLUSTER),
    ("policy", "impact", "-f", "FILE", *_CLUSTER),
    ("warmpool", "import", "FILE"),
    ("warmpool", "import", "FILE", "--to", "vm", "-n", "shop"),
    ("hardware", "diff", "-f", "FILE", "--server", "http://127.0.0.1:9", "--against", "http://127.0.0.1:9"),
    ("hook", "--plugin", "--image", "a/b:c"),
    ("why", "vm/a", *_CLUSTER),
    ("tree", "vmpool/a", *_CLUSTER),
    ("overview", *_CLUSTER),
    ("doctor", *_CLUSTER),
    ("disks", "a", *_CLUSTER),
    ("claim", "a", "--ttl", "10m", "--no-wait", *_CLUSTER),
    ("release", "a", "--no-wait", *_CLUSTER),
    ("rollout", "undo", "a", "--to-revision", "3", *_CLUSTER),
    ("detach", "a", *_CLUSTER),
    ("crds",),
    ("completion", "bash"),
)
ALLOWED = {command[0] for command in COMMANDS}
YAML_TRAPS = (
    "a: &a [*a]\nkind: VirtualMachine",
    "a: &a {kind: VirtualMachinePool, b: *a}",
    "&a {apiVersion: kubevirt.io/v1, kind: VirtualMachinePool, metadata: {name: a}, spec: *a}",
    "a: &a [x,x,x,x,x,x,x,x]\n"
    + "".join(f"{n}: &{n} [{', '.join([f'*{m}'] * 8)}]\n" for m, n in zip("abcdefgh", "bcdefghi", strict=True)),
    "2001-99-99",
    "kind: 2001-01-01\nspec: {a: 2001-01-01T00:00:00Z}",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: 2001-01-01}\nspec: {a: !!binary aGk=}",
    "1: 2\n? [a]\n: b",
    "a: " + "9" * 5000,
    "[" * 3000,
    "{a: " * 1500,
    "!!python/object:os.system x",
    "kind: [List]\nitems: 3",
    "kind: List\nitems: [1, null, {kind: List, items: [2]}]",
    "kind: List\nitems: []",
    "\ufeffkind: x",
    "a\x00b",
    "- .inf\n- .nan",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a}\nspec: {template: {a: .nan, b: .inf}}",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachinePool\nmetadata: a\nspec: {1: 2, true: 3}",
    "",
    "---\n---\n",
    '"\\ud800"',
    "<<: *x",
    "? {a: b}\n: c",
    "a: 0x" + "f" * 400,
    "a: 1:99:99:99:99",
    "{AMI: ami-1, Pools: [{}]}",
    "Pools: [1, {NodePools: 3}]",
)
