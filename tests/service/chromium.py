"""A real Chromium without a window, driven over the DevTools protocol through a pair of pipes."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

_WHERE = ("chromium", "chromium-browser", "google-chrome")


def find_chromium():
    """Its path; a test that needs it fails where it is not installed, and says what to install."""
    for name in _WHERE:
        if found := shutil.which(name):
            return found
    raise AssertionError("no Chromium on PATH: install the Debian package 'chromium'")


class Chromium:
    """One browser with one page. Commands and events are NUL-ended JSON on file descriptors 3 and 4."""

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
        # The shell moves our ends to the numbers that Chromium wants.
        moved = f'exec 3<&{to_read} 4>&{to_write}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", moved, "chromium", find_chromium(), *flags, "about:blank"],
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
            assert part, "Chromium has ended or hangs"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def run(self, expression):
        """The value of a JavaScript expression, awaited."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression, seconds=30.0):
        """Until the expression is true; its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run(expression)
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"never true: {expression}\n{self.run('document.body.innerText')}\n{self.complaints()}"
                )
            time.sleep(0.1)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def look(self, *, width, dark=False, height=900):
        """The size of the window, a phone's below 600, and the colour scheme asked for."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path):
        """The whole page as a PNG file."""
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

    def complaints(self):
        """What the console and the browser's own log have to say: refused by a policy, errors, exceptions."""
        self.run("1")
        said = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                said.append(params["entry"]["text"])
            elif event.get("method") == "Runtime.exceptionThrown":
                said.append(str(params["exceptionDetails"].get("exception", params)))
            elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                said.append(str([one.get("value") or one.get("description") for one in params["args"]]))
        return said

    def requests(self):
        """The addresses of everything that was fetched."""
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
