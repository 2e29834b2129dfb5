"""Imports the reader of kubeconfigs of the Kubernetes client without the client's typed models.

The packages of the client import 700 models with their names: 0.8 s of CPU time and 70 MB, more than all else that a
command or a service imports. The reader needs only `Configuration`. The packages have stand-ins while the reader is
imported. Programs can import the client itself before or afterwards.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

CLIENT = "kubernetes.aio.client"
PACKAGES = ("kubernetes", "kubernetes.aio", CLIENT)


@cache
def import_config() -> tuple[ModuleType, type[Any]]:
    """The module `kubernetes.aio.config` and the class `Configuration`. Its functions that return an `ApiClient` cannot
    be used."""
    if "kubernetes" in sys.modules:
        configuration: type[Any] = importlib.import_module(CLIENT).Configuration
        return importlib.import_module("kubernetes.aio.config"), configuration
    with _stand_ins() as client:
        configuration = importlib.import_module(f"{CLIENT}.configuration").Configuration
        vars(client).update(Configuration=configuration, ApiClient=None)
        return importlib.import_module("kubernetes.aio.config"), configuration


@contextmanager
def _stand_ins() -> Iterator[ModuleType]:
    """In the block, the packages are modules without content, in which their submodules are found. Yields the last."""
    try:
        for name in PACKAGES:
            # Finds a package in its parent, which is a stand-in already, and executes neither.
            spec = importlib.util.find_spec(name)
            if spec is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            sys.modules[name] = importlib.util.module_from_spec(spec)
        yield sys.modules[CLIENT]
    finally:
        for name in PACKAGES:
            sys.modules.pop(name, None)
