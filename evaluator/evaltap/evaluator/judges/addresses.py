"""Where a request goes: the address of a server, the proxy on the way, and whom TLS trusts."""

import ssl
from base64 import b64encode
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from evaltap.schemas.errors import ConfigurationError


def http_url(text: str) -> SplitResult:
    """Return the URL of a server; raises ConfigurationError for what is none."""
    try:
        url = urlsplit(text.strip())
        _ = url.port  # raises for one that is no number
    except ValueError as error:
        raise ConfigurationError(
            f"'{text}' is not a URL ({error}); expected http(s)://host"
        ) from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigurationError(
            f"'{text}' is not the URL of a server; expected http(s)://host/path"
        )
    return url


def proxy_of(base: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment names for a server, if any; raises ConfigurationError."""
    host = base.hostname or ""
    if proxy_bypass(host if base.port is None else f"{host}:{base.port}"):
        return None
    proxies = getproxies()
    found = proxies.get(base.scheme) or proxies.get("all")
    if not found:
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ConfigurationError(
            f"the proxy for {base.scheme}://{host} is {proxy.scheme}://{proxy.hostname}; expected"
            " http://host:port (or name the judge in NO_PROXY)"
        )
    return proxy


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    """Return what logs in to a proxy."""
    if proxy.username is None:
        return {}
    given = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(given.encode()).decode()}"}


def tls_context() -> ssl.SSLContext:
    """Return a context that trusts what the system trusts, where Python itself knows no authority."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        try:
            import truststore
        except ImportError:
            return context
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return context
