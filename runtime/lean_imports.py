"""Imports of libraries without the parts that Poolhouse does not use, because these parts cost more than all the rest.

- `kubernetes.aio.config` is imported without the typed models of the Kubernetes client: 0.8 s of CPU time and 70 MB.
"""

import importlib
import importlib.util
import sys
from types import ModuleType


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
