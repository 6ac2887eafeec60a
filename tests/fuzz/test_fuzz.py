"""Fuzzing of every parser in `parsers.py`: mutated good inputs and found ones (`corpus/`), by hypothesis.

`make test` spends about half a minute on all of them, `make proof` an hour; `--rewrite` writes the number of executions
into docs/proof.md.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.fuzz.parsers import Parser, table

CORPUS = Path(__file__).parent / "corpus"
PAGE = Path(__file__).parents[2] / "docs" / "proof.md"
SHORT_S = 1.5  # for one parser
LONG_S = 180.0
BATCH = 200
PARSERS = {parser.name: parser for parser in table()}
EXECUTIONS: dict[str, int] = {}
# (kind of change, where, how much): applied one after the other to a good input
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("flip", "set", "cut", "drop", "repeat", "insert")), st.floats(0, 1), st.binary(max_size=9)
    ),
    max_size=6,
)
INTERESTING = (b"\x00" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80" * 9, b"\xdd\xff\xff\xff\xff", b"\xc7\xff\x00")


def found_inputs(name: str) -> list[bytes]:
    """Inputs that once broke this parser, as hexadecimal lines."""
    path = CORPUS / f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.hex"
    return [bytes.fromhex(line) for line in path.read_text().split()] if path.exists() else []


def changed(data: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, piece in changes:
        at = int(where * len(data))
        piece = piece or INTERESTING[at % len(INTERESTING)]
        if kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << piece[0] % 8)]) + data[at + 1 :]
        elif kind == "set":
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "drop":
            data = data[:at] + data[at + 1 + piece[0] % 16 :]
        elif kind == "repeat":
            data = data[:at] + data[at : at + 1 + piece[0]] * 2 + data[at + 1 + piece[0] :]
        elif kind == "insert":
            data = data[:at] + piece + data[at:]
    return data


def execute(parser: Parser, data: bytes) -> None:
    """Every exception but the documented ones is a bug."""
    EXECUTIONS[parser.name] = EXECUTIONS.get(parser.name, 0) + 1
    raw = parser.seal(data)
    try:
        parser.parse(raw)
    except parser.refuses_with:
        return
    except Exception as error:
        raise AssertionError(
            f"{parser.name}: {type(error).__name__}: {error}; add this input to tests/fuzz/corpus: {data.hex()}"
        ) from error


def fuzz(parser: Parser, for_s: float) -> None:
    for data in (*parser.samples, *found_inputs(parser.name), b"", *INTERESTING):
        execute(parser, data)
    samples = [*parser.samples, *found_inputs(parser.name)]

    @given(st.one_of(st.binary(max_size=64), st.builds(changed, st.sampled_from(samples), CHANGES)))
    @settings(
        max_examples=BATCH,
        database=None,
        derandomize=False,
        phases=[Phase.generate],  # a found input is added to the corpus as it is: shrinking takes long
        suppress_health_check=list(HealthCheck),
    )
    def one_batch(data: bytes) -> None:
        execute(parser, data)

    number, end_s = 0, time.monotonic() + for_s
    while number == 0 or time.monotonic() < end_s:
        seed(number)(one_batch)()
        number += 1


def test_good_inputs_are_accepted() -> None:
    """Otherwise the mutations of them would only test the first check."""
    for parser in PARSERS.values():
        for sample in parser.samples:
            parser.parse(parser.seal(sample))


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_refuses_bad_input_with_its_own_errors(name: str) -> None:
    fuzz(PARSERS[name], SHORT_S)


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_every_parser_for_an_hour(request: pytest.FixtureRequest) -> None:
    EXECUTIONS.clear()
    for parser in PARSERS.values():
        fuzz(parser, LONG_S)
    section = section_of(LONG_S)
    print(section)
    if request.config.getoption("--rewrite"):
        page = re.sub(r"<!-- fuzz -->.*<!-- /fuzz -->", lambda _: section, PAGE.read_text(), flags=re.DOTALL)
        PAGE.write_text(page)


def section_of(seconds: float) -> str:
    """The part of docs/proof.md about the last run."""
    rows = [f"| {name} | {count:,} |" for name, count in EXECUTIONS.items()]
    total = f"The last run took {seconds:g} s for each parser: {sum(EXECUTIONS.values()):,} executions."
    head = ("| parser | executions |", "|---|---|")
    return "\n".join(("<!-- fuzz -->", "", total, "", *head, *rows, "", "<!-- /fuzz -->"))


def test_the_docs_list_every_parser() -> None:
    section = PAGE.read_text().partition("<!-- fuzz -->")[2].partition("<!-- /fuzz -->")[0]
    assert re.findall(r"^\| ([^|]+) \| [\d,]+ \|$", section, re.MULTILINE) == list(PARSERS)
