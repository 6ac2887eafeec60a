"""Style rules that can be measured. Pure packages stay pure. Long files and functions are listed as warnings."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "leasehold"
GENERATED = {SOURCE / "etcd" / "pb", SOURCE / "testing" / "grpc_stubs"}
FILE_LINES = 400
FUNCTION_LINES = 60

# Pure code gets time, randomness and identities as arguments. These calls would bypass that.
BANNED = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "clock_gettime", "clock_gettime_ns", "sleep"},
    "random": {"random", "randrange", "randint", "choice", "shuffle"},
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom"},
    "asyncio": {"sleep"},
    "datetime": {"now"},
}
PURE_PACKAGES = ("base", "mvcc", "leases", "index", "journal", "ha")


def sources() -> Iterator[Path]:
    yield from (path for path in sorted(SOURCE.rglob("*.py")) if GENERATED.isdisjoint(path.parents))


def is_pure(path: Path) -> bool:
    """A module of a pure package, or a machine in another package (by its name)."""
    return path.relative_to(SOURCE).parts[0] in PURE_PACKAGES or path.stem.endswith("machine")


def banned_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.attr in BANNED.get(node.value.id, ()):
            yield node.lineno, f"{node.value.id}.{node.attr}"


def test_pure_code_uses_no_clock_and_no_randomness() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line} {call}"
        for path in sources()
        if is_pure(path)
        for line, call in banned_calls(ast.parse(path.read_text()))
    ]
    assert not found, "pass time, randomness and identities as arguments:\n" + "\n".join(found)


def test_invariants_are_not_asserts() -> None:
    """`assert` does nothing under -O; `ensure` stays. An assert that only narrows a type for mypy is fine."""
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert) and not _narrows(node.test) and "testing" not in path.parts
    ]
    assert not found, "use ensure(...) instead of assert:\n" + "\n".join(found)


def _narrows(test: ast.expr) -> bool:
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], (ast.Is, ast.IsNot))
    if isinstance(test, ast.Call):
        return isinstance(test.func, ast.Name) and test.func.id in ("isinstance", "callable")
    return isinstance(test, ast.Name)


def test_long_files_and_functions_are_listed() -> None:
    over: list[str] = []
    for path in sources():
        text = path.read_text()
        lines = text.count("\n")
        if lines > FILE_LINES:
            over.append(f"{path.relative_to(SOURCE)}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno:
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES:
                    over.append(f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}: {length} lines")
    if over:
        warnings.warn("look for the seam:\n  " + "\n  ".join(over), stacklevel=1)
