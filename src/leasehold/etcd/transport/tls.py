"""TLS settings of one client: trusted authorities and the client certificate."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from leasehold.base.errors import InvalidArgument
from leasehold.coord.url import ConnectOptions


def tls_context(options: ConnectOptions) -> ssl.SSLContext:
    """TLS from PEM bytes or files. Without `ca`, the authorities of the system are trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    ca, cert, key = pem("ca", options.ca), pem("cert", options.cert), pem("key", options.key)
    try:
        if ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=ca.decode("ascii", errors="ignore"))
    except ssl.SSLError as error:
        raise InvalidArgument(f"ca{_named(options.ca)} holds no certificate in PEM: {error}") from None
    try:
        _load_identity(context, cert, key)
    except ssl.SSLError as error:
        which = f"cert{_named(options.cert)} and key{_named(options.key)}"
        raise InvalidArgument(f"{which} are not a certificate and its key, both in PEM: {error}") from None
    return context


def pem(name: str, source: bytes | str | Path | None) -> bytes | None:
    """The bytes, or the content of the file. `name` is the option's name, for the error message."""
    if source is None or isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{name} = {source}: cannot be read: {error.strerror}") from None


def _named(source: bytes | str | Path | None) -> str:
    """The path for an error message, if a path was given."""
    return "" if source is None or isinstance(source, bytes) else f" = {source}"


def _load_identity(context: ssl.SSLContext, certificate: bytes | None, key: bytes | None) -> None:
    if certificate is None or key is None:
        return
    # Python reads them only from a file: a private one, deleted right after.
    with tempfile.NamedTemporaryFile(prefix="leasehold-") as together:
        together.write(certificate + b"\n" + key)
        together.flush()
        context.load_cert_chain(together.name)
