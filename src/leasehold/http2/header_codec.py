"""HPACK: decoding of any header block, encoding of the few that we send."""

from __future__ import annotations

from collections import deque

from hpack.exceptions import HPACKDecodingError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from leasehold.base.errors import PeerError

TABLE_BYTES_MAX = 4096
# Limits of one header block. A one-byte field may stand for a long header, so the number of fields is limited too.
BLOCK_BYTES_MAX = 8 * 1024
BLOCK_FIELDS_MAX = 100
# Decoding work is counted in fields. This many bytes of Huffman code take about as long as one field.
_HUFFMAN_BYTES_PER_WORK = 4
# Decoded strings that are cached, and the longest one: they repeat with every call.
TEXTS_MAX, TEXT_BYTES_MAX = 1_000, 128
# Whole blocks that are cached: most calls of a connection have the same headers.
BLOCKS_KNOWN_MAX, BLOCK_KNOWN_BYTES_MAX = 100, 512
_ENTRY_OVERHEAD_BYTES = 32
_STATIC: tuple[tuple[bytes, bytes], ...] = tuple(HeaderTable.STATIC_TABLE)

Header = tuple[bytes, bytes]


TOO_MUCH = 11  # the error code ENHANCE_YOUR_CALM


class ProtocolBroken(PeerError):
    """A peer violated HTTP/2. Its connection is closed, with `code` as the reason."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class HeaderReader:
    """The decoder of one connection. Its table is state: every block must be decoded, in order."""

    def __init__(self) -> None:
        self._table: deque[Header] = deque()  # the newest first
        self._size = 0
        self._size_max = TABLE_BYTES_MAX
        self._texts: dict[bytes, bytes] = {}  # Huffman code -> text
        self._known: dict[bytes, list[Header]] = {}  # block -> headers, valid until the table changes
        self.work = 0  # decoding work of the last block, about one per field

    def read(self, block: bytes) -> list[Header]:
        """The headers of one block. The caller must not change the list: an equal block gets the same one."""
        known = self._known.get(block)
        self.work = 1
        if known is not None:
            return known
        found, lasting = self._read(block)
        if lasting and len(block) <= BLOCK_KNOWN_BYTES_MAX:
            if len(self._known) >= BLOCKS_KNOWN_MAX:
                self._known.clear()
            self._known[block] = found
        return found

    def _read(self, block: bytes) -> tuple[list[Header], bool]:
        """The headers of a block, and whether they may be cached for equal bytes."""
        found: list[Header] = []
        place, lasting = 0, True
        try:
            while place < len(block):
                if len(found) == BLOCK_FIELDS_MAX:
                    raise ProtocolBroken(f"a header block has more than {BLOCK_FIELDS_MAX} fields", TOO_MUCH)
                first = block[place]
                if first & 0x80:
                    index, place = _integer(block, place, 7)
                    found.append(self._entry(index))
                elif first & 0xE0 == 0x20:
                    if found:
                        raise ProtocolBroken("a header table changes its size in the middle of a block")
                    size, place = _integer(block, place, 5)
                    self._resize(size)
                    lasting = False
                else:
                    lasting = lasting and first < 0x10  # 0x40 changes the table; 0x10 must never be cached
                    bits = 6 if first & 0x40 else 4
                    index, place = _integer(block, place, bits)
                    if index:
                        name = self._entry(index)[0]
                    else:
                        name, place = self._text(block, place)
                    value, place = self._text(block, place)
                    found.append((name, value))
                    if bits == 6:
                        self._add(name, value)
        except IndexError:
            raise ProtocolBroken("a header block ends in the middle") from None
        self.work += len(found)
        return found, lasting

    def _entry(self, index: int) -> Header:
        if not index:
            raise ProtocolBroken("header index 0")
        if index <= len(_STATIC):
            return _STATIC[index - 1]
        if index > len(_STATIC) + len(self._table):
            raise ProtocolBroken(f"header index {index} is not in the table")
        return self._table[index - len(_STATIC) - 1]

    def _text(self, block: bytes, place: int) -> tuple[bytes, int]:
        huffman = block[place] & 0x80
        length, place = _integer(block, place, 7)
        end = place + length
        if end > len(block):
            raise ProtocolBroken("a header's text is longer than its block")
        raw = bytes(block[place:end])
        if not huffman:
            return raw, end
        known = self._texts.get(raw)
        if known is None:
            self.work += length // _HUFFMAN_BYTES_PER_WORK
            try:
                known = bytes(decode_huffman(raw))
            except HPACKDecodingError as error:
                raise ProtocolBroken(f"a header's text: {error}") from None
            if length <= TEXT_BYTES_MAX:
                if len(self._texts) >= TEXTS_MAX:
                    self._texts.clear()
                self._texts[raw] = known
        return known, end

    def _add(self, name: bytes, value: bytes) -> None:
        self._known.clear()
        self._table.appendleft((name, value))
        self._size += len(name) + len(value) + _ENTRY_OVERHEAD_BYTES
        self._shrink()

    def _resize(self, size: int) -> None:
        if size > TABLE_BYTES_MAX:
            raise ProtocolBroken(f"a header table of {size} bytes")
        self._known.clear()
        self._size_max = size
        self._shrink()

    def _shrink(self) -> None:
        while self._size > self._size_max:
            name, value = self._table.pop()
            self._size -= len(name) + len(value) + _ENTRY_OVERHEAD_BYTES


def _integer(block: bytes, place: int, bits: int) -> tuple[int, int]:
    limit = (1 << bits) - 1
    number = block[place] & limit
    place += 1
    if number < limit:
        return number, place
    shift = 0
    while True:
        byte = block[place]
        place += 1
        number += (byte & 0x7F) << shift
        if not byte & 0x80:
            return number, place
        shift += 7
        if shift > 28:
            raise ProtocolBroken("a header's number is too large")


def literal(name: bytes, value: bytes) -> bytes:
    """A header that is not added to the table."""
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def secret(name: bytes, value: bytes) -> bytes:
    """A header that must never be added to a table, also not by a proxy."""
    return b"\x10" + literal(name, value)[1:]


def _length(number: int) -> bytes:
    if number < 127:
        return bytes((number,))
    done = bytearray((127,))
    number -= 127
    while number > 127:
        done.append(number & 0x7F | 0x80)
        number >>= 7
    done.append(number)
    return bytes(done)


# `:status: 200` is number 8 of the static table.
RESPONSE = b"\x88" + literal(b"content-type", b"application/grpc")
OK_TRAILERS = literal(b"grpc-status", b"0")


_TIMEOUT_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def timeout_s(text: bytes) -> float | None:
    """The value of a `grpc-timeout` header in seconds; None if it is invalid."""
    unit = _TIMEOUT_UNITS_S.get(text[-1:])
    return int(text[:-1]) * unit if unit is not None and text[:-1].isdigit() and len(text) <= 9 else None


def trailers(code: int, message: str) -> bytes:
    """The trailers of a call. gRPC requires %XX for characters that are not printable ASCII."""
    text = "".join(chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in message.encode())
    return literal(b"grpc-status", b"%d" % code) + literal(b"grpc-message", text.encode())
