"""The PEM files of `[tls]`, looked at before anything starts: gRPC itself says only that it cannot listen."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from gradwire.server.config import TlsSettings


def check_tls_files(tls: TlsSettings) -> tuple[str, ...]:
    """Raises ValueError that names the setting, its file and what is wrong with it.

    Returns what a server can start with, and clients will not like: a certificate that has expired.
    """
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _read_certificates(own, "tls.certificate", tls.certificate)
    _read_key(own, tls)
    warnings = [_unliked(own, tls.certificate)]
    if tls.client_ca is not None:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _read_certificates(trusting, "tls.client_ca", tls.client_ca)
        warnings.append(_expired(trusting, tls.client_ca))
    return tuple(filter(None, warnings))


def _read_certificates(context: ssl.SSLContext, setting: str, file: Path) -> None:
    _require_readable(setting, file)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise ValueError(f"{setting}: {file} holds no certificate in PEM ({_reason(error)})") from error


def _read_key(context: ssl.SSLContext, tls: TlsSettings) -> None:
    _require_readable("tls.key", tls.key)
    asked = False

    def password() -> str:
        nonlocal asked
        asked = True
        return ""

    try:
        context.load_cert_chain(tls.certificate, tls.key, password)
    except ssl.SSLError as error:
        if asked:
            text = "is encrypted, and the server knows no password; openssl pkey -in KEY -out NEW takes it off"
        elif (error.reason or "").endswith(("MISMATCH", "NO_CERTIFICATE_ASSIGNED")):  # the second: of another kind
            text = f"is not the key of the certificate in {tls.certificate}"
        elif (error.reason or "").startswith(("EE_", "CA_")):  # such as EE_KEY_TOO_SMALL: the key has been read by then
            raise ValueError(f"tls.certificate: {tls.certificate} is not good enough ({_reason(error)})") from error
        else:
            text = f"holds no private key in PEM ({_reason(error)})"
        raise ValueError(f"tls.key: {tls.key} {text}") from error


def _require_readable(setting: str, file: Path) -> None:
    try:
        file.read_bytes()
    except OSError as error:
        raise ValueError(f"{setting}: cannot read {file}: {error.strerror}") from error


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "OpenSSL cannot read it").lower().replace("_", " ")


def _unliked(own: ssl.SSLContext, file: Path) -> str:
    """Why a client that trusts this very certificate would refuse it, found out by being one; empty when none would."""
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.check_hostname = False
    caller.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    caller.load_verify_locations(file)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = caller.wrap_bio(back, there), own.wrap_bio(there, back, server_side=True)
    for end in ends * 2:  # hello, certificate, verdict
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return f"clients will refuse the certificate of tls.certificate, {file}: {error.verify_message}"
    return ""


def _expired(trusting: ssl.SSLContext, file: Path) -> str:
    ends = [ssl.cert_time_to_seconds(str(found["notAfter"])) for found in trusting.get_ca_certs()]
    if ends and max(ends) < time.time():
        return f"no caller will be let in: the certificates of tls.client_ca, {file}, have expired"
    return ""
