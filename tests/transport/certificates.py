"""A certificate authority for one test run: it issues for a listener on loopback, for clients, and there is a
second one that nobody trusts."""

from __future__ import annotations

import datetime
import functools
import ipaddress
import tempfile
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Pair(NamedTuple):
    cert: str
    key: str


class Authority:
    def __init__(self, name: str) -> None:
        self._dir = tempfile.TemporaryDirectory()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._cert = self._sign(self._name, self._key, [], ca=True)
        self.ca = self._write("ca.pem", self._cert.public_bytes(serialization.Encoding.PEM))

    @functools.cache  # noqa: B019 - one authority lives as long as the test run
    def issue(self, name: str) -> Pair:
        """For `localhost`, 127.0.0.1 and `name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            x509.DNSName("localhost"),
            x509.DNSName(name),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        cert = self._sign(_name(name), key, names, ca=False)
        return Pair(
            self._write(f"{name}.pem", cert.public_bytes(serialization.Encoding.PEM)),
            self._write(f"{name}.key", _pem(key, serialization.NoEncryption())),
        )

    def locked_key(self, name: str) -> str:
        """A key with a passphrase."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._write(f"{name}.locked", _pem(key, serialization.BestAvailableEncryption(b"secret")))

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, names: list[x509.GeneralName], *, ca: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, data: bytes) -> str:
        path = Path(self._dir.name) / name
        path.write_bytes(data)
        return str(path)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(key: ec.EllipticCurvePrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@functools.cache
def authority() -> Authority:
    return Authority("trusted")


@functools.cache
def stranger() -> Authority:
    return Authority("stranger")
