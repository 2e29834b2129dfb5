"""Imports of libraries without the parts that Poolhouse does not use, because these parts cost more than all the rest.

- `kubernetes.aio.config` is imported without the typed models of the Kubernetes client: 0.8 s of CPU time and 70 MB.
- `aiohttp` is imported without the certificates of the system, which it reads twice: 0.06 s of CPU time. `Credentials`
  have the certificates of the cluster.
"""

import importlib
import importlib.util
import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _DeferredPackage(ModuleType):
    """A package whose `__init__` runs when somebody asks for an attribute that is not there yet."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def import_kubernetes_config() -> None:
    """Imports `kubernetes.aio.config`, and `Configuration` of `kubernetes.aio.client`. All other names can be
    imported later as usual."""
    if "kubernetes" in sys.modules:
        return
    client = [_defer(name) for name in ("kubernetes", "kubernetes.aio", "kubernetes.aio.client")][-1]
    configuration = importlib.import_module("kubernetes.aio.client.configuration").Configuration
    # The module of kubeconfigs imports both names. It makes an `ApiClient` only in functions that are not used here.
    vars(client).update(Configuration=configuration, ApiClient=None)
    importlib.import_module("kubernetes.aio.config")
    del vars(client)["ApiClient"]


def _defer(name: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _DeferredPackage
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
    return module


class _SystemCertificates(ssl.SSLContext):
    """A context that reads the certificates of the system for its first connection."""

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]
        self.load_default_certs()
        return self.wrap_bio(*arguments, **options)


@contextmanager
def _without_system_certificates() -> Iterator[None]:
    """In the block, a new context reads no certificates of the system. A default context reads them when it is used."""
    create, variables = ssl.create_default_context, ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ.get(name) for name in variables}

    def deferred(*arguments: Any, **options: Any) -> ssl.SSLContext:
        context = create(*arguments, **options)
        context.__class__ = _SystemCertificates
        return context

    os.environ.update(dict.fromkeys(variables, os.devnull))
    ssl.create_default_context = deferred
    try:
        yield
    finally:
        ssl.create_default_context = create
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


with _without_system_certificates():
    import aiohttp as aiohttp
