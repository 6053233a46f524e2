"""Check addresses for alerts: https anywhere, http only within this machine and allowed networks."""

import ipaddress
from urllib.parse import SplitResult


def address_problem(parts: SplitResult, *, private: bool) -> str:
    """Return the problem with a receiver's address, without revealing it; empty if there is none."""
    host = host_of(parts)
    if not host or parts.scheme not in ("http", "https") or parts.username is not None:
        return (
            "the address is invalid or contains a password; expected https://host/path, with"
            " secrets in `headers` as ${NAME}"
        )
    if parts.scheme == "http" and not (private or is_local(host)):
        return (
            "the address is http, which anybody on the way reads; expected https, or `allowPrivate`"
            " for a host in your own network"
        )
    if parts.scheme == "http" and address_is(host, "is_global"):
        return "the address is http, and its host is not in a private network; expected https"
    return ""


def host_of(parts: SplitResult) -> str:
    """Return the host of an address; empty if it has none."""
    return (parts.hostname or "").rstrip(".")


def is_local(host: str) -> bool:
    """Return whether a host name means this machine."""
    return host == "localhost" or address_is(host, "is_loopback")


def address_is(address: str, what: str) -> bool:
    """Return a property of an IP address; False for text that is not an IP address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return bool(getattr(mapped or found, what))
