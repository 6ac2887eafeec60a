"""Run one benchmark in this process: `python -m bench.one NAME FILE` writes its rows to FILE as JSON."""

from __future__ import annotations

import importlib
import sys

import msgspec

from bench.rows import recorded


def main(name: str, file: str) -> None:
    importlib.import_module(f"bench.bench_{name}").main()
    with open(file, "wb") as output:
        output.write(msgspec.json.encode({"rows": recorded(name)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
