"""Jobs over HTTP. The server (extra `web`): `routes.py` has the table of all routes, start there. The clients (extra
`client`): `client.py`, and what they ask and understand in `requests.py`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.http.client import AsyncClient, Client
    from holdfast.http.documents import ErrorDocument, JobStatus, ProgressDocument, Submitted

__all__ = ["AsyncClient", "Client", "ErrorDocument", "JobStatus", "ProgressDocument", "Submitted"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imported when it is first asked for: the server needs none of them, and a client nothing of the server."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = import_module(f"{__name__}.{'client' if name.endswith('Client') else 'documents'}")
        return getattr(home, name)
