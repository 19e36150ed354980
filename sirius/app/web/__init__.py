"""A small HTTP/1.1 server on asyncio: what the reference application needs, and no more."""

from sirius.app.web.messages import Refused, Request, Response
from sirius.app.web.server import WebLimits, WebServer

__all__ = ["Refused", "Request", "Response", "WebLimits", "WebServer"]
