"""Who is trusted, and who we are: TLS for one client."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from leasehold.base.errors import InvalidArgument
from leasehold.coord.url import ConnectOptions


def tls_context(options: ConnectOptions) -> ssl.SSLContext:
    """TLS from PEM bytes or files; without a `ca` the authorities count that the system trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    ca = pem(options.ca)
    try:
        if ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=ca.decode("ascii", errors="ignore"))
        _load_identity(context, pem(options.cert), pem(options.key))
    except ssl.SSLError as error:
        raise InvalidArgument(f"ca, cert or key is not PEM, or cert and key are not a pair: {error}") from None
    return context


def pem(source: bytes | str | Path | None) -> bytes | None:
    """The bytes themselves, or what is in the file."""
    if source is None or isinstance(source, bytes):
        return source
    return Path(source).read_bytes()


def _load_identity(context: ssl.SSLContext, certificate: bytes | None, key: bytes | None) -> None:
    if certificate is None or key is None:
        return
    # Python reads them from a file only: one that nobody else may read, and that is gone at once.
    with tempfile.NamedTemporaryFile(prefix="leasehold-") as together:
        together.write(certificate + b"\n" + key)
        together.flush()
        context.load_cert_chain(together.name)
