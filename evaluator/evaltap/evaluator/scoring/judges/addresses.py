"""Where a request goes: the server's URL, the proxy, and the trusted certificates."""

import re
import ssl
from base64 import b64encode
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from evaltap.schemas.errors import ConfigurationError


def http_url(text: str) -> SplitResult:
    """Return a server's URL; raises ConfigurationError if the text is not one."""
    try:
        url = urlsplit(text.strip())
        _ = url.port  # raises for one that is no number
    except ValueError as error:
        raise ConfigurationError(
            f"'{text}' is not a URL ({error}); expected http(s)://host"
        ) from None
    # The parser takes any text as a host, but `http.client` raises for these at the first request.
    is_host = bool(url.hostname) and not re.search(r"[\x00-\x20\x7f]", url.netloc)
    if url.scheme not in ("http", "https") or not is_host:
        raise ConfigurationError(
            f"'{text}' is not the URL of a server; expected http(s)://host/path"
        )
    return url


def proxy_of(base: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment sets for a server, if any.

    Raises ConfigurationError for a proxy that is not http://.
    """
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
    """Return the headers that authenticate with a proxy."""
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
