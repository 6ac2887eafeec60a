"""A release table: functions by name, each with its arguments and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from leasehold.wire.body import type_hash
from leasehold.wire.compiler import argument_reader
from leasehold.wire.frame import function_id
from leasehold.wire.schema import I32, Expected, Failed, Record, Tuple, Type


def _no_arguments(body: bytes) -> Sequence[Any]:
    return ()


SERVICE = "mooncake::WrappedMasterService::"


def expected(inner: Type) -> Expected:
    """A result or one of the master's error codes."""
    return Expected(inner, I32)


class Function:
    """One function of a release. Its id and hashes follow from its name and types.

    Handlers get the arguments of the newest release. An older one may not send some of them: those are `given`.
    """

    def __init__(self, returns: Type, /, **arguments: Type) -> None:
        self.name = ""
        self.id = 0
        self.given: tuple[tuple[int, Any], ...] = ()  # position and value, ascending
        self.arguments = arguments
        self.returns = returns
        self.request: Type | None = None
        if len(arguments) == 1:
            self.request = next(iter(arguments.values()))
        elif arguments:
            self.request = Tuple(tuple(arguments.values()))
        self.request_hash = type_hash(self.request.literal) if self.request is not None else None

    def without(self, argument: str, value: Any) -> Function:
        """The same function of a release that does not send this argument, but means `value`."""
        if argument not in self.arguments:
            return self
        sent = {name: type_ for name, type_ in self.arguments.items() if name != argument}
        made = Function(self.returns, **sent)
        made.given = ((list(self.arguments).index(argument), value),)
        return made

    def reader(self) -> Callable[[bytes], Sequence[Any]]:
        """A reader of request bodies: all arguments of the newest release, with the given ones."""
        read: Callable[[bytes], Sequence[Any]] | None = None
        if self.request is not None:
            read = argument_reader(self.request)
        if not self.given:
            return read or _no_arguments
        given = self.given

        def complete(body: bytes) -> Sequence[Any]:
            arguments = list(read(body)) if read is not None else []
            for position, value in given:
                arguments.insert(position, value)
            return arguments

        return complete

    def sent(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Of all arguments of the newest release, those that this one sends."""
        positions = {position for position, _ in self.given}
        return [value for position, value in enumerate(arguments) if position not in positions]

    def named(self, name: str) -> Function:
        self.name = name
        self.id = function_id(SERVICE + name)
        return self

    def __repr__(self) -> str:
        return f"<{self.name} 0x{self.id:08x}>"


class Release:
    """The functions of one Mooncake release."""

    def __init__(self, name: str, functions: Mapping[str, Function], off: Mapping[str, Failed] | None = None) -> None:
        """`off`: functions of a form that the handlers do not have, and their answer: that the feature is off."""
        self.name = name
        self.off = off or {}
        self.functions = {each: function.named(each) for each, function in functions.items()}
        # Since 0.3.13 the end of a put names the object with its checksum, before that by its key alone.
        self.object_meta = isinstance(self.functions["PutEnd"].arguments["object"], Record)
        self.by_id = {function.id: function for function in self.functions.values()}
