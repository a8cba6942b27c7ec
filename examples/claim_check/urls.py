"""Web addresses: is it one, and do two of them mean the same page?"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, unquote, urlencode, urljoin, urlsplit

# Parameters that say where a visitor came from. The page is the same without them.
TRACKING = re.compile(r"utm_\w+|gclid|dclid|fbclid|msclkid|yclid|twclid|igshid|mc_cid|mc_eid|_hsenc|_hsmi|ref_src")
DEFAULT_PORTS = {"http": 80, "https": 443}


def is_web_address(url: str) -> bool:
    """An http or https URL with a host, and no space or control character anywhere."""
    if not re.fullmatch(r"https?://[^\s\x00-\x1f\x7f]+", url, re.IGNORECASE):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a broken IPv6 address, or a port that is no number
        return False


def canonical(url: str) -> str:
    """The one spelling of this web address: equal for addresses that differ in letter case of the host, default port,
    `.` and `..`, percent-encoding, order of the parameters, tracking parameters or fragment."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    host = _host(parts.hostname or "")
    port = "" if parts.port in (None, DEFAULT_PORTS.get(scheme)) else f":{parts.port}"
    origin = f"{scheme}://{host}{port}"
    # `urljoin` resolves the dots, and does so before the escapes are undone: `%2e%2e` is a name to every server.
    path = urlsplit(urljoin(f"{origin}/", parts.path or "/")).path
    kept = sorted(pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not TRACKING.fullmatch(pair[0]))
    return origin + _escaped(path) + (f"?{urlencode(kept)}" if kept else "")


def _host(name: str) -> str:
    name = name.rstrip(".")
    if ":" in name:
        return f"[{name}]"
    try:
        plain = name.encode("idna").decode("ascii")
    except UnicodeError:
        return name
    return plain if re.fullmatch(r"[\w.-]+", plain) else name


def _escaped(path: str) -> str:
    """Escape what must be, and nothing else. An escaped slash is not a slash, so it stays as it is."""
    parts = re.split("(%2[fF])", path)
    return "".join(part.upper() if part[:1] == "%" else quote(unquote(part), safe="/~!$&'()*+,;=:@") for part in parts)
