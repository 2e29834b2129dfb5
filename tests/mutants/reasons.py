"""Mutants that no test can notice, with the reason. They are not run, and count neither as killed nor as survivors."""

REASONS: dict[str, str] = {}
