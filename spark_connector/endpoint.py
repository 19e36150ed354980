"""Clusters, as the options name them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spark_connector.options import Options

if TYPE_CHECKING:
    from sirius.transport.client import Client


def client_of(options: Options) -> Client:
    """Return a client of the nodes at `endpoint`. gRPC is loaded here, and only here."""
    from sirius.transport.client import Client
    from sirius.transport.security import Plaintext, Tls, TlsSettings

    if options.tls_ca and options.tls_cert and options.tls_key:
        settings = TlsSettings(
            Path(options.tls_cert), Path(options.tls_key), Path(options.tls_ca), roles={}
        )
        return Client(options.endpoint, Tls(settings))
    return Client(options.endpoint, Plaintext(options.allow_plaintext))
