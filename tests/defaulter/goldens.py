"""Golden files: the document NAME.yaml, its domain NAME.xml and its defaults NAME.out.yaml.

`python -m tests.defaulter.goldens` writes the second and third anew; read the difference before you commit it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from defaulter import domain, xml
from defaulter.defaulting import VMRequest, prepare
from defaulter.kubevirt_defaults import ClusterConfig, with_input_device
from defaulter.settings import Settings
from defaulter.superseded import Edit
from defaulter.vm_paths import locate
from defaulter.worker_process import SingleWorker
from defaulter.worker_protocol import Operation
from poolhouse.api.apimachinery.unstructured import at

FOLDER = Path(__file__).with_name("golden")
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if not path.name.endswith(".out.yaml"))


def given(name: str) -> Any:
    return yaml.load((FOLDER / f"{name}.yaml").read_text(), yaml.CSafeLoader)


def asked(document: Any) -> str:
    where = locate(document)
    assert where is not None
    draft = prepare(VMRequest(document), Edit(document, None), where, ClusterConfig())
    return xml.write(domain.build(with_input_device(at(draft.document, *where.spec), where)), pretty=True) + "\n"


def shown(document: Any) -> str:
    """As YAML, with a machine that only this QEMU knows made one that each knows."""
    text = yaml.safe_dump(document, sort_keys=False, width=120)
    return re.sub(r"pc-q35-(?!6\.2$)[0-9.]+$", "pc-q35-THIS", text, flags=re.MULTILINE)


def main() -> None:
    with SingleWorker({"video": "fill"}, "", Settings.read({}).user, None) as once:
        for name in NAMES:
            document = given(name)
            (FOLDER / f"{name}.xml").write_text(asked(document))
            status, content = once.ask(Operation.DOCUMENT, json.dumps(document).encode(), seconds=60)
            if status == 501:
                print(f"{name}: {content.decode()}")  # an emulator that is not installed here
                continue
            assert status == 200, (name, content)
            (FOLDER / f"{name}.out.yaml").write_text(shown(json.loads(content)))


if __name__ == "__main__":
    main()
