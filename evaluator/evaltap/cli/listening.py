"""The address and the socket on which a command's server listens."""

import socket
import ssl
from pathlib import Path

from evaltap.cli.options.shared import TlsOptions
from evaltap.schemas.errors import InputError


def tls_context(options: TlsOptions) -> ssl.SSLContext | None:
    """Return a server's TLS context, None without a certificate; raise InputError for bad files."""
    certificate, key = options.tls_cert, options.tls_key
    if (certificate is None) != (key is None):
        raise InputError("--tls-cert and --tls-key: one is missing; give both")
    if certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:  # ssl's errors are both
        raise InputError(
            f"--tls-cert, --tls-key: cannot load them ({error}); expected PEM files that belong together"
        ) from None
    return context


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise InputError when the address cannot be used.

    From now on connections are queued, not refused, even while the server is still starting.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on {host}:{port} ({reason}); choose another port"
        ) from None
    return listener


def listening_at(path: Path) -> socket.socket:
    """Return a Unix socket that only this user can reach; raise InputError if it cannot be created."""
    if not hasattr(socket, "AF_UNIX"):  # Windows
        raise InputError("this system has no Unix sockets; use --port in place of --socket")
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise InputError(
                    f"{path}: another process is listening on this socket; choose another path"
                )
        path.unlink()  # left by a process that was killed
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen on {path} ({error.strerror or error}); choose another path"
        ) from None
    return listener
