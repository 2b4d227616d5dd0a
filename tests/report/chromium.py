"""A page in headless Chromium, over the DevTools protocol on a pipe: no driver to install."""

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

BINARY = shutil.which("chromium") or shutil.which("google-chrome")
DEMO = Path(__file__).parents[2] / "results/demo/report.html"
"""The page of a finished demo, where there is one: held to the same budgets."""
SLOW = 3
"""How much longer a loaded machine may take than a reader's."""
_PROBES = Path(__file__).with_name("probes.js").read_text(encoding="utf-8")
_NOISE = ("Page.javascriptDialogOpening", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
_NOISE += ("Log.entryAdded", "Network.requestWillBeSent")


class Page:
    """One page. `heard` has the events of dialogs, requests, console and exceptions."""

    def __init__(self, to_browser: BinaryIO, from_browser: BinaryIO) -> None:
        self._to, self._from = to_browser, from_browser
        self._number = 0
        self._session: str | None = None
        self.heard: list[tuple[str, dict[str, Any]]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return dict(found["result"])

    def open(self, file: Path) -> float:
        """Load a file; return seconds until its first view is painted, by the browser's clock."""
        self.heard.clear()
        self.call("Page.navigate", url=file.as_uri())
        painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        end = time.monotonic() + 300
        while time.monotonic() < end:
            if self.run("document.readyState === 'complete'") and (at := self.run(painted)):
                return float(at) / 1000
            time.sleep(0.02)
        raise AssertionError(f"{file} was not painted")

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def ask(self, expression: str) -> Any:
        """Return the value of an expression of `probes.js`."""
        return self.run(f"{{ {_PROBES}\n{expression} }}")

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, by their names in the DOM."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        codes |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        for key in keys:
            event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
            text = {"text": "\r"} if key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        """Set the size of the window, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def prefer(self, scheme: str, media: str = "") -> None:
        """Prefer light or dark, on screen or in print."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature], media=media)

    def script(self, *, on: bool) -> None:
        """Turn the page's own scripts on or off, from the next page on."""
        self.call("Emulation.setScriptExecutionDisabled", value=not on)

    def sheets(self) -> int:
        """Return how many sheets of A4 the page prints on."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        pdf = base64.b64decode(self.call("Page.printToPDF", **size)["data"])
        return len(re.findall(rb"/Type\s*/Page\b", pdf))

    def screenshot(self, file: Path) -> None:
        """Save what is in view as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def complaints(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what a page must not do: dialogs, console messages, errors, requests."""
        return [
            (method, event)
            for method, event in self.heard
            if method in _NOISE
            and not event.get("request", {}).get("url", "").startswith(("file:", "data:"))
        ]

    def _receive(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "Chromium has gone"
            data += byte
        message = json.loads(data)
        if "method" in message:
            self.heard.append((message["method"], message["params"]))
        return dict(message)


@contextmanager
def page(profile: Path) -> Iterator[Page]:
    """Start Chromium and yield a page."""
    assert BINARY is not None
    to_browser, from_browser = os.pipe(), os.pipe()
    command = [BINARY, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--disable-background-networking", "--no-first-run", "--remote-debugging-pipe"]
    command += [f"--user-data-dir={profile}", "about:blank"]
    # Chromium reads commands on descriptor 3 and answers on 4.
    redirect = f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
    process = subprocess.Popen(
        ["bash", "-c", redirect, "bash", *command],
        pass_fds=(to_browser[0], from_browser[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser[0])
    os.close(from_browser[1])
    try:
        with os.fdopen(to_browser[1], "wb") as writer, os.fdopen(from_browser[0], "rb") as reader:
            try:
                yield Page(writer, reader)
            finally:
                process.terminate()
    finally:
        process.wait(timeout=300)
