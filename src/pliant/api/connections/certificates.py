"""The server's TLS: a local authority made for this machine, and a certificate that the owner may give.

Programs of this machine reach the server by address and trust the local authority. A given certificate is
used for the names and addresses that it names, the local one for all others.
"""

import datetime as dt
import ipaddress
import json
import os
import shutil
import socket
import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pliant.store.errors import StoreError

AUTHORITY_DAYS, SERVER_DAYS = 3650, 820
"""Validity in days of the two certificates made here; clients refuse server certificates valid longer."""

RENEW_DAYS = 90
"""A server's certificate with fewer days left is renewed when the server starts."""

Name = x509.DNSName | x509.IPAddress


class CertificateError(StoreError):
    """A certificate or its key cannot be used."""


class Certificates:
    """The folder `tls` of a state folder; it exists while TLS is on."""

    def __init__(self, state: Path, host: str = "127.0.0.1") -> None:
        self._folder = state / "tls"
        self.host = host

    @property
    def on(self) -> bool:
        return self.trusted.exists()

    @property
    def trusted(self) -> Path:
        """What programs of this machine trust: the local authority, and the certificate that was given."""
        return self._folder / "trusted.pem"

    @property
    def names(self) -> frozenset[str]:
        """The names in the given certificate, in lower case, some of them `*.domain`."""
        found = self._given_names()
        return frozenset(str(name.value).lower() for name in found if isinstance(name, x509.DNSName))

    @property
    def hosts(self) -> frozenset[str]:
        """Names, in lower case, that a request's Host may have besides `localhost` and any address."""
        own = socket.gethostname().lower()
        return self.names | {own, own.partition(".")[0]}

    def url(self, port: int) -> str:
        """Where programs of this machine reach the server."""
        return f"{'https' if self.on else 'http'}://{reached(self.host)}:{port}"

    def record(self) -> dict[str, str]:
        """What the server records about itself, by which programs of its account recognize it."""
        known = {"authority": str(self.trusted.relative_to(self._folder.parent))} if self.on else {}
        return {"host": self.host, **known}

    def choose(self, wanted: bool | None, given: Sequence[Path] | None = None) -> None:
        """Turn TLS on or off; None: leave it. Makes the certificates that are missing or about to end.

        `given`: a certificate with its chain, and its key. Raises CertificateError.
        """
        if given is not None:
            _checked(*given)
        elif wanted is False or not (wanted or self.on):
            if not ipaddress.ip_address(self.host).is_loopback:
                raise CertificateError(
                    f"A server that listens on {self.host} is open to the network: add --tls, or omit --host."
                )
            self._forget()
            return
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if given is not None:
                self._write("given.json", json.dumps([str(path) for path in given]).encode())
            self._make()
        except OSError as error:
            raise CertificateError(f"{self._folder} cannot be written: {error.strerror}.") from error

    def _forget(self) -> None:
        try:
            shutil.rmtree(self._folder)
        except FileNotFoundError:
            return  # TLS was never on
        except OSError as error:
            raise CertificateError(f"{self._folder} cannot be removed: {error.strerror}.") from error

    def context(self) -> ssl.SSLContext | None:
        """The TLS context for the server's sockets; None while TLS is off. Raises CertificateError."""
        if not self.on:
            return None
        local = _served(self._folder / "local.pem", self._folder / "local.key")
        given = self._given()
        if given is None:
            return local
        _checked(*given)
        theirs, names = _served(*given), self._given_names()
        own = x509.IPAddress(ipaddress.ip_address(reached(self.host)))
        outer = theirs if own in names else local

        hosts = self.names

        def chosen(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
            if name is not None:
                connection.context = theirs if covered(name, hosts) else local

        outer.sni_callback = chosen
        return outer

    def checking(self) -> ssl.SSLContext | None:
        """The TLS context of a client on this machine; None while TLS is off."""
        if not self.on:
            return None
        context = ssl.create_default_context(cafile=str(self.trusted))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def _given(self) -> tuple[Path, Path] | None:
        try:
            chain, key = json.loads((self._folder / "given.json").read_text())
        except FileNotFoundError:
            return None
        return Path(chain), Path(key)

    def _given_names(self) -> frozenset[Name]:
        given = self._given()
        return frozenset(_names(_first(given[0]))) if given is not None else frozenset()

    def _make(self) -> None:
        """Make the authority if it is missing, the server's certificate unless it is good, trusted.pem."""
        authority, signer = self._folder / "ca.pem", self._folder / "ca.key"
        if not (authority.exists() and signer.exists()):
            self._make_authority()
        own, wanted = self._folder / "local.pem", _own_names(self.host)
        if not (own.exists() and (self._folder / "local.key").exists() and _serves(_first(own), wanted)):
            self._make_server(_first(authority), signer.read_bytes(), wanted)
        given = self._given()
        trusted = authority.read_bytes()
        if given is not None:
            trusted += _first(given[0]).public_bytes(serialization.Encoding.PEM)
        self._write("trusted.pem", trusted)

    def _make_authority(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Pliant on {socket.gethostname()}"[:64])])
        made = (
            _begun(name, name, key.public_key(), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        for old in ("local.pem", "local.key"):
            (self._folder / old).unlink(missing_ok=True)
        self._write("ca.key", _private(key))
        self._write("ca.pem", made.public_bytes(serialization.Encoding.PEM))

    def _make_server(self, authority: x509.Certificate, signer: bytes, names: Iterable[Name]) -> None:
        signing = serialization.load_pem_private_key(signer, None)
        assert isinstance(signing, ec.EllipticCurvePrivateKey)  # see _make_authority
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Pliant")])
        issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
        made = (
            _begun(subject, authority.subject, key.public_key(), SERVER_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(issued_by, critical=False)
            .sign(signing, hashes.SHA256())
        )
        self._write("local.key", _private(key))
        self._write("local.pem", made.public_bytes(serialization.Encoding.PEM))

    def _write(self, name: str, content: bytes) -> None:
        """Write the file atomically, for the owner only."""
        draft = self._folder / f".{name}.{os.getpid()}"
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        draft.rename(self._folder / name)


def reached(host: str) -> str:
    """The address under which programs of this machine reach a server that listens there."""
    return "127.0.0.1" if ipaddress.ip_address(host).is_unspecified else host


def covered(name: str, names: Iterable[str]) -> bool:
    """True if the host has one of these names, which are in lower case, some of them `*.domain`."""
    name = name.lower().rstrip(".")
    return name in names or f"*.{name.partition('.')[2]}" in names


def _own_names(host: str) -> list[Name]:
    hosts = dict.fromkeys(("localhost", socket.gethostname().lower()))
    addresses = dict.fromkeys(("127.0.0.1", "::1", reached(host)))
    return [
        *(x509.DNSName(name) for name in hosts if name.isascii()),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
    ]


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
    early = dt.timedelta(hours=1)  # clocks differ
    return builder.not_valid_before(_now() - early).not_valid_after(_now() + dt.timedelta(days=days))


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _first(path: Path) -> x509.Certificate:
    """The certificate at the head of a chain. Raises CertificateError."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0]
    except OSError as error:
        raise CertificateError(f"The certificate {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise CertificateError(f"{path} holds no certificate in PEM form.") from error


def _names(certificate: x509.Certificate) -> list[Name]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [name for name in found if isinstance(name, x509.DNSName | x509.IPAddress)]


def _serves(certificate: x509.Certificate, wanted: Iterable[Name]) -> bool:
    """True if it names all of these and is valid for more than RENEW_DAYS."""
    lasts = certificate.not_valid_after_utc - _now() > dt.timedelta(days=RENEW_DAYS)
    return lasts and set(wanted) <= set(_names(certificate))


def _checked(chain: Path, key: Path) -> None:
    """Raise CertificateError unless a server can use these now."""
    certificate = _first(chain)
    if not _names(certificate):
        raise CertificateError(
            f"The certificate {chain} names no host (it has no subjectAltName): no program would accept it."
        )
    if certificate.not_valid_after_utc < _now():
        ended = certificate.not_valid_after_utc.date()
        raise CertificateError(f"The certificate {chain} ended on {ended}: renew it.")
    _served(chain, key)


def _served(chain: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])

    def asked() -> str:
        raise CertificateError(f"The key {key} is protected by a passphrase: use a key without one.")

    try:
        key.read_bytes()
        context.load_cert_chain(chain, key, asked)
    except ssl.SSLError as error:
        raise CertificateError(f"{key} is not the key of the certificate {chain}.") from error
    except OSError as error:
        raise CertificateError(f"The key {key} cannot be read: {error.strerror}.") from error
    return context
