"""A headless Chromium browser, controlled with the DevTools protocol through a pair of pipes."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium():
    """Return the path of the browser. A test that needs it fails if it is not installed."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    raise AssertionError("Chromium is not installed. Install the Debian package 'chromium'.")


class Chromium:
    """A browser with one page. Commands and events are NUL-terminated JSON on file descriptors 3 and 4."""

    def __init__(self, folder: Path):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        flags = [
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
            "--no-first-run",
            "--disable-gpu",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-dev-shm-usage",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        # The shell moves the ends of our pipes to the file descriptors that Chromium uses.
        redirect = f'exec 3<&{to_read} 4>&{to_write}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", redirect, "chromium", find_chromium(), *flags, "about:blank"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        self.events = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)
        raise AssertionError(f"Chromium did not answer {method}")

    def _next(self, deadline):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._read, 1 << 20) if ready else b""
            assert part, "Chromium has ended or does not answer"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def run(self, expression):
        """Return the value of a JavaScript expression. A promise is awaited."""
        reply = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait_for(self, expression, seconds=30.0):
        """Wait until the expression is true, and return its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run(expression)
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"never true: {expression}\n{self.run('document.body.innerText')}\n{self.console_errors()}"
                )
            time.sleep(0.1)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def set_display(self, *, width, dark=False, height=900):
        """Set the size of the window and the colour scheme. A window narrower than 600 pixels is a phone."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path):
        """Save the whole page as a PNG file."""
        picture = self.send("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(picture["data"]))

    def press(self, key, code=None):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=code or key,
                windowsVirtualKeyCode=codes.get(key, 0),
                **text,
            )

    def console_errors(self):
        """Return the errors and warnings of the console, including violations of the content security policy."""
        self.run("1")
        errors = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                errors.append(params["entry"]["text"])
            elif event.get("method") == "Runtime.exceptionThrown":
                errors.append(str(params["exceptionDetails"].get("exception", params)))
            elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                errors.append(str([one.get("value") or one.get("description") for one in params["args"]]))
        return errors

    def requests(self):
        """Return the URLs of all requests of the page."""
        self.run("1")
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def close(self):
        try:
            self.send("Browser.close")
            self._process.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
