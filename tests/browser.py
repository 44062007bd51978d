"""A real browser for tests: headless Chromium, spoken to through its own pipe, so that nothing has
to be installed for it and no port is opened."""

import base64
import collections
import contextlib
import json
import os
import select
import shutil
import subprocess
import time

FOUND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
QUIET = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"]
QUIET += ["disable-background-networking", "disable-component-update", "remote-debugging-pipe"]


class Page:
    """One page; `problems` are errors, warnings and requests refused, as its console has them."""

    def __init__(self, send, read):
        self._send, self._read = send, read
        self._number, self._buffer, self.problems = 0, b"", []
        self._answers = collections.deque()
        target = self.ask("Target.createTarget", session=None, url="about:blank")["targetId"]
        self._session = self.ask(
            "Target.attachToTarget", session=None, targetId=target, flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.ask(f"{domain}.enable")

    def ask(self, method, session="own", seconds=60.0, **parameters):
        """A command of the DevTools protocol; its result."""
        self._number += 1
        words = {"id": self._number, "method": method, "params": parameters}
        if session == "own":
            words["sessionId"] = self._session
        os.write(self._send, json.dumps(words).encode() + b"\0")
        until = time.monotonic() + seconds
        while True:
            message = self._next(until, method)
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                return message["result"]

    def _next(self, until, waiting):
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"the browser does not answer: {waiting}")
            self._buffer += os.read(self._read, 1 << 20)
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        self._note(message)
        return message

    def _note(self, message):
        what, of = message.get("method"), message.get("params", {})
        if what == "Runtime.exceptionThrown":
            self.problems.append(of["exceptionDetails"].get("text", "exception"))
        elif what == "Log.entryAdded" and of["entry"]["level"] in ("error", "warning"):
            self.problems.append(of["entry"]["text"])
        elif what == "Runtime.consoleAPICalled" and of["type"] in ("error", "warning", "assert"):
            self.problems.append(str([one.get("value") for one in of["args"]]))

    def open(self, address, width=1440, height=900, dark=False):
        """Show an address at this width, by day or by night."""
        phone = width < 600
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def run(self, script):
        """The value of an expression of the page."""
        found = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wider(self, width):
        """Whether the page is wider than that. A phone's window grows with what is too wide."""
        return self.run("Math.max(document.documentElement.scrollWidth, innerWidth)") > width

    def until(self, script, seconds=30.0):
        """Wait until an expression holds."""
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"never came true: {script}"
            time.sleep(0.1)

    def press(self, key):
        """A key of the keyboard: Tab or Enter."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                     windowsVirtualKeyCode=code, **(text if kind == "keyDown" else {}))  # fmt: skip

    def named(self, *roles):
        """What a screen reader is told: the names of all nodes of these roles."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [
            node.get("name", {}).get("value", "")
            for node in nodes
            if not node.get("ignored") and node.get("role", {}).get("value") in roles
        ]

    def picture(self, file, whole=True):
        """A screenshot of the page, all of it unless told otherwise."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def browser(profile):
    """A page of a browser that ends with the block; `profile` is an empty folder."""
    there, send = os.pipe()
    read, back = os.pipe()
    # It reads from 3 and writes to 4.
    shell = f'exec "$0" "$@" 3<&{there} 4>&{back}'
    flags = [f"--{flag}" for flag in [*QUIET, f"user-data-dir={profile}"]]
    process = subprocess.Popen(
        ["bash", "-c", shell, FOUND, *flags, "about:blank"],
        pass_fds=(there, back),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(there)
    os.close(back)
    try:
        yield Page(send, read)
    finally:
        process.terminate()
        process.wait(30)
        os.close(send)
        os.close(read)
