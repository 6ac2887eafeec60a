"""The structure check, run on a small package with one violation of each kind."""

from __future__ import annotations

import pytest

from scripts import structure

SOURCES = {
    "__init__.py": "",
    "index/__init__.py": "",
    "index/model.py": """
from msgspec import Struct

class Row(Struct):
    size: int = 0
""",
    "index/parts.py": '''
class Space:
    """Owns the bytes."""

    def __init__(self) -> None:
        self.used = 0
        self.table: dict[int, list[int]] = {}
        self.queue: list[int] = []

    def take(self, size: int) -> None:
        """Take bytes."""
        self.used += size
        self.queue.append(size)
        table = self.table
        table[size] = []

class Narrow(Space):
    def check(self) -> None:
        def later() -> None:
            self.used = 1
        later()

class Deep(Narrow):
    pass
''',
    "index/index.py": """
from sample.index.model import Row
from sample.index.parts import Space

class Index:
    def __init__(self) -> None:
        self.space = Space()
        self.row = Row()

    def assigns(self) -> None:
        self.space.used = 1

    def adds(self) -> None:
        self.space.queue.append(1)

    def sets_item(self) -> None:
        self.space.table[1] = []

    def reaches_inside(self) -> None:
        self.space.table[1].append(2)

    def reads(self) -> int:
        return self.space.used + self.space.queue[0]

    def resizes(self) -> None:
        self.row.size = 2

def by_alias(space: Space | None) -> None:
    if space is not None:
        queue = space.queue
        pop = queue.pop
        pop()
        queue = []
        queue.append(1)

def deletes(space: Space) -> None:
    del space.table[1]

def counts_on(space: Space) -> int:
    used = space.used
    used += 1
    return used
""",
    "testing.py": """
from sample.index.parts import Space

def reach_in(space: Space) -> None:
    space.used = 0
""",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> structure.Project:
    folder = tmp_path_factory.mktemp("structure")
    for name, text in SOURCES.items():
        path = folder / "sample" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    many = "\n".join(f"    def m{number}(self) -> None: ..." for number in range(structure.METHODS_MAX))
    (folder / "sample" / "wide.py").write_text(
        f"class Wide:\n{many}\n\nclass Wider(Wide):\n    def more(self) -> None: ...\n"
    )
    arguments = ["--config-file=", "--cache-dir", str(folder / "cache"), "--explicit-package-bases"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(folder))
        return structure.load(folder, "sample", arguments)


def test_inherited_methods_count(project: structure.Project) -> None:
    found = list(structure.too_many_methods(project))
    assert [(each.subject, each.detail) for each in found] == [("wide.Wider", "41 methods (at most 40)")]


def test_one_level_of_inheritance_is_allowed(project: structure.Project) -> None:
    assert [each.subject for each in structure.too_deep(project)] == ["index.parts.Deep"]


def test_only_the_declaring_class_writes(project: structure.Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "ROWS", {})
    monkeypatch.setattr(structure, "HOT", {})
    found = {each.subject for each in structure.foreign_writes(project)}
    assert found == {
        "index.model.Row.size by index.index.Index",
        "index.parts.Space.queue by index.index",
        "index.parts.Space.queue by index.index.Index",
        "index.parts.Space.table by index.index",
        "index.parts.Space.table by index.index.Index",
        "index.parts.Space.used by index.index.Index",
        "index.parts.Space.used by index.parts.Narrow",
    }
    lines = [each.detail.rpartition(":")[2] for each in structure.foreign_writes(project) if "queue" in each.subject]
    assert len(lines) == 2, "a name that was given another list is no alias"


def test_a_row_is_written_by_the_listed_modules(project: structure.Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "ROWS", {"index.model.Row": ("index.index", "index.parts")})
    found = [each.entry for each in structure.foreign_writes(project) if "Row" in each.subject]
    assert found == ["row index.model.Row by index.parts"], "an entry that is not needed is a violation"


def test_the_docs_list_the_public_methods_of_parts(project: structure.Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "WHOLES", {"index.index.Index": "index"})
    page = f"before\n{structure.BEGIN}\nold\n{structure.END}\nafter\n"
    written = structure.with_tables(page, project)
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert "**`Space`** (`index.parts`): Owns the bytes." in written
    assert "| `take` | Take bytes. |" in written
    assert "Row" not in written
    assert structure.with_tables(written, project) == written


def test_a_hot_write_is_listed_with_its_measurement(
    project: structure.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = "index.parts.Space.used by index.index.Index"
    monkeypatch.setattr(structure, "ROWS", {})
    monkeypatch.setattr(structure, "HOT", {hot: "10 ns instead of 20", "index.parts.Space.gone by index.index": ""})
    found = [each.entry for each in structure.foreign_writes(project)]
    assert f"write {hot}" not in found
    assert found[-1] == "hot index.parts.Space.gone by index.index", "an entry that is not needed is a violation"
