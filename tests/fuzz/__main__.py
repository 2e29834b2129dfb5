"""`python -m tests.fuzz`: runs inputs for a time or to a number, and prints figures. Exits with 1 after a finding."""

import argparse
import json
import logging
import secrets
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import Campaign, Figures, attempt, smallest_cover
from tests.fuzz.oracles import FINDS
from tests.fuzz.targets import all_targets

CORPUS = Path(__file__).with_name("corpus")
FAILURES = Path(".fuzz")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="longest time; default: 120")
    parser.add_argument("--inputs", type=int, default=10**9, help="largest number of inputs")
    parser.add_argument("--seed", help="default: a new one, which is printed")
    parser.add_argument("--only", nargs="*", default=[], metavar="TARGET", help="run only these targets")
    parser.add_argument("--without-libvirt", action="store_true", help="start no worker with libvirt")
    parser.add_argument("--keep", action="store_true", help="store small inputs that reach new lines in the corpus")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="repeat the input of one failure")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # expected failures are part of most inputs
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as folder,
        all_targets(Path(folder), libvirt=not options.without_libvirt) as targets,
    ):
        if options.replay is not None:
            stored = json.loads(options.replay.read_text())
            (target,) = (each for each in targets if each.name == stored["target"])
            found = attempt(target, stored["input"])
            print(found or "no finding")
            return int(found is not None)
        chosen = [each for each in targets if not options.only or each.name in options.only]
        seed = options.seed or secrets.token_hex(4)
        print(f"seed {seed}, targets {', '.join(each.name for each in chosen)}", flush=True)
        campaign = Campaign(chosen, seed, FAILURES)
        for target in chosen:
            if (path := CORPUS / f"{target.name}.json").exists():
                campaign.pools[target.name] = json.loads(path.read_text())
        try:
            campaign.run(inputs=options.inputs, seconds=options.seconds)
        except KeyboardInterrupt:
            print("stopped")
        print(table(campaign.figures))
        if options.keep:
            for target in chosen:
                kept = smallest_cover(target, campaign.pools.get(target.name, []))
                lines = ",\n".join(json.dumps(each) for each in kept)
                (CORPUS / f"{target.name}.json").write_text(f"[\n{lines}\n]\n")
        return int(bool(campaign.figures.found))


def table(figures: Figures) -> str:
    lines = [f"{'target':<10} {'inputs':>9} " + " ".join(f"{name:>15}" for name in FINDS) + f" {'slowest':>9}"]
    for name, count in sorted(figures.inputs.items()):
        found = " ".join(f"{figures.found[name, kind]:>15}" for kind in FINDS)
        lines.append(f"{name:<10} {count:>9} {found} {figures.slowest.get(name, 0):>7.2f} s")
    total = " ".join(f"{sum(figures.found[name, kind] for name in figures.inputs):>15}" for kind in FINDS)
    lines.append(f"{'all':<10} {sum(figures.inputs.values()):>9} {total}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
