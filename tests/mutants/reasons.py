"""Mutants that no test can notice, with the reason. They are not run, and count neither as killed nor as survivors."""

_RETAINED = """return f"{count_noun(retained, 'disk', %s, 'are')} retained, retainedDisks.max is {limits.max}\""""

REASONS: dict[str, str] = {
    f"controllers/pool/rules/retention.py: {_RETAINED % repr('is')} -> {_RETAINED % singular}": (
        "retainedDisks.max is at least 1, so that there are two disks or more"
    )
    for singular in ("None", "'XXisXX'", "'IS'")
}
