"""TLS for HTTP, from the same configuration as gRPC's."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from gradwire.client._core.options import pem
from gradwire.client.config import TLSConfig


def tls_context(tls: TLSConfig) -> ssl.SSLContext:
    """OSError when a file cannot be read, ssl.SSLError when it holds no certificate."""
    roots = pem(tls.root_certificates)
    context = ssl.create_default_context(cadata=roots.decode("ascii") if roots else None)
    certificate, key = pem(tls.client_certificate), pem(tls.client_key)
    if certificate and key:
        # Python reads them from a file only; the folder is for this user alone, and gone at once.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "client.pem"
            file.write_bytes(certificate + b"\n" + key)
            context.load_cert_chain(file)
    return context
