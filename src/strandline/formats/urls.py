"""Judge URLs and header names of HTTP services: what may be shown, and what must be sent encrypted."""

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

_SECRET_WORDS: Final = ("authorization", "cookie", "token", "secret", "password", "key")
_TOKEN: Final = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[\w.~%-]{16,}|[\w.~%-]{32,}")
"""A segment of a path that is long enough to be a token."""


def names_secret(header: str) -> bool:
    """Whether a header of this name usually holds a secret."""
    return any(word in header.lower() for word in _SECRET_WORDS)


def shown_url(url: str) -> str:
    """Return a URL for messages: without query, user and password, and with `***` for tokens in its path."""
    parts = urlsplit(url)
    path = "/".join("***" if _TOKEN.fullmatch(each) else each for each in parts.path.split("/"))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
