"""Arguments that are rejected before they can change anything. The client checks first; the authority checks again.

Each function returns the reason for a rejection, or None.
"""

from __future__ import annotations

from leasehold.base import limits
from leasehold.cache.model import MODES, Ask, Code, Version, Write


def objection_to_key(key: bytes) -> str | None:
    if not isinstance(key, bytes):
        return f"a key is bytes, not {type(key).__name__}"
    if not 1 <= len(key) <= limits.cache_key_bytes_max:
        return f"a key has 1 to {limits.cache_key_bytes_max} bytes, not {len(key)}"
    return None


def objection_to_write(write: Write) -> str | None:
    if write.value is not None:
        if not isinstance(write.value, bytes):  # a bytearray would be kept, and might change afterwards
            return f"a value is bytes, not {type(write.value).__name__}"
        if len(write.value) > limits.cache_value_bytes_max:
            return f"a value has at most {limits.cache_value_bytes_max} bytes, not {len(write.value)}"
    if write.expect is not None and not isinstance(write.expect, Version):
        return f"`expect` is a Version, as returned by `get_versioned`, not {type(write.expect).__name__}"
    if write.mode not in MODES:
        return f"unknown mode {write.mode!r}: choose one of {', '.join(MODES)}"
    if not 0 < write.timeout_ms <= limits.cache_term_ms_max:
        return f"timeout of {write.timeout_ms} ms is out of range: it takes 1 to {limits.cache_term_ms_max} ms"
    return objection_to_key(write.key)


def objection_to_prefix(prefix: bytes) -> str | None:
    if not isinstance(prefix, bytes):
        return f"a prefix is bytes, not {type(prefix).__name__}"
    if len(prefix) > limits.cache_key_bytes_max:
        return f"a prefix has at most {limits.cache_key_bytes_max} bytes, not {len(prefix)}"
    return None


def objection_to_ask(ask: Ask) -> Code | None:
    """BAD_REQUEST for an invalid key, or for too many keys."""
    if not 1 <= len(ask.keys) <= limits.cache_keys_per_ask_max or any(map(objection_to_key, ask.keys)):
        return Code.BAD_REQUEST
    return None
