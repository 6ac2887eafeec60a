"""The cluster's secrets, as the nodes and the storage hosts have them in a file."""

from __future__ import annotations

from typing import Final

from leasehold.base.errors import SettingError

SECRET_CHARACTERS_MIN: Final = 32
SECRETS_MAX: Final = 16
Secrets = tuple[bytes, ...]


def parse_secrets(text: str, file: str) -> Secrets:
    """Parse a secret file: one secret in each line. The first signs, all are accepted. Errors do not show secrets."""
    lines = [line.strip() for line in text.splitlines()]
    secrets = tuple(line.encode() for line in lines if line and not line.startswith("#"))
    if not secrets or len(secrets) > SECRETS_MAX:
        raise SettingError(f"cluster_secret_file = '{file}' must have 1 to {SECRETS_MAX} secrets, one in each line")
    if min(map(len, secrets)) < SECRET_CHARACTERS_MIN:
        raise SettingError(
            f"cluster_secret_file = '{file}': a secret has less than {SECRET_CHARACTERS_MIN} characters; make one "
            "with: openssl rand -hex 32"
        )
    return secrets
