"""The protocol between a pool's client and a storage host: a fixed header with a checksum, then the bytes.

    request:   magic u32 | operation u8 | version u8 | capability bytes u16 | length u32 | address u64 | checksum u32 |
               number u64, then the capability, then the bytes of a write
    answer:    magic u32 | status u8 | 3 bytes | length u32 | checksum u32
               then the bytes of a read

One connection carries one request at a time. Checksums are CRC-32 of the bytes that follow (of a read request: 0). The
number of a write is the fencing token under which the master allocated the space (of a read: 0); with a capability,
the token in it counts instead.

There are two magics. Requests without a capability have that of 0.1.0, whose hosts ignore the version: so they can be
served by every host. Requests with one have `MAGIC` and a version. An answer has the magic of its request.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from leasehold.pool.capability import Refusal

MAGIC: Final = 0x3353414C  # "LAS3"
PLAIN_MAGIC: Final = 0x3253414C  # "LAS2": version and capability are zero
VERSION: Final = 1
CAPABILITY_BYTES_MAX: Final = 1024
REQUEST: Final = Struct("<IBBHIQIQ")
ANSWER: Final = Struct("<IB3xII")


class Operation(IntEnum):
    WRITE = 1
    READ = 2


class Status(IntEnum):
    OK = 0
    BAD_REQUEST = 1
    OUT_OF_BOUNDS = 2
    BAD_CHECKSUM = 3
    TOO_LATE = 4  # a later owner has written to the space
    NO_CAPABILITY = Refusal.NO_CAPABILITY
    FORGED_CAPABILITY = Refusal.FORGED_CAPABILITY
    EXPIRED_CAPABILITY = Refusal.EXPIRED_CAPABILITY
    OUTSIDE_CAPABILITY = Refusal.OUTSIDE_CAPABILITY
    NOT_MOUNTED = 20  # the master still sends clients to the memory of an earlier process at this address


def pack_request(
    operation: Operation, length: int, address: int, checksum: int = 0, number: int = 0, capability: bytes = b""
) -> bytes:
    """A request, without the bytes of a write."""
    magic, version = (MAGIC, VERSION) if capability else (PLAIN_MAGIC, 0)
    head = REQUEST.pack(magic, operation, version, len(capability), length, address, checksum, number)
    return head + capability
