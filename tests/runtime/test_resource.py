"""URL paths of resources, and the resource of a path."""

from __future__ import annotations

import pytest

from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import NODES, Resource, resource_of_path
from tests.runtime.faulty_server import THINGS


@pytest.mark.parametrize(
    ("resource", "where", "path"),
    [
        (THINGS, ("n", "a"), "/apis/test.dev/v1/namespaces/n/things/a"),
        (THINGS, (None, None), "/apis/test.dev/v1/things"),
        (THINGS, ("n", "a/../b"), "/apis/test.dev/v1/namespaces/n/things/a%2F..%2Fb"),
        (NODES, (None, "x"), "/api/v1/nodes/x"),
        (NODES, ("ignored", "system:x"), "/api/v1/nodes/system:x"),
    ],
)
def test_paths(resource: Resource, where: tuple[str | None, str | None], path: str) -> None:
    assert resource.path(*where) == path


@pytest.mark.parametrize(
    ("path", "plural"),
    [
        ("/version", "version"),
        ("/api/v1/nodes/x", "nodes"),
        ("/api/v1/namespaces", "namespaces"),
        ("/api/v1/namespaces/n", "namespaces"),
        ("/api/v1/namespaces/n/status", "namespaces"),
        ("/api/v1/namespaces/n/configmaps/x", "configmaps"),
        ("/api/v1/namespaces/n/serviceaccounts/x/token", "serviceaccounts"),
        ("/apis/test.dev/v1/namespaces/n/things/x/scale", "things"),
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", "subjectaccessreviews"),
        ("/apis/test.dev/v1", "apis"),
        ("/apis", "apis"),
        ("/", ""),
    ],
)
def test_requests_are_counted_by_resource_and_never_by_name(path: str, plural: str) -> None:
    assert resource_of_path(path) == plural


@pytest.mark.parametrize("where", [(None, "a"), ("", "a"), ("n", "")])
def test_a_name_that_would_change_the_path_is_refused(where: tuple[str | None, str]) -> None:
    """DELETE with an empty name would delete a whole collection."""
    with pytest.raises(ValueError, match="name"):
        THINGS.path(*where)


@pytest.mark.parametrize("where", [("n", "."), ("n", ".."), ("..", "a")])
def test_no_object_has_the_name_of_another_path(where: tuple[str, str]) -> None:
    """A Pod may name the ConfigMap `..`, and an HTTP client would read the namespace instead."""
    with pytest.raises(NotFound, match="no object can have this name"):
        THINGS.path(*where)
