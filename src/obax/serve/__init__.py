"""`obax serve` and `obax watch`: models over HTTP, and pages that follow them, runs and streams.

`page` writes and reads what a page shows, for jobs of either half of the library; it needs nothing
but NumPy. The other modules need the extra `serve`.
"""
