"""The protocol between a pool's client and a storage host: a fixed header with a checksum, then the bytes.

    request:   magic u32 | operation u8 | 3 bytes | length u32 | address u64 | checksum u32 | number u64
               then the bytes of a write
    answer:    magic u32 | status u8 | 3 bytes | length u32 | checksum u32
               then the bytes of a read

One connection carries one request at a time. Checksums are CRC-32 of the bytes that follow (of a read request: 0). The
number of a write is that of the replica for which the master allocated the space (of a read: 0).
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

MAGIC: Final = 0x3253414C  # "LAS2"
REQUEST: Final = Struct("<IB3xIQIQ")
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
