"""Prints the krew manifest of the plugin for the archives of a release:

    python -m poolhouse.cli.krew dist --version v0.1.0 --homepage URL --archives URL > poolhouse.yaml

`make plugin` builds the archives.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from string import Template

import click
import yaml

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.output import Failed, echo_block

TEMPLATE = Path(__file__).resolve().parent.parent.parent / "requirements" / "krew.yaml"
ARCHIVE = re.compile(r"kubectl-poolhouse-(?P<os>[a-z]+)-(?P<arch>[a-z0-9]+)\.tar\.gz")
VERSION = re.compile(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--version", required=True, help="Version of the release, such as v0.1.0.")
@click.option("--homepage", required=True, help="Web page of the project.")
@click.option("--archives", required=True, metavar="URL", help="URL of the directory with this version's archives.")
def krew(directory: Path, version: str, homepage: str, archives: str) -> None:
    """Print the manifest for the archives in DIRECTORY."""
    echo_block(yaml.safe_dump(manifest(directory, version, homepage, archives), sort_keys=False, width=120), nl=False)


def manifest(directory: Path, version: str, homepage: str, archives: str) -> Json:
    if not VERSION.fullmatch(version):
        raise Failed(f"--version {version}: must be a semantic version that starts with v, such as v0.1.0")
    platforms = list(_platforms(directory, archives))
    if not platforms:
        raise Failed(f"there is no archive of the plugin in {directory}; `make plugin` builds one")
    found = _fill({"version": version, "homepage": homepage, **platforms[0]})
    found["spec"]["platforms"] = [
        _fill({"version": version, "homepage": homepage, **each})["spec"]["platforms"][0] for each in platforms
    ]
    return found


def _fill(values: dict[str, str]) -> Json:
    # Parsing the text detects values that make the YAML invalid before krew reads the manifest.
    content = "".join(line for line in TEMPLATE.read_text().splitlines(True) if not line.startswith("#"))
    loaded: Json = yaml.safe_load(Template(content).substitute(values))
    return loaded


def _platforms(directory: Path, archives: str) -> Iterator[dict[str, str]]:
    for path in sorted(directory.iterdir()):
        if (match := ARCHIVE.fullmatch(path.name)) is not None:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            yield {**match.groupdict(), "uri": f"{archives.rstrip('/')}/{path.name}", "sha256": digest}


if __name__ == "__main__":
    krew()
