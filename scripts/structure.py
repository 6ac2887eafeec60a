"""Check the structure of the code, with the types that mypy finds.

    scripts/check-structure             check; exit code 1 on a violation
    scripts/check-structure --report    counts and the worst classes; exit code 0
    scripts/check-structure --write     rewrite the tables of parts in the docs

Rules:

methods  A class has at most 40 methods, counting those inherited from our own classes.
depth    A class inherits from at most one level of our own classes. Exceptions, classes that only declare
         (Protocols, ABCs) and the mutants of the test kit do not count.
write    An attribute is written only by methods of the class that declares it. Mutating calls on a container
         (`x.queue.append(1)`) and item assignments (`x.table[key] = 1`) are writes too, also through a local
         name (`queue = x.queue`). Checked for the classes of the packages in OWNED. Exceptions are in ROWS and HOT.
parts    The public methods of each part of the index and of the cache's authority are listed in the docs, between
         `<!-- parts:begin -->` and `<!-- parts:end -->`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mypy import build, nodes, types
from mypy.main import process_options
from mypy.modulefinder import BuildSource

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "leasehold"
GENERATED = ("etcd.pb",)

METHODS_MAX = 40
DEPTH_MAX = 1

# Classes that may have more methods: typed interfaces that only forward. name -> reason
FORWARDING: dict[str, str] = {
    "wire.client.Client": "one typed method for each function of the master",
    "contrib.etcd3.client.Etcd3Client": "the methods of python-etcd3's class of that name",
}

# Packages and modules whose classes own their attributes.
OWNED = ("index", "journal", "ha", "mvcc", "wire", "node", "cache")
# The test kit may reach into what it tests, and its mutants must.
WRITERS_EXEMPT = ("testing",)

# Rows: mutable Structs in a module named `model.py`. They have no methods to speak of, so the part that owns them
# writes their fields. struct -> modules that may write it
ROWS: dict[str, tuple[str, ...]] = {
    "index.model.Quarantined": ("index.space.quarantine",),
    "index.model.RetiredSegment": ("index.space.retired",),
    "index.model.RetiredExtent": ("index.space.retired",),
    # Reads and Renewals write `lease_end` and `dirty` in their loops: a call for each hit costs 50 ns of a read's 300.
    "index.model.Object": ("index.catalog", "index.disk", "index.leases", "index.reads", "index.renewals"),
    "index.model.Extra": ("index.catalog", "index.model"),
    "index.model.DiskVersion": ("index.disk",),
    "index.model.DiskOwner": ("index.disk",),
    "index.model.Replica": ("index.catalog",),
    "index.model.CopyJob": ("index.catalog",),
    "index.model.Group": ("index.leases",),
    "index.model.Client": ("index.owners",),
    "index.model.Task": ("index.tasks",),
}

# Writes of a measured hot path, where a method call costs too much. "attribute by class" -> measurement
HOT: dict[str, str] = {
    "cache.entries.Entry.hits by cache.client.Client": "a hit takes 300 ns; with a method 340 ns",
    "cache.entries.Entry.touch_ns by cache.client.Client": "set with `hits`, in the same 300 ns",
}

# The objects whose parts are listed in the docs. A part is an attribute whose class is one of ours in this package.
WHOLES: dict[str, str] = {
    "index.index.Index": "index",
    "index.space.space.Space": "index",
    "cache.authority_machine.AuthorityMachine": "cache",
}

MUTATORS = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "extendleft", "insert"),
    *("intersection_update", "move_to_end", "pop", "popitem", "popleft", "remove", "reverse", "rotate", "setdefault"),
    *("sort", "subtract", "symmetric_difference_update", "update"),
}
IMMUTABLE = {f"builtins.{name}" for name in ("bool", "bytes", "float", "frozenset", "int", "str", "tuple")}
CONTAINERS = ("builtins.", "collections.", "typing.", "_collections_abc.", "sortedcontainers.", "array.", "heapq.")
BEGIN, END = "<!-- parts:begin -->", "<!-- parts:end -->"


@dataclass(frozen=True, order=True)
class Violation:
    """A class or write (`subject`) that breaks a rule. `detail` is the place or the number."""

    rule: str
    subject: str
    detail: str = field(default="", compare=False)

    @property
    def entry(self) -> str:
        return f"{self.rule} {self.subject}"


@dataclass
class Project:
    """The typed code of one package."""

    package: str
    modules: dict[str, nodes.MypyFile]
    types: dict[nodes.Expression, types.Type]

    def short(self, fullname: str) -> str:
        return fullname.removeprefix(f"{self.package}.")

    def is_ours(self, info: nodes.TypeInfo) -> bool:
        return info.module_name == self.package or info.module_name.startswith(f"{self.package}.")

    def classes(self) -> Iterator[nodes.ClassDef]:
        """Every class of the package, also those inside of classes and functions."""
        waiting: list[nodes.Node] = list(self.modules.values())
        while waiting:
            node = waiting.pop()
            if isinstance(node, nodes.ClassDef):
                yield node
            if not isinstance(node, nodes.Expression):
                waiting.extend(children(node))


def load(folder: Path, package: str, arguments: Iterable[str] = (), without: tuple[str, ...] = ()) -> Project:
    """Parse and type the package in `folder` as mypy does. Other modules come from mypy's cache."""
    sources, options = process_options([*arguments, str(folder / package)])
    options.export_types = options.preserve_asts = options.include_docstrings = True
    # A source given as text is always parsed: the cache holds interfaces only, no bodies.
    chosen = [
        BuildSource(source.path, source.module, Path(source.path).read_text())
        for source in sources
        if source.path and not any(source.module.startswith(f"{package}.{name}") for name in without)
    ]
    result = build.build(chosen, options)
    if result.errors:
        raise SystemExit("check-structure: mypy must pass first:\n" + "\n".join(result.errors[:20]))
    names = {source.module for source in chosen}
    return Project(package, {name: tree for name, tree in result.files.items() if name in names}, result.types)


