"""Mutants that no test can notice, with the reason. They are not run, and count neither as killed nor as survivors."""

from __future__ import annotations

ALLOCATOR, HAND_OVER = "controllers/claim/allocator.py", "controllers/claim/hand_over.py"
LIMIT, ZONES = "controllers/pool/update_limit.py", "controllers/pool/zones.py"
PRECEDENCE, WINNERS = "poolhouse/api/migrationpolicies/precedence.py", "controllers/migrationpolicy/winners.py"
RULES = "controllers/pool/rules"
TIME = "it finds the same policies or VMIs, and only takes longer"


def _changes(path: str, line: str, *changed: str) -> list[str]:
    """The keys of mutants of one line."""
    return [f"{path}: {line} -> {each}" for each in changed]


def _with(line: str, part: str, *others: str) -> tuple[str, ...]:
    assert part in line
    return tuple(line.replace(part, each) for each in others)


_RETAINED = """return f"{count_noun(retained, 'disk', 'is', 'are')} retained, retainedDisks.max is {limits.max}\""""
_PAUSE = "pause = min(FIRST_PAUSE * 2 ** min(attempts - 1, 30), MAX_PAUSE)"
_AHEAD = 'time = known_time(text or "")'
_BREAKER = (
    'return breaker.message or "" if breaker is not None and breaker.open and not may_probe(snapshot, now) else ""'
)
_PCI = (
    'return {"type": "pci", **{part: f"0x{digits}" for part, digits in zip(_PCI_PARTS, match.groups(), strict=True)}}'
)
_FOUND_NONE = 'found_none = (s.claim.status.launch_reason or "").startswith(f"{ClaimReason.POOL_EMPTY}:")'
_VM_NAME = """return f"{claim[:54].rstrip('-.')}-{digest}\""""
_RESTORED = 'observed_at = f"{claim.status.queue_position or 0:09}"'
_JOINS = 'observed_at = format_micro_time(record.timeline.observed) if record.timeline.observed else ""'
_CREATED = 'created: str = ""'
_PROMOTION = 'name, _, text = annotation.rpartition("=")'
_MOST = "most = max((left[zone] for zone in waiting if zone), default=0)"
_KEYS = "for key, later in zip(one.keys, other.keys, strict=True):"
_INDEX = "index = self._by_namespace.get(relevant)"
_RARE = "key, value = min(policy.selectors.instance, key=lambda label: (required[label], label))"
_RAREST = "found |= min((self._with(key, value) for key, value in policy.selectors.instance), key=len)"
_COUNT = "required = Counter(label for policy in self.policies for label in policy.selectors.instance)"
_FILED = "(self._any[key] if value == ANY else exact.setdefault(key, {}).setdefault(value, [])).append(place)"
_NAMESPACE = "before = self._namespaces.get(name)"
_BY_LABEL = "self._by_label = {key: by_value for key, by_value in self._by_label.items() if key in keys}"

REASONS: dict[str, str] = {
    **dict.fromkeys(
        _changes(f"{RULES}/retention.py", _RETAINED, *_with(_RETAINED, "'is'", "None", "'XXisXX'", "'IS'")),
        "retainedDisks.max is at least 1, so that there are two disks or more",
    ),
    **dict.fromkeys(
        _changes("controllers/pool/healing_status.py", _PAUSE, *_with(_PAUSE, "30", "31")),
        "after six attempts the pause is the longest anyway",
    ),
    **dict.fromkeys(
        _changes("controllers/pool/healing_status.py", _AHEAD, *_with(_AHEAD, '""', '"XXXX"')),
        "no time is in either text",
    ),
    **dict.fromkeys(
        _changes("controllers/pool/gates/healing.py", _BREAKER, *_with(_BREAKER, '"" if', '"XXXX" if')),
        "a breaker that is open has a message",
    ),
    **dict.fromkeys(
        _changes("defaulter/codecs.py", _PCI, *_with(_PCI, "strict=True", "", "strict=False")),
        "the pattern has a group for each part",
    ),
    **dict.fromkeys(
        [
            *_changes("defaulter/fields.py", "GUEST = auto()", "GUEST = None"),
            *_changes("defaulter/fields.py", "HOST = auto()", "HOST = None"),
        ],
        "a member of an Enum is the same with any value",
    ),
    **dict.fromkeys(
        _changes(HAND_OVER, _FOUND_NONE, *_with(_FOUND_NONE, '""', '"XXXX"')), "neither text begins with the reason"
    ),
    **dict.fromkeys(
        _changes("controllers/claim/obtain.py", _VM_NAME, *_with(_VM_NAME, "'-.'", "'XX-.XX'")),
        "names have no capital letters",
    ),
    **dict.fromkeys(
        _changes(ALLOCATOR, _RESTORED, *_with(_RESTORED, "or 0", "or 1")),
        "one write sets phase Queued and the position",
    ),
    **dict.fromkeys(
        _changes(ALLOCATOR, _JOINS, *_with(_JOINS, '""', '"XXXX"')), "the controller has observed each claim that joins"
    ),
    **dict.fromkeys(
        _changes(PRECEDENCE, _CREATED, *_with(_CREATED, '""', '"XXXX"')), "both count as later than any time"
    ),
    **dict.fromkeys(
        _changes(LIMIT, _PROMOTION, *_with(_PROMOTION, "rpartition", "partition")),
        "with two equals signs, neither names a revision and a number of steps",
    ),
    **dict.fromkeys(
        _changes(ZONES, _MOST, *_with(_MOST, "default=0", "default=1", "default=None")),
        "it is compared with known zones only, and then there is one",
    ),
    **dict.fromkeys(
        _changes(PRECEDENCE, _KEYS, *_with(_KEYS, "strict=True", "", "strict=False")),
        "both have the same number of keys",
    ),
    **dict.fromkeys(
        [
            *_changes(PRECEDENCE, _INDEX, "index = None", *_with(_INDEX, "relevant", "None")),
            *_changes(PRECEDENCE, _RARE, *_with(_RARE, "key=lambda label: (required[label], label)", "", "key=None")),
            *_changes(PRECEDENCE, _RARE, *_with(_RARE, "(required[label], label))", "None)")),
            *_changes(PRECEDENCE, _COUNT, "required = Counter(None)"),
            *_changes(PRECEDENCE, _FILED, *_with(_FILED, "value == ANY", "(value == ANY) or True")),
            *_changes(WINNERS, _NAMESPACE, "before = None"),
            *_changes(WINNERS, _RAREST, *_with(_RAREST, "key=len", "", "key=None")),
            *_changes(WINNERS, _BY_LABEL, *_with(_BY_LABEL, "if key in", "if key not in")),
        ],
        TIME,
    ),
}
