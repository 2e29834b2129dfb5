"""Which cluster and namespace are meant, as kubectl would have it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import yaml

from poolhouse.cli.cluster import TIMEOUT_SECONDS, find_cluster, pod_namespace
from poolhouse.cli.completion import kubectl_answers
from poolhouse.cli.kubeconfig import Kubeconfig, find_kubeconfig
from poolhouse.cli.output import Failed


def kubeconfig(path: Path, current: str | None, **namespaces: str | None) -> Path:
    contexts = [
        {"name": name, "context": {"cluster": name, **({"namespace": inner} if inner else {})}}
        for name, inner in namespaces.items()
    ]
    path.write_text(yaml.safe_dump({"contexts": contexts, **({"current-context": current} if current else {})}))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return kubeconfig(tmp_path / "home", "dev", dev="team-a", prod=None)


def test_the_current_context_has_the_namespace(home: Path) -> None:
    meant = find_cluster(home, None, None, None)
    assert (meant.namespace, meant.context, meant.scope) == ("team-a", None, "team-a")


def test_another_context_has_another_namespace(home: Path) -> None:
    meant = find_cluster(home, None, "prod", None)
    assert (meant.namespace, meant.context) == ("default", "prod")


def test_a_namespace_that_was_given_holds(home: Path) -> None:
    assert find_cluster(home, None, "dev", "mine").namespace == "mine"


def test_all_namespaces_are_more_than_one(home: Path) -> None:
    assert find_cluster(home, None, None, "mine", everywhere=True).scope is None


def test_no_time_is_for_ever(home: Path) -> None:
    assert find_cluster(home, None, None, None, 0).timeout_seconds > 1e6
    assert find_cluster(home, None, None, None).timeout_seconds == TIMEOUT_SECONDS


def test_an_unknown_context_is_an_error_with_the_known_contexts(home: Path) -> None:
    with pytest.raises(Failed, match=r"no context test .* there are dev, prod"):
        find_cluster(home, None, "test", None)


def test_a_name_that_is_too_long_is_a_missing_kubeconfig() -> None:
    with pytest.raises(Failed, match="there is no kubeconfig"):
        find_cluster(Path("a" * 5000), None, None, None)


def test_a_missing_kubeconfig_is_an_error_with_the_options(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"no kubeconfig .*/none; give --kubeconfig, or --dir"):
        find_cluster(tmp_path / "none", None, None, None)


def test_a_kubeconfig_and_a_directory_together_are_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(click.UsageError):
        find_cluster(home, tmp_path, None, None)


def test_of_several_files_the_first_holds(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "a", "dev", dev="one")
    second = kubeconfig(tmp_path / "b", "other", dev="two", other="three")
    environment = {"KUBECONFIG": f"{first}:{tmp_path / 'none'}:{second}"}
    read, looked = find_kubeconfig(None, environment)
    assert (read.current, dict(read.contexts)) == ("dev", {"dev": "one", "other": "three"})
    assert str(read.joined) == f"{first}:{second}"
    assert len(looked) == 3


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="no YAML"),
        pytest.param("- 1", id="a list"),
        pytest.param("contexts: 3", id="contexts are no list"),
        pytest.param("contexts: [3, {name: a, context: 4}]", id="contexts are no contexts"),
    ],
)
def test_an_invalid_file_has_no_contexts(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert Kubeconfig((path,)).current is None
    assert find_cluster(path, None, None, None).namespace == "default"


def test_contexts_are_completed_with_their_namespaces(home: Path) -> None:
    *offered, _ = kubectl_answers(["why", "--kubeconfig", str(home), "--context", "d"])
    assert offered == ["dev\tteam-a"]


def test_a_pod_with_a_token_has_its_own_namespace(tmp_path: Path) -> None:
    inside = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    assert pod_namespace(inside, tmp_path) is None, "no token is mounted"
    for name, content in (("token", "t"), ("namespace", "ci\n")):
        (tmp_path / name).write_text(content)
    assert pod_namespace(inside, tmp_path) == "ci"
    assert pod_namespace({}, tmp_path) is None, "outside of a pod"
