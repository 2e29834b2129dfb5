"""Starts and stops a cluster of real nodes.

    sudo python -m tests.node.main up --state DIR [--nodes N]      returns when all nodes are ready; prints KUBECONFIG
    sudo python -m tests.node.main build --state DIR                builds and loads the images of Poolhouse
    sudo python -m tests.node.main load --state DIR ARCHIVE...      imports images of other origin into every node
    sudo python -m tests.node.main exec --state DIR NODE CMD...     runs a command inside of a node, or in the `lan`
    sudo python -m tests.node.main down --state DIR                 ends it; `up` continues with its objects and images
    sudo python -m tests.node.main delete --state DIR               ends it and removes DIR

Logs of all programs are in DIR/logs. DIR/nodes/NAME has what the node sees as /run, /var/lib and /var/log. Several
clusters can run at once.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from poolhouse.stack.components import StackError
from tests.node import cluster, images
from tests.node.layout import load_layout


def main() -> int:
    options = _options()
    try:
        match options.action:
            case "up":
                layout = cluster.up(options.state, options.nodes)
                print(f"export KUBECONFIG={layout.paths.kubeconfig}")
            case "run":
                cluster.run(options.state, options.nodes)
            case "build":
                for archive in images.build(print):
                    images.load(load_layout(options.state), archive)
            case "load":
                for archive in options.words:
                    images.load(load_layout(options.state), Path(archive).resolve())
            case "exec":
                name, *command = options.words
                inside = load_layout(options.state).inside(name)
                return subprocess.run([*inside, *command], check=False).returncode
            case "down":
                cluster.down(options.state)
            case "delete":
                cluster.delete(options.state)
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("up", "run", "build", "load", "exec", "down", "delete"):
        action = actions.add_parser(name)
        action.add_argument("--state", type=Path, required=True, help="the directory of the cluster")
        if name in ("up", "run"):
            action.add_argument("--nodes", type=int, default=2)
        if name in ("load", "exec"):
            action.add_argument("words", nargs=argparse.REMAINDER)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
