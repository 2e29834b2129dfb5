"""The mutants of a file, which mutmut makes: its operators, and its choice of the code that they change.

libcst is imported only to make mutants: its import takes half a second, and every worker of the tests imports this
module.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst
    from mutmut.mutation.file_mutation import Mutation


@dataclass(frozen=True)
class Mutant:
    path: str
    function: str
    """its qualified name; empty for code that runs when the module is imported"""
    line: int
    removed: tuple[str, ...]
    added: tuple[str, ...]
    source: str
    """of the whole module"""

    @property
    def key(self) -> str:
        """Names the mutant as long as its lines stay the same, wherever they are."""
        return f"{self.path}: {' '.join(self.removed)} -> {' '.join(self.added)}"

    def diff(self) -> str:
        """With the function, because the lines around a change say less than its name."""
        lines = [*(f"- {line}" for line in self.removed), *(f"+ {line}" for line in self.added)]
        return "\n".join([f"{self.path}:{self.line} {self.function}", *(f"    {line}" for line in lines)])


@dataclass(frozen=True)
class Candidate:
    """A mutant whose source is not written yet, because a run has time for some of thousands."""

    path: str
    code: str
    module: libcst.Module
    mutation: Mutation
    functions: dict[libcst.CSTNode, str]

    def mutant(self) -> Mutant | None:
        """None if the mutant is the same code, or none that Python reads."""
        import libcst
        from mutmut.mutation.file_mutation import deep_replace

        mutated = deep_replace(self.module, self.mutation.original_node, self.mutation.mutated_node)
        assert isinstance(mutated, libcst.Module)
        source = mutated.code
        try:
            compile(source, self.path, "exec")
        except SyntaxError:
            return None
        before, after = self.code.splitlines(), source.splitlines()
        changes = [
            change
            for change in difflib.SequenceMatcher(None, before, after, False).get_opcodes()
            if change[0] != "equal"
        ]
        if not changes:
            return None
        outer = self.mutation.contained_by_top_level_function
        return Mutant(
            path=self.path,
            function=self.functions.get(outer, "") if outer is not None else "",
            line=changes[0][1] + 1,
            removed=tuple(line.strip() for _, first, last, _, _ in changes for line in before[first:last]),
            added=tuple(line.strip() for _, _, _, first, last in changes for line in after[first:last]),
            source=source,
        )


def candidates(root: Path, path: str) -> list[Candidate]:
    from mutmut.mutation.file_mutation import create_mutations

    code = (root / path).read_text()
    module, mutations, *_ = create_mutations(path, code)
    functions = dict(_functions(module))
    return [Candidate(path, code, module, each, functions) for each in mutations]


def _functions(module: libcst.Module) -> Iterator[tuple[libcst.CSTNode, str]]:
    """The functions that can be replaced alone: those of the module, and those of its classes."""
    import libcst

    for node in module.body:
        if isinstance(node, libcst.FunctionDef):
            yield node, node.name.value
        elif isinstance(node, libcst.ClassDef):
            for method in node.body.body:
                if isinstance(method, libcst.FunctionDef):
                    yield method, f"{node.name.value}.{method.name.value}"
