"""A page on this machine that follows a running job or stream, for `obax watch`."""

from .server import serve as serve
