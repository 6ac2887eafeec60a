"""A release table: functions by name, each with its arguments and its result."""

from __future__ import annotations

from collections.abc import Mapping

from leasehold.wire.body import type_hash
from leasehold.wire.frame import function_id
from leasehold.wire.schema import I32, Expected, Record, Tuple, Type

SERVICE = "mooncake::WrappedMasterService::"


def expected(inner: Type) -> Expected:
    """A result or one of the master's error codes."""
    return Expected(inner, I32)


class Function:
    """One function of a release. Its id and hashes follow from its name and types."""

    def __init__(self, returns: Type, /, **arguments: Type) -> None:
        self.name = ""
        self.id = 0
        self.arguments = arguments
        self.returns = returns
        self.request: Type | None = None
        if len(arguments) == 1:
            self.request = next(iter(arguments.values()))
        elif arguments:
            self.request = Tuple(tuple(arguments.values()))
        self.request_hash = type_hash(self.request.literal) if self.request is not None else None

    def named(self, name: str) -> Function:
        self.name = name
        self.id = function_id(SERVICE + name)
        return self

    def __repr__(self) -> str:
        return f"<{self.name} 0x{self.id:08x}>"


class Release:
    """The functions of one Mooncake release."""

    def __init__(self, name: str, functions: Mapping[str, Function]) -> None:
        self.name = name
        self.functions = {each: function.named(each) for each, function in functions.items()}
        # Since 0.3.13 the end of a put names the object with its checksum, before that by its key alone.
        self.object_meta = isinstance(self.functions["PutEnd"].arguments["object"], Record)
        self.by_id = {function.id: function for function in self.functions.values()}
