"""No page and no message installs our packages by name: no index has them, and anybody may register the name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BY_NAME = re.compile(r"\binstall\b[^\n|]{0,60}?[ '\"`]poolhouse(?:[-_]client)?(?:\[[\w,]+\]|['\"`]|$)", re.MULTILINE)


def test_no_package_is_installed_by_name() -> None:
    assert BY_NAME.search('RUN pip install --no-cache-dir "poolhouse[cli]"')
    assert BY_NAME.search("pip install poolhouse-client")
    assert not BY_NAME.search("pip install 'dist/poolhouse-VERSION-py3-none-any.whl[cli]'")
    assert not BY_NAME.search("helm install poolhouse charts/poolhouse")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in tracked.split("\0") if name.endswith((".md", ".py", ".yaml", ".yml", ".sh"))]
    found = {
        str(path.relative_to(ROOT)): match[0]
        for path in files
        if path.is_file() and path != Path(__file__) and (match := BY_NAME.search(path.read_text()))
    }
    assert not found
