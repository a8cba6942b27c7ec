"""Names and addresses of hosts, as servers meet them."""

from __future__ import annotations

import ipaddress


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(header: str) -> str:
    """The name in a Host header, without the port."""
    return header.rpartition("]")[0] + "]" if header.startswith("[") else header.partition(":")[0].lower()
