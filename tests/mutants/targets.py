"""What is mutated, and the tests that should notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Target:
    name: str
    code: tuple[str, ...]
    """patterns of files, from the root of the repository"""
    tests: tuple[str, ...]
    first: tuple[str, ...] = ()
    """of the tests, those that notice most mutants of code that runs when its module is imported"""

    def files(self, root: Path = ROOT) -> list[str]:
        return [str(path.relative_to(root)) for pattern in self.code for path in sorted(root.glob(pattern))]


POOL = ("tests/controllers/pool",)
RULES = "tests/controllers/pool/rules"
FACTS = ("healing_status", "snapshots_before_update", "surge", "update_limit", "waiting", "windows", "zones")
CLAIM = ("tests/controllers/claim",)
FIELDS = "tests/defaulter/test_fields.py"
TABLE = ("tests/defaulter/test_field_table.py", "tests/defaulter/test_codecs.py")

TARGETS = (
    Target("rules", ("controllers/pool/rules/*.py",), POOL, (RULES,)),
    Target("gates", ("controllers/pool/gates/*.py",), POOL, ("tests/controllers/pool/gates", RULES)),
    Target("facts of rules and gates", tuple(f"controllers/pool/{name}.py" for name in FACTS), POOL),
    Target(
        "precedence",
        ("poolhouse/api/migrationpolicies/precedence.py", "controllers/migrationpolicy/winners.py"),
        ("tests/migrationpolicies", "tests/controllers/migrationpolicy"),
    ),
    Target(
        "claim plan",
        tuple(f"controllers/claim/{name}.py" for name in ("plan", "obtain", "hand_over", "waiting")),
        CLAIM,
    ),
    Target("allocator", ("controllers/claim/allocator.py",), CLAIM),
    Target(
        "fields",
        ("defaulter/fields.py", "defaulter/codecs.py"),
        (*TABLE, FIELDS),
        (*TABLE, f"{FIELDS}::test_the_domain_matches_its_golden_file"),
    ),
)
