"""Debian's Chromium, driven over its debugging pipe with nothing but the standard library."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time


def program():
    """Chromium's path; the test is skipped where it is not installed."""
    for name in ("chromium", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    print("skipped: there is no chromium")
    sys.exit(77)


class Chromium:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="redline-chromium-")
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()

        def place():  # the pipe is descriptors 3 and 4
            os.dup2(to_read, 100)
            os.dup2(from_write, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)

        arguments = [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--remote-debugging-pipe", "--no-first-run", "--hide-scrollbars", f"--user-data-dir={self.profile}", "about:blank"]
        with open(os.path.join(self.profile, "log"), "wb") as log:
            self.process = subprocess.Popen(arguments, preexec_fn=place, close_fds=False, stdout=log, stderr=log)
        os.close(to_read)
        os.close(from_write)
        self.out, self.into = to_write, from_read
        self.buffer, self.number, self.events = b"", 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.into], [], [], max(0, deadline - time.monotonic()))
            assert ready, "chromium does not answer"
            chunk = os.read(self.into, 1 << 20)
            assert chunk, "chromium has ended"
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, seconds=60, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        deadline = time.monotonic() + seconds
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def open(self, url, width=1280, height=900, dark=False, seconds=60):
        """A page, loaded; what it complained about is in complaints()."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, target, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(domain + ".enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.call("Page.navigate", url=url)
        deadline = time.monotonic() + seconds
        while page.js("document.readyState") != "complete" or page.js("location.href") == "about:blank":
            assert time.monotonic() < deadline, f"{url} does not load"
            time.sleep(0.05)
        return page


class Page:
    def __init__(self, browser, target, session):
        self.browser, self.target, self.session = browser, target, session

    def call(self, method, **parameters):
        return self.browser.call(method, session=self.session, **parameters)

    def js(self, expression):
        """The value of an expression, awaited when it is a promise."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, f"{expression}: {done['exceptionDetails']}"
        return done["result"].get("value")

    def wait(self, expression, seconds=20):
        deadline = time.monotonic() + seconds
        while not self.js(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.1)

    def complaints(self):
        """Errors, warnings, refused scripts and dialogs, and every request that left the page."""
        self.js("1")  # what came before this answer has arrived
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, data = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                details = data["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif method == "Runtime.consoleAPICalled" and data["type"] in ("error", "warning", "assert"):
                found.append(str(data["args"]))
            elif method == "Log.entryAdded" and data["entry"]["level"] in ("error", "warning"):
                found.append(data["entry"]["text"])
            elif method == "Page.javascriptDialogOpening":
                found.append("dialog: " + data["message"])
        return found

    def requests(self):
        self.js("1")
        return [event["params"]["request"]["url"] for event in self.browser.events
                if event.get("sessionId") == self.session and event["method"] == "Network.requestWillBeSent"]

    def drag(self, x1, x2, y):
        for kind, x in (("mousePressed", x1), ("mouseMoved", (x1 + x2) / 2), ("mouseMoved", x2), ("mouseReleased", x2)):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def key(self, key):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def resize(self, width, height):
        """Another screen; what it changes is drawn when this returns."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 100))))")

    def screenshot(self, file):
        """The whole page, which is first made to fit the screen: charts are drawn again for one that grows."""
        width, height, whole = self.js("[innerWidth, innerHeight, Math.min(16000, document.documentElement.scrollHeight)]")
        self.resize(width, whole)
        data = self.call("Page.captureScreenshot", format="png")["data"]
        self.resize(width, height)
        with open(file, "wb") as out:
            out.write(base64.b64decode(data))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
