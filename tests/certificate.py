"""A certificate of `localhost`, made for a run of the tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Certificate(NamedTuple):
    """Files in PEM. It vouches for itself, and so for a client that shows it."""

    chain: Path
    key: Path


def make_certificate(folder: Path) -> Certificate:
    """Skips the test where there is no openssl to make it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", made.key, "-out", made.chain], check=True, capture_output=True)
    return made
