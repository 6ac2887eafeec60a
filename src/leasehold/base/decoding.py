"""What msgspec raises for bytes that it cannot decode.

Text that is not UTF-8 raises `UnicodeDecodeError`, and deep nesting `RecursionError`. Neither is a `MsgspecError`, so a
handler for that alone lets a peer's bytes stop a task.
"""

from __future__ import annotations

from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