# mypy's own visitors are compiled and cannot be subclassed. These attributes lead from a node to its children.
CHILDREN = (
    "defs body bodies else_body finally_body handlers decorators func items arguments initializer expr exprs lvalues "
    "lvalue rvalue index target value key left_expr sequences condlists indices generator callee args base begin_index "
    "end_index stride left right operands cond if_expr else_expr subject guards from_expr msg call"
)

_CHILD_NAMES: dict[type[nodes.Node], tuple[str, ...]] = {}


def children(node: nodes.Node) -> Iterator[nodes.Node]:
    for name in _child_names(type(node)):
        yield from _nodes_in(getattr(node, name))


def _child_names(kind: type[nodes.Node]) -> tuple[str, ...]:
    if kind not in _CHILD_NAMES:
        _CHILD_NAMES[kind] = tuple(name for name in CHILDREN.split() if hasattr(kind, name))
    return _CHILD_NAMES[kind]


def _nodes_in(value: object) -> Iterator[nodes.Node]:
    if isinstance(value, nodes.Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _nodes_in(item)


# --- methods and depth ---


def functions(definition: nodes.ClassDef) -> dict[str, nodes.Node]:
    """Methods written in the body of the class, by name."""
    kinds = (nodes.FuncDef, nodes.Decorator, nodes.OverloadedFuncDef)
    return {each.name: each for each in definition.defs.body if isinstance(each, kinds)}


def methods(project: Project, info: nodes.TypeInfo) -> set[str]:
    found: set[str] = set()
    for base in info.mro:
        if project.is_ours(base):
            found |= functions(base.defn).keys()
    return found


def is_mutant(info: nodes.TypeInfo) -> bool:
    """A class of the test kit with a planted bug: it inherits from the class that it breaks."""
    return "mutants" in info.module_name.split(".")


def too_many_methods(project: Project) -> Iterator[Violation]:
    for definition in project.classes():
        if is_mutant(definition.info):
            continue
        name = project.short(definition.info.fullname)
        count = len(methods(project, definition.info))
        if count > METHODS_MAX and name not in FORWARDING:
            yield Violation("methods", name, f"{count} methods (at most {METHODS_MAX})")


def is_exception(info: nodes.TypeInfo) -> bool:
    return any(base.fullname == "builtins.BaseException" for base in info.mro)


def only_declares(info: nodes.TypeInfo) -> bool:
    """A Protocol, or an abstract class all of whose methods are abstract."""
    if info.is_protocol:
        return True
    return info.is_abstract and all(
        isinstance(each, nodes.Decorator) and each.func.abstract_status == nodes.IS_ABSTRACT
        for each in functions(info.defn).values()
    )


def depth(project: Project, info: nodes.TypeInfo) -> int:
    """Levels of our own classes above this one."""
    bases = [base.type for base in info.bases if project.is_ours(base.type)]
    return max((depth(project, base) + (0 if only_declares(base) else 1) for base in bases), default=0)


def too_deep(project: Project) -> Iterator[Violation]:
    for definition in project.classes():
        info = definition.info
        if is_exception(info) or is_mutant(info):
            continue
        if (levels := depth(project, info)) > DEPTH_MAX:
            chain = ", ".join(base.name for base in info.mro[1:] if project.is_ours(base))
            yield Violation("depth", project.short(info.fullname), f"{levels} levels of our own classes: {chain}")


# --- writes ---


def infos(found: types.Type | None) -> list[nodes.TypeInfo]:
    """The classes that a value of this type may have."""
    proper = types.get_proper_type(found)
    if isinstance(proper, types.Instance):
        return [proper.type]
    if isinstance(proper, types.UnionType):
        return [info for item in proper.items for info in infos(item)]
    if isinstance(proper, types.TypeVarType):
        return infos(proper.upper_bound)
    if isinstance(proper, types.TypeType):
        return infos(proper.item)
    if isinstance(proper, types.TupleType):
        return infos(proper.partial_fallback)
    if isinstance(proper, types.FunctionLike) and proper.is_type_obj():
        return [proper.type_object()]
    return []


class Writes:
    """Attributes that a module writes: (declaring class, attribute, writing class or "", line)."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.found: list[tuple[nodes.TypeInfo, str, str, int]] = []
        self._aliases: dict[nodes.SymbolNode, nodes.MemberExpr] = {}
        self._writer = ""

    def visit(self, node: nodes.Node, writer: str = "") -> None:
        self._writer = writer
        if isinstance(node, nodes.AssignmentStmt):
            for target in node.lvalues:
                self._assigned(target)
                self._remember(target, node.rvalue)
        elif isinstance(node, nodes.OperatorAssignmentStmt):
            self._assigned(node.lvalue)
            if isinstance(node.lvalue, nodes.NameExpr) and self._is_container(node.lvalue):
                self._mutated(node.lvalue)  # `queue += [1]` changes the list itself
        elif isinstance(node, nodes.DelStmt):
            self._assigned(node.expr)
        elif isinstance(node, nodes.ForStmt):
            self._assigned(node.index)
        elif isinstance(node, nodes.WithStmt):
            for each in node.target:
                if each is not None:
                    self._assigned(each)
        elif isinstance(node, nodes.MemberExpr) and node.name in MUTATORS and self._is_container(node.expr):
            self._mutated(node.expr)  # not only calls: `pop = self.other.queue.pop` is how a fast loop writes
        inside = node.info.fullname if isinstance(node, nodes.ClassDef) else writer
        for child in children(node):
            self.visit(child, inside)

    def _assigned(self, target: nodes.Expression) -> None:
        if isinstance(target, (nodes.TupleExpr, nodes.ListExpr)):
            for item in target.items:
                self._assigned(item)
        elif isinstance(target, nodes.StarExpr):
            self._assigned(target.expr)
        elif isinstance(target, nodes.MemberExpr):
            self._written(target)
        elif isinstance(target, nodes.IndexExpr) and self._is_container(target.base):
            self._mutated(target.base)

    def _mutated(self, container: nodes.Expression) -> None:
        """The container in an attribute, or one inside of it."""
        while isinstance(container, nodes.IndexExpr) and self._is_container(container.base):
            container = container.base
        if isinstance(container, nodes.NameExpr) and container.node in self._aliases:
            container = self._aliases[container.node]
        if isinstance(container, nodes.MemberExpr):
            self._written(container)

    def _remember(self, target: nodes.Expression, value: nodes.Expression) -> None:
        pairs = [(target, value)]
        if isinstance(target, nodes.TupleExpr) and isinstance(value, nodes.TupleExpr):
            pairs = list(zip(target.items, value.items, strict=False))
        for name, source in pairs:
            if isinstance(name, nodes.NameExpr) and name.node is not None:
                if isinstance(source, nodes.MemberExpr) and self._is_container(source):
                    self._aliases[name.node] = source
                else:
                    self._aliases.pop(name.node, None)

    def _is_container(self, expression: nodes.Expression) -> bool:
        found = infos(self.project.types.get(expression))
        return any(info.fullname.startswith(CONTAINERS) and info.fullname not in IMMUTABLE for info in found)

    def _written(self, target: nodes.MemberExpr) -> None:
        for info in infos(self.project.types.get(target.expr)):
            declaring = next((base for base in info.mro if target.name in base.names), None)
            if declaring is not None and self.project.is_ours(declaring):
                self.found.append((declaring, target.name, self._writer, target.line))


def foreign_writes(project: Project) -> Iterator[Violation]:
    unused = {(row, module) for row, modules in ROWS.items() for module in modules}
    not_hot = set(HOT)
    for name, module in project.modules.items():
        if project.short(name).split(".")[0] in WRITERS_EXEMPT:
            continue
        writes = Writes(project)
        writes.visit(module)
        for declaring, attribute, writer, line in writes.found:
            if project.short(declaring.module_name).split(".")[0] not in OWNED or writer == declaring.fullname:
                continue
            row = project.short(declaring.fullname)
            if is_row(declaring) and project.short(name) in ROWS.get(row, ()):
                unused.discard((row, project.short(name)))
                continue
            subject = f"{row}.{attribute} by {project.short(writer or name)}"
            if subject in HOT:
                not_hot.discard(subject)
                continue
            yield Violation("write", subject, f"{module.path}:{line}")
    for row, writing in sorted(unused):
        yield Violation("row", f"{row} by {writing}", "not written there, or no Struct in model.py: correct ROWS")
    for subject in sorted(not_hot):
        yield Violation("hot", subject, "no longer written there: correct HOT")


def is_row(info: nodes.TypeInfo) -> bool:
    """A mutable Struct in a module named `model`."""
    return info.module_name.endswith(".model") and any(base.fullname == "msgspec.Struct" for base in info.mro)


# --- parts in the docs ---


def parts(project: Project, whole: str, package: str) -> list[nodes.TypeInfo]:
    """Classes of the package that the whole holds in an attribute of its own, in the order of their modules."""
    definition = next((each for each in project.classes() if project.short(each.info.fullname) == whole), None)
    if definition is None:
        raise SystemExit(f'check-structure: class "{whole}" does not exist: correct WHOLES in scripts/check-structure')
    found: dict[str, nodes.TypeInfo] = {}
    for base in definition.info.mro:
        for symbol in base.names.values() if project.is_ours(base) else ():
            if isinstance(symbol.node, nodes.Var):
                for info in infos(symbol.node.type):
                    if project.short(info.module_name).split(".")[0] == package and is_part(project, info):
                        found[info.fullname] = info
    return [found[name] for name in sorted(found)]


def is_part(project: Project, info: nodes.TypeInfo) -> bool:
    """A class with public methods of its own; no row and no enumeration."""
    plain = {"msgspec.Struct", "enum.Enum"}
    return not any(base.fullname in plain for base in info.mro) and bool(public_methods(project, info))


def summary(definition: nodes.Node) -> str:
    """The first line of the docstring of a module, class or function."""
    if isinstance(definition, nodes.OverloadedFuncDef):
        definition = definition.items[0]
    if isinstance(definition, nodes.Decorator):
        definition = definition.func
    text = definition.docstring if isinstance(definition, (nodes.FuncDef, nodes.ClassDef)) else None
    if isinstance(definition, nodes.MypyFile) and isinstance(first := definition.defs[0], nodes.ExpressionStmt):
        text = first.expr.value if isinstance(first.expr, nodes.StrExpr) else None
    return (text or "").strip().partition("\n")[0].strip().replace("|", "\\|")


def tables(project: Project) -> str:
    """One table for each part: its public methods and what they are for."""
    lines: list[str] = []
    listed: set[nodes.TypeInfo] = set()  # a part may hold others of the same whole
    for whole, package in WHOLES.items():
        lines += [f"### Parts of `{whole.rpartition('.')[2]}`", ""]
        for info in parts(project, whole, package):
            if info in listed:
                continue
            listed.add(info)
            text = summary(info.defn) or summary(project.modules[info.module_name])
            lines += [f"**`{info.name}`** (`{project.short(info.module_name)}`): {text}", ""]
            lines += ["| public method | purpose |", "|---|---|"]
            lines += [f"| `{name}` | {text} |" for name, text in public_methods(project, info)]
            lines.append("")
    return "\n".join(lines)


def public_methods(project: Project, info: nodes.TypeInfo) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for base in reversed(info.mro):
        if project.is_ours(base):
            found |= {name: summary(each) for name, each in functions(base.defn).items() if not name.startswith("_")}
    return sorted(found.items())


def page_with_parts(docs: Path) -> Path:
    pages = [page for page in sorted(docs.rglob("*.md")) if BEGIN in page.read_text()]
    if len(pages) != 1:
        names = ", ".join(str(page) for page in pages) or "none"
        raise SystemExit(f'check-structure: exactly one page must have "{BEGIN}" and "{END}"; found: {names}')
    return pages[0]


def with_tables(page: str, project: Project) -> str:
    """The page with the tables as they should be."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f'check-structure: "{END}" is missing')
    return f"{before}{BEGIN}\n\n{tables(project)}\n{END}{after}"


# --- commands ---


def report(project: Project, found: list[Violation]) -> Iterator[str]:
    """Counts, and the worst of each rule."""
    sizes = sorted(((len(methods(project, each.info)), each.info) for each in project.classes()), key=lambda x: -x[0])
    yield "most methods (own and inherited):"
    yield from (f"  {count:5} {project.short(info.fullname)}" for count, info in sizes[:10])
    yield "deepest inheritance:"
    deepest = sorted((each for each in found if each.rule == "depth"), key=lambda each: -int(each.detail.split()[0]))
    yield from (f"  {each.detail.split()[0]:>5} {each.subject}" for each in deepest[:10])
    writes = [each for each in found if each.rule == "write"]
    for title, part in (("attributes written by other classes, by class:", 0), ("and by writer:", 1)):
        yield title
        sides = [each.subject.split(" by ")[part] for each in writes]
        owners = Counter(side.rpartition(".")[0] if part == 0 else side for side in sides)
        yield from (f"  {count:5} {name}" for name, count in owners.most_common(10))
    for rule in ("methods", "depth", "write", "row", "hot"):
        of_rule = [each for each in found if each.rule == rule]
        yield f"{rule}: {len({each.entry for each in of_rule})} violations in {len(of_rule)} places"


def violations(project: Project) -> list[Violation]:
    return [*too_many_methods(project), *too_deep(project), *foreign_writes(project)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--report", action="store_true", help="print counts and the worst classes")
    chosen.add_argument("--write", action="store_true", help="rewrite the tables of parts in the docs")
    options = parser.parse_args(arguments)
    project = load(ROOT / "src", PACKAGE, ["--config-file", str(ROOT / "pyproject.toml")], GENERATED)
    page = page_with_parts(ROOT / "docs")
    text = page.read_text()
    wanted = with_tables(text, project)
    if options.write:
        page.write_text(wanted)
        return 0
    found = violations(project)
    if options.report:
        print("\n".join(report(project, found)))
        return 0
    wrong = [f"{each.entry}: {each.detail}" for each in sorted(found)]
    if text != wanted:
        wrong.append(
            f"{page.relative_to(ROOT)}: the tables of parts are out of date: run scripts/check-structure --write"
        )
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"check-structure: {len(wrong)} problems", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
