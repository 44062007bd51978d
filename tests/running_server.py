"""A server of `obax serve` or `obax watch` for tests, in a thread of this process."""

import threading
import time
from contextlib import contextmanager

import httpx

from obax.serve.run import listen, server


@contextmanager
def running(application, stop):
    """Yield a client of a server that runs this application."""
    listener = listen("127.0.0.1", 0)
    process = server(application, stop)
    thread = threading.Thread(target=process.run, kwargs={"sockets": [listener]})
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        while not process.started and thread.is_alive():
            time.sleep(0.01)
        with httpx.Client(base_url=address, timeout=20) as client:
            yield client
    finally:
        process.should_exit = True
        thread.join()
