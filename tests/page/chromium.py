"""A page in headless Chromium, over the DevTools protocol on a pipe: no driver to install."""

import json
import shutil
from pathlib import Path

from processes import wait_until

BINARY = shutil.which("chromium") or shutil.which("google-chrome")
DEMO = Path(__file__).parents[2] / "results/demo/report.html"
"""The page of a finished demo, where there is one: held to the same budgets."""
_PROBES = Path(__file__).with_name("probes.js").read_text(encoding="utf-8")
_NOISE = ("Page.javascriptDialogOpening", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
_NOISE += ("Log.entryAdded", "Network.requestWillBeSent")


class Page:
    """One page. `heard` has the events of dialogs, requests, console and exceptions."""

    def __init__(self, to_browser, from_browser):
        self._to, self._from = to_browser, from_browser
        self._number = 0
        self._session, self.heard = None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while True:
            data = bytearray()
            while (byte := self._from.read(1)) != b"\0":
                assert byte, "Chromium has gone"
                data += byte
            found = json.loads(data)
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            self.heard.append((found["method"], found["params"]))

    def open(self, file):
        """Load a file and wait until its first view is painted."""
        self.heard.clear()
        self.call("Page.navigate", url=file.as_uri())
        painted = "performance.getEntriesByName('first-contentful-paint').length"
        wait_until(lambda: self.run(f"document.readyState === 'complete' && {painted}"))

    def run(self, expression):
        """Return the value of a JavaScript expression; a promise is awaited."""
        how = {"returnByValue": True, "awaitPromise": True}
        found = self.call("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def ask(self, expression):
        """Return the value of an expression of `probes.js`."""
        return self.run(f"{{ {_PROBES}\n{expression} }}")

    def click(self, selector):
        """Click the first element of a selector, and wait for what comes of it."""
        self.run(f'document.querySelector("{selector}").click()')
        self.wait()

    def wait(self):
        self.run("new Promise((done) => setTimeout(done, 50))")

    def wait_for(self, expression):
        """Wait until an expression of `probes.js` holds."""
        wait_until(lambda: self.ask(expression))

    def press(self, *keys, modifiers=0):
        """Press keys, one after the other, by their names in the DOM.

        Of the modifiers Alt counts 1, Control 2, Meta 4.
        """
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        codes |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        for key in keys:
            event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
            event |= {"modifiers": modifiers}
            text = {"text": "\r"} if key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def resize(self, width, height, *, phone=False):
        size = {"width": width, "height": height, "deviceScaleFactor": 1 + phone, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme, media=""):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature], media=media)

    def complaints(self):
        """Return what a page must not do: dialogs, console messages, errors, requests."""
        noise = [(name, event.get("request", {})) for name, event in self.heard if name in _NOISE]
        own = ("file:", "data:")
        return [one for one in noise if not one[1].get("url", "").startswith(own)]
