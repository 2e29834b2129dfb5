"""Secrets of warm VMs, and the filter for public keys."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.ssh_keys import is_of, public_keys, secret, secret_name, wants_key
from controllers.warmpool.vm_manifest import build_vm
from poolhouse.api.kinds import meta
from tests.controllers.warmpool.builders import a_pool, a_vm

Json = dict[str, Any]

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0lTQ0QmXH4i0vZ7o0i0sQWb1bH0hQ0u5Jm9qfQm3vT me@example.com"
ECDSA = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY="
SECURITY_KEY = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIA=="
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----\n"


def credential(name: str) -> Json:
    guest_agent = {"users": ["alpine"]}
    source = {"secret": {"secretName": name}}
    return {"sshPublicKey": {"source": source, "propagationMethod": {"qemuGuestAgent": guest_agent}}}


def template(*names: str) -> Json:
    return {"spec": {"template": {"spec": {"domain": {}, "accessCredentials": [*map(credential, names)]}}}}


@pytest.mark.parametrize(
    ("text", "public"),
    [
        pytest.param(ED25519, True, id="a key with its comment"),
        pytest.param(f"{ED25519}\n# mine\n\n{ECDSA}\n{SECURITY_KEY}\n", True, id="several, with remarks"),
        pytest.param(PRIVATE, False, id="a private key"),
        pytest.param(f"{ED25519}\n{PRIVATE}", False, id="a private key among public ones"),
        pytest.param("hunter2", False, id="a password"),
        pytest.param('command="sh" ssh-ed25519 AAAA', False, id="what does more than let somebody in"),
        pytest.param("# nothing\n", False, id="no key"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_only_public_keys_are_copied(text: str, public: bool) -> None:
    data = {"key": base64.b64encode(text.encode()).decode()}
    assert public_keys(data) == ((data, []) if public else ({}, ["key"]))


def test_binary_data_is_not_a_public_key() -> None:
    assert public_keys({"a": "/////w==", "b": "no base64"}) == ({}, ["a", "b"])


def test_each_vm_has_its_own_secret() -> None:
    pool = a_pool(template=template("admins", meta.CLAIM_KEY))
    order = CreateRequest("ns", "web-x7k2m9", "web", pool.uid, pool.owner, pool.template, "hash")
    assert wants_key(order.template)
    credentials = build_vm(order)["spec"]["template"]["spec"]["accessCredentials"]
    assert credentials == [credential("admins"), credential(f"{meta.CLAIM_KEY}-x7k2m9")]
    assert pool.template == template("admins", meta.CLAIM_KEY), "the pool's stays as it is"
    assert not wants_key(template("admins"))
    assert not wants_key({})


def test_the_vm_owns_its_secret() -> None:
    m = a_vm("x7k2m9")
    made = secret(m)
    assert made["metadata"]["name"] == secret_name(m.name)
    assert is_of(made, m)
    assert not is_of(made, a_vm("another"))
    assert len(f"{secret_name('web-' + 'x' * 8)}-access-cred") <= 63, "KubeVirt calls a volume so"
