"""Which addresses are of the public Internet: what a stranger names may lead to no other."""

from __future__ import annotations

import ipaddress

# IANA's special-purpose registries, written out: what `ipaddress` calls private differs between versions of Python.
NOT_PUBLIC = [
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
    )
]  # fmt: skip
# All else of IPv6 is local, reserved, or an IPv4 address in disguise.
PUBLIC_IPV6 = ipaddress.ip_network("2000::/3")


def is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    if ip.version == 6 and ip not in PUBLIC_IPV6:
        return False
    return not any(ip in network for network in NOT_PUBLIC)
