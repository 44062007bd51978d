"""`obax watch`: a page on this machine that follows a running job or stream."""

from .server import serve as serve
