"""Who calls the kubelet endpoint of the virtual node, and whether the caller may: as Kubernetes' kubelet decides.

The API server shows its client certificate. Other callers may have a token. Both need a right on the Node.
"""

from collections.abc import Mapping
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.access_review import user_may
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import Resource

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
NODE_PROXY = Resource("", "v1", "nodes/proxy", "Node", namespaced=False)
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def user_of(certificate: Mapping[str, Any]) -> Json | None:
    """The user of a client certificate that the TLS handshake has verified: its common name, in the groups of its
    organizations. None without a certificate."""
    parts = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in parts if key == "commonName"), "")
    groups = [value for key, value in parts if key == "organizationName"]
    return {"username": name, "groups": [*groups, "system:authenticated"]} if name else None


async def authenticate(api: Api, certificate: Mapping[str, Any], authorization: str) -> Json | None:
    """The user of the certificate, or else of the bearer token. None for an unknown caller."""
    if (user := user_of(certificate)) is not None:
        return user
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token:
        return None
    question = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = (await api.request("POST", TOKEN_REVIEWS, body=question)).get("status") or {}
    found: Json | None = status.get("user")
    return found if status.get("authenticated") is True and found else None


async def is_authorized(api: Api, user: Json, method: str, node: str) -> bool:
    """Whether the user may use the endpoint of the node: the right on `nodes/proxy`, for the verb of the method."""
    verb = VERBS.get(method)
    return verb is not None and await user_may(api, user, verb, NODE_PROXY, "", node)
