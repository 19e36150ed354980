"""Certificates made on the fly."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sirius.transport.security import Role, TlsSettings

ROLES: Mapping[str, Collection[Role]] = {
    "member-*": {Role.MEMBER},
    "follower-*": {Role.FOLLOWER},
    "client-*": {Role.CLIENT},
    "admin": {Role.ADMIN},
}
_DAY = datetime.timedelta(days=1)


@dataclass
class Authority:
    """Signs certificates, and leaves the files in a folder."""

    folder: Path
    name: str = "authority"

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(self.name)
        self._serial = 0
        builder = self._builder(self._name, self._key, -1, 1)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = builder.add_extension(constraints, True).sign(
            self._key, hashes.SHA256()
        )

    def issue(
        self, name: str, from_day: int = -1, to_day: int = 1, host: str = "127.0.0.1"
    ) -> TlsSettings:
        """Write a key and a certificate for a host under this common name; what was there is replaced."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_host(host)])
        builder = self._builder(_name(name), key, from_day, to_day).add_extension(names, False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return TlsSettings(
            self._write(f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM)),
            self._write(
                f"{name}.key",
                key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                ),
            ),
            self._write(
                f"{self.name}.crt", self._certificate.public_bytes(serialization.Encoding.PEM)
            ),
            ROLES,
        )

    def _builder(self, subject: x509.Name, key: Any, from_day: int, to_day: int) -> Any:
        now = datetime.datetime.now(datetime.UTC)
        self._serial += 1
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(self._serial)
            .not_valid_before(now + from_day * _DAY)
            .not_valid_after(now + to_day * _DAY)
        )

    def _write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.replace(path)
        return path


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
