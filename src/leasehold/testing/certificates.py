"""A certificate authority for tests of TLS on loopback. Needs the extra `testing`."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from pathlib import Path

from leasehold.testing.extra import require

require("cryptography", __name__)

from cryptography import x509  # noqa: E402
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: E402

LIFETIME = datetime.timedelta(days=1)


class CertificateAuthority:
    """Signs certificates for 127.0.0.1 and localhost, and for clients by name. PEM bytes everywhere."""

    def __init__(self, name: str = "leasehold test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.ca_pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def server(self) -> tuple[bytes, bytes]:
        """(certificate, key) for a server on loopback."""
        return self._issue("localhost", server=True)

    def client(self, name: str = "client") -> tuple[bytes, bytes]:
        """(certificate, key) for a client; etcd takes `name` for the user."""
        return self._issue(name, server=False)

    def server_files(self, folder: Path) -> tuple[Path, Path]:
        """The same certificate and key as files in `folder`, made once."""
        certificate, key = folder / "server.pem", folder / "server.key"
        if not certificate.exists():
            folder.mkdir(parents=True, exist_ok=True)
            certificate_pem, key_pem = self.server()
            key.write_bytes(key_pem)
            certificate.write_bytes(certificate_pem)
        return certificate, key

    def ca_file(self, folder: Path) -> Path:
        path = folder / "ca.pem"
        path.write_bytes(self.ca_pem)
        return path

    def client_context(self) -> ssl.SSLContext:
        """For HTTPS requests with a client certificate."""
        context = ssl.create_default_context(cadata=self.ca_pem.decode())
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder, "client.pem")
            pair.write_bytes(b"".join(self.client()))
            context.load_cert_chain(pair)
        return context

    def _issue(self, name: str, *, server: bool) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        # etcd dials itself as a client with its own certificate, so a server's serves for both.
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if server else [])
        alternatives = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = _builder(subject, self._name, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate, key_pem


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )
