"""The files of `[tls]`: each mistake in them is told by its setting, before anything starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gradwire.server.config import TlsSettings
from gradwire.server.tls_files import check_tls_files
from tests.certificate import Certificate, make_certificate
from tests.test_serve import serve


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture
def files(tmp_path: Path, certificate: Certificate) -> dict[str, Path]:
    """Good ones and bad ones, by what they are."""
    names = ("garbage", "empty", "csr", "expired", "encrypted", "rsa", "missing")
    made = {"good": certificate.chain, "key": certificate.key, "folder": tmp_path}
    made |= {name: tmp_path / f"{name}.pem" for name in names}
    made["garbage"].write_bytes(b"-----BEGIN CERTIFICATE-----\n\xff!\n-----END CERTIFICATE-----\n")
    made["empty"].touch()
    (tmp_path / "other").mkdir()
    made["other key"] = make_certificate(tmp_path / "other").key
    openssl("req", "-new", "-key", certificate.key, "-subj", "/CN=localhost", "-out", made["csr"])
    openssl("x509", "-req", "-in", made["csr"], "-key", certificate.key, "-days", "-1", "-out", made["expired"])
    openssl("pkey", "-in", certificate.key, "-aes128", "-passout", "pass:x", "-out", made["encrypted"])
    openssl("genrsa", "-out", made["rsa"], "2048")
    return made


def test_each_mistake_is_told_by_its_setting_and_file(files: dict[str, Path]) -> None:
    cases = [
        ("certificate", "missing", "cannot read {}: No such file"),
        ("certificate", "folder", "cannot read {}: Is a directory"),
        ("certificate", "garbage", "{} holds no certificate in PEM"),
        ("certificate", "empty", "{} holds no certificate in PEM"),
        ("certificate", "key", "{} holds no certificate in PEM"),
        ("key", "missing", "cannot read {}: No such file"),
        ("key", "garbage", "{} holds no private key in PEM"),
        ("key", "good", "{} holds no private key in PEM"),
        ("key", "encrypted", "{} is encrypted, and the server knows no password"),
        ("key", "other key", "{} is not the key of the certificate in " + str(files["good"])),
        ("key", "rsa", "{} is not the key of the certificate in " + str(files["good"])),
        ("client_ca", "missing", "cannot read {}: No such file"),
        ("client_ca", "garbage", "{} holds no certificate in PEM"),
        ("client_ca", "key", "{} holds no certificate in PEM"),
    ]
    good = {"certificate": files["good"], "key": files["key"], "client_ca": files["good"]}
    assert check_tls_files(TlsSettings(**good)) == ()
    for setting, name, says in cases:
        with pytest.raises(ValueError, match=r"^tls\.") as caught:
            check_tls_files(TlsSettings(**{**good, setting: files[name]}))
        told = str(caught.value)
        assert told.startswith(f"tls.{setting}: {says.format(files[name])}") and "\n" not in told, (setting, name)


def test_what_has_expired_is_a_warning(files: dict[str, Path]) -> None:
    expired = files["expired"]
    own, callers = check_tls_files(TlsSettings(certificate=expired, key=files["key"], client_ca=expired))
    assert own == f"clients will refuse the certificate of tls.certificate, {expired}: certificate has expired"
    assert str(expired) in callers and "tls.client_ca" in callers


def test_a_server_with_such_files_is_one_line_and_exit_code_2(files: dict[str, Path]) -> None:
    env = {"GRADWIRE_TLS__CERTIFICATE": str(files["good"]), "GRADWIRE_TLS__KEY": str(files["other key"])}
    ended = serve("--data-dir", str(files["folder"] / "data"), **env)
    assert ended.returncode == 2 and ended.stdout == ""
    said = f"tls.key: {files['other key']} is not the key of the certificate in {files['good']}"
    assert ended.stderr == f"gradwire serve: {said}\n"
    assert not (files["folder"] / "data").exists()
