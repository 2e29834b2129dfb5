"""Prints a CycloneDX bill of materials of an image: its Python packages, the npm packages of which the console has
scripts, and the packages of its distribution.

    /opt/poolhouse/bin/python /opt/poolhouse/sbom.py > sbom.json

It runs in the image, because it asks the package manager there, and so uses only the standard library. The output has
no date and no random number: the same image gives the same text.
"""

import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions, version
from urllib.parse import quote

SELF = "poolhouse"
NPM = (("@novnc/novnc", "1.7.0", "MPL-2.0"), ("@xterm/xterm", "6.0.0", "MIT"))
"""name, version and licence of what requirements/npm makes poolhouse/console/vendored of"""
DPKG = ("dpkg-query", "-W", "-f=${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\n")
RPM = ("rpm", "-qa", "--qf=%{NAME}\t%{EPOCHNUM}\t%{VERSION}-%{RELEASE}\t%{ARCH}\n")

Component = dict[str, object]


def document() -> dict[str, object]:
    found = {str(each["purl"]): each for each in (*_python(), *_npm(), *_debian(), *_rpm())}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": SELF, "version": version(SELF), "bom-ref": SELF}},
        "components": [found[purl] for purl in sorted(found)],
    }


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _python() -> Iterator[Component]:
    for each in distributions():
        name = re.sub(r"[-_.]+", "-", each.name).lower()
        if name != SELF:
            yield _component(name, each.version, f"pkg:pypi/{name}@{quote(each.version)}") | _license(each)


def _npm() -> Iterator[Component]:
    for name, version_, license_ in NPM:
        purl = f"pkg:npm/{quote(name)}@{version_}"
        yield _component(name, version_, purl) | {"licenses": [{"expression": license_}]}


def _license(distribution: Distribution) -> Component:
    expressions = distribution.metadata.get_all("License-Expression") or []
    return {"licenses": [{"expression": each} for each in expressions]} if expressions else {}


def _debian() -> Iterator[Component]:
    for status, name, version_, architecture in _lines(DPKG):
        if status == "installed":
            purl = f"pkg:deb/{_distribution()}/{quote(name)}@{quote(version_, safe='')}"
            yield _component(name, version_, f"{purl}?arch={architecture}&distro={_release()}")


def _rpm() -> Iterator[Component]:
    for name, epoch, version_, architecture in _lines(RPM):
        # The database lists trusted signing keys like packages, but without an architecture.
        if architecture != "(none)":
            purl = f"pkg:rpm/{_distribution()}/{quote(name)}@{quote(version_, safe='')}"
            epoch_suffix = f"&epoch={epoch}" if epoch != "0" else ""
            yield _component(name, version_, f"{purl}?arch={architecture}{epoch_suffix}&distro={_release()}")


def _lines(command: tuple[str, ...]) -> Iterator[list[str]]:
    if shutil.which(command[0]) is not None:
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        yield from (line.split("\t") for line in output.splitlines())


def _distribution() -> str:
    return platform.freedesktop_os_release()["ID"]


def _release() -> str:
    release = platform.freedesktop_os_release()
    return f"{release['ID']}-{release.get('VERSION_ID', '')}".rstrip("-")


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=1)
