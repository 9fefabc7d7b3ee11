"""Connections that a client could not make for want of a way to the host: no route, no answer, no address of its name.

A refused connection is none of these: that host answers, and nobody listens there.
"""

import re

NO_WAY = r"No route to host|Network is (?:unreachable|down)|Connection timed out|Host is (?:down|unreachable)"

_NO_WAY = re.compile(rf"{NO_WAY}|ConnectTimeout|Failed to connect to remote host: Timeout occurred")
_NO_ADDRESS = re.compile(r"Failed to resolve '(?P<name>[\w.-]+)'")
_HOST = re.compile(  # in the words of urllib3, of gRPC and of clients of Redis
    r"(?:\bhost='|\bipv[46]:|\bconnecting to )(?P<host>[\w.-]+)"
)


def not_reached(error: str) -> str:
    """Return which host a client could not reach and why, by the error with which it gave up; "" for another error."""
    if unknown := _NO_ADDRESS.search(error):
        return no_address(unknown["name"])
    why = _NO_WAY.search(error)
    if why is None:
        return ""
    host = _HOST.search(error)
    said = why[0] if re.fullmatch(NO_WAY, why[0]) else "no answer to the connection"
    return f"host {host['host'] if host else 'of another process'} cannot be reached: {said}"


def no_address(name: str) -> str:
    """Return in words that the name of a host leads nowhere."""
    return f"the name {name} has no address (DNS)"
