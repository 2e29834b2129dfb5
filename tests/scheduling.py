"""Which worker runs which tests, with `-n`: a file stays with one worker, and so do files that share servers. The
tests of files in `APART` are shared between workers. Where one worker would be busy for too long, the files are two
units, each with servers of its own.

Tests that start servers come first, the units that take longest before all others, so that no worker is left with one
of them at the end. The files of a unit come one after the other, because its servers run until its last test, and
servers at rest take processor time too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

T = TypeVar("T")

SHARED = {
    "tests/e2e/test_": "the embedded stack of tests/e2e",
    "tests/cluster/whole/": "the stack of tests/cluster/whole",
    "tests/cluster/guests/": "`guests_stack` of several packages",
    "tests/cluster/simulated/test_pool": "`simulated` of tests/cluster/simulated, for pools",
    "tests/cluster/simulated/": "`simulated` of tests/cluster/simulated",
    "tests/cluster/test_stack.py": "the two stacks of the file",
    "tests/cluster/test_": "`control_plane` of several packages",
    "tests/charts/test_certificates.py": "`control_plane` of several packages",
    "tests/charts/test_plain.py": "`control_plane` of several packages",
    "tests/console/test_browser.py": "`simulated_stack` of several packages",
    "tests/portal/test_sessions.py": "`simulated_stack` of several packages",
    "tests/portal/test_user_console.py": "`simulated_stack` of several packages",
    "tests/docs/test_tasks.py": "`simulated_stack` of several packages",
    "tests/guests_in_browser/": "`guests_stack` of several packages",
    "tests/histories/test_api_server.py": "`control_plane` of several packages",
    "tests/apimachinery/test_yaml_reader.py": "`control_plane` of several packages",
}
"""servers that several files share, by the beginning of the files' paths"""
APART = ("tests/cluster/test_warm_ec2.py",)
"""files whose tests share only what each worker starts anyway: its control plane, and a stand-in that starts at once"""
FIRST = (
    "tests/cluster/test_",
    "tests/cluster/simulated/",
    "tests/e2e/test_",
    "tests/cluster/guests/",
    "tests/cluster/simulated/test_pool",
    "tests/console/test_browser.py",
    "tests/portal/test_sessions.py",
    "tests/portal/test_user_console.py",
    "tests/docs/test_tasks.py",
    "tests/cluster/whole/",
    "tests/charts/",
    "tests/cluster/test_stack.py",
    "tests/guests_in_browser/",
)
"""beginnings of the paths of files that start servers, in the order in which their tests are given out"""


def unit_of(nodeid: str) -> str:
    """What stays with one worker: the servers that the test's file shares with others, the file, or only the test."""
    return nodeid if nodeid.partition("::")[0] in APART else servers_of(nodeid)


def servers_of(nodeid: str) -> str:
    """Names the servers that the test's file shares with others, or the file. They end after the last test of them."""
    return _servers_of(nodeid.partition("::")[0])


@cache
def _servers_of(file: str) -> str:
    return next((servers for path, servers in SHARED.items() if file.startswith(path)), file)


def rank_of(nodeid: str) -> int:
    """Tests with a lower rank are given out earlier. The longest beginning of the path decides."""
    return _rank_of(nodeid.partition("::")[0])


@cache
def _rank_of(file: str) -> int:
    found = max((path for path in FIRST if file.startswith(path)), key=len, default="")
    return FIRST.index(found) if found else len(FIRST)


def in_order(items: Sequence[T], nodeid_of: Callable[[T], str]) -> list[T]:
    """The tests in the order in which they run without workers. Those of a unit come one after the other, because its
    servers end with the last of them."""
    ranks, places = dict[str, int](), dict[str, int]()
    for place, item in enumerate(items):
        unit, rank = unit_of(nodeid_of(item)), rank_of(nodeid_of(item))
        ranks[unit] = min(ranks.get(unit, rank), rank)
        places.setdefault(unit, place)

    def key(item: T) -> tuple[int, int, int]:
        unit = unit_of(nodeid_of(item))
        return ranks[unit], places[unit], rank_of(nodeid_of(item))

    return sorted(items, key=key)
