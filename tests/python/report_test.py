"""Reports in a browser: they load with no complaint, draw every chart, zoom, sort, compare, and run nothing hostile.

Screenshots are left in $REDLINE_SCREENSHOTS where that is set."""

import os
import signal
import subprocess
import time

from chromium import Chromium
from helper import redline, scratch
from make_run import HOSTILE, make_run

DRAWN = """[...document.querySelectorAll('figure canvas')].filter((canvas) => {
  const blank = document.createElement('canvas');
  [blank.width, blank.height] = [canvas.width, canvas.height];
  return canvas.toDataURL() !== blank.toDataURL();
}).length"""


def look(page, name):
    folder = os.environ.get("REDLINE_SCREENSHOTS")
    if folder:
        page.screenshot(os.path.join(folder, name + ".png"))


def all_drawn(page, least):
    count = page.js("document.querySelectorAll('figure').length")
    assert count >= least, f"{count} charts"
    page.wait(f"{DRAWN} === {count}")
    assert page.complaints() == [], page.complaints()


def range_of(page, chart):
    return page.js(f"(() => {{ const x = cards.get('{chart}').chart.scales.x; return [x.min, x.max]; }})()")


def one_run(browser, folder):
    make_run(f"{folder}/first", 3000)
    redline("report", f"{folder}/first")
    size = os.path.getsize(f"{folder}/first/report.html")
    assert size < 1_000_000, f"{size} bytes"
    page = browser.open(f"file://{folder}/first/report.html")
    all_drawn(page, 15)
    assert page.requests() == [f"file://{folder}/first/report.html"], page.requests()
    assert page.js("document.querySelector('#profile-0-cores').textContent").count("61.25 %") == 1
    look(page, "light")
    for_everyone(page)
    zooming(page)
    assert page.js("spoken.textContent") == "Loss: everything"
    sorting(page)
    page.js("document.querySelector('.tools button').click()")
    assert page.js("document.documentElement.dataset.theme") == "dark"
    all_drawn(page, 15)
    assert page.js(FAINT) == [], page.js(FAINT)
    printing(page)
    page.close()


# Of text that is seen, what stands out less from what is behind it than WCAG's 4.5 (3 for large text).
FAINT = """(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0.05);
  const behind = (node) => { for (; node; node = node.parentElement) { const c = numbers(getComputedStyle(node).backgroundColor); if (c[3] !== 0) return c; } return [255, 255, 255]; };
  return [...document.querySelectorAll('body *')].filter((node) => node.getClientRects().length && [...node.childNodes].some((part) => part.nodeType === 3 && part.textContent.trim()))
    .filter((node) => {
      const style = getComputedStyle(node), [a, b] = [light(numbers(style.color)), light(behind(node))].sort((x, y) => y - x);
      return a / b < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5);
    }).map((node) => node.tagName + '.' + node.className + ': ' + node.textContent.slice(0, 30));
})()"""
NAMED = {"button", "link", "image", "figure", "table", "region", "navigation", "heading", "DisclosureTriangle"}


def for_everyone(page):
    """Screen readers get names and an outline, keyboards a visible place, eyes enough contrast."""
    nodes = [node for node in page.call("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]
    role = lambda node: node["role"]["value"]  # noqa: E731
    name = lambda node: node.get("name", {}).get("value", "")  # noqa: E731
    nameless = [role(node) for node in nodes if role(node) in NAMED and not name(node).strip()]
    assert not nameless, nameless
    levels = [next(p["value"]["value"] for p in node["properties"] if p["name"] == "level") for node in nodes if role(node) == "heading"]
    assert levels[0] == 1 and all(b <= a + 1 for a, b in zip(levels, levels[1:])), levels
    images = [name(node) for node in nodes if role(node) == "image"]
    assert len(images) == page.js("cards.size") and all(" values from " in text for text in images), images
    zooms = [name(node) for node in nodes if role(node) == "button" and name(node).startswith("Zoom in")]
    assert len(set(zooms)) == len(images), "each control says which chart is its own"
    assert page.js(FAINT) == [], page.js(FAINT)
    for expected in ("To the report", "Learning"):
        page.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        page.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        assert page.js("document.activeElement.textContent") == expected
        assert page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def printing(page):
    """On paper, charts are as wide as their place and nothing is there to click."""
    page.call("Emulation.setEmulatedMedia", media="print")
    page.call("Emulation.setDeviceMetricsOverride", width=720, height=1000, deviceScaleFactor=1, mobile=False)
    page.js("dispatchEvent(new Event('beforeprint'))")
    wide = page.js("""[...document.querySelectorAll('figure')].filter((figure) => figure.querySelector('canvas').getBoundingClientRect().right > figure.getBoundingClientRect().right)
        .map((figure) => figure.id)""")
    assert wide == [], wide
    assert page.js("document.documentElement.scrollWidth") <= 720
    assert page.js("[...document.querySelectorAll('button')].filter((b) => b.getClientRects().length && !b.closest('th')).length") == 0
    look(page, "print")
    page.js("dispatchEvent(new Event('afterprint'))")


def zooming(page):
    whole = range_of(page, "loss")
    assert whole == [1, 3000], whole
    box = page.js("(() => { const r = cards.get('loss').canvas.getBoundingClientRect(); return [r.left, r.right, (r.top + r.bottom) / 2]; })()")
    page.drag(box[0] + 0.4 * (box[1] - box[0]), box[0] + 0.6 * (box[1] - box[0]), box[2])
    low, high = range_of(page, "loss")
    assert 600 < low < 1500 < high < 2200, (low, high)
    assert range_of(page, "seconds") == [low, high], "charts over the same axis follow"
    page.js("cards.get('loss').canvas.focus()")
    page.key("+")
    closer = range_of(page, "loss")
    assert closer[1] - closer[0] < 0.6 * (high - low), closer
    page.key("0")
    assert range_of(page, "loss") == whole
    page.js("[...cards.get('loss').bar.querySelectorAll('button')].find((b) => b.textContent === 'log').click()")
    assert page.js("cards.get('loss').chart.scales.y.type") == "logarithmic"
    page.js("cards.get('loss').data.open = true")
    page.wait("cards.get('loss').data.querySelectorAll('tbody tr').length > 50")


def sorting(page):
    first = "document.querySelector('#evaluations tbody td').textContent"
    button = "[...document.querySelectorAll('#evaluations th button')].find((b) => b.textContent === 'top-1')"
    assert page.js(first) == "750"
    page.js(button + ".click()")
    assert page.js(first) == "3,000" and page.js(button + ".parentNode.getAttribute('aria-sort')") == "descending"
    page.js(button + ".click()")
    assert page.js(first) == "750"


def several_runs(browser, folder):
    make_run(f"{folder}/second", 2000, speed=1.04, seed=1, ranks=4)
    redline("report", f"{folder}/first", f"{folder}/second", "-o", f"{folder}/both.html")
    page = browser.open(f"file://{folder}/both.html", dark=True)
    all_drawn(page, 15)
    row = page.js("[...document.querySelectorAll('#changes tbody tr')].find((r) => r.textContent.startsWith('images per second')).textContent")
    assert "better" in row and "+3." in row or "+4." in row, row
    assert page.js("document.querySelector('#differences').textContent").count("run.seed") == 1
    assert page.js("cards.get('loss').chart.data.datasets.length") == 6
    assert page.js("document.querySelectorAll('#slowest tbody tr').length") == 4
    assert page.js("cards.get('scaling').figure.isConnected")
    assert page.js("[...document.querySelectorAll('#devices tbody tr')].map((row) => row.children[2].textContent)") == ["node0", "node0", "node0", "node1", "node1"]
    look(page, "dark")
    page.close()


def narrow(browser, folder):
    page = browser.open(f"file://{folder}/first/report.html", width=390, height=800)
    all_drawn(page, 15)
    assert page.js("document.documentElement.scrollWidth") <= 390, "it scrolls sideways"
    look(page, "narrow")
    page.close()


def hostile(browser, folder):
    """Everything that a run can say about itself, said by an enemy."""
    name = HOSTILE[:120].replace("/", "_")
    make_run(f"{folder}/{name}", 200, name=HOSTILE, hostile=True)
    redline("report", f"{folder}/{name}", "-o", f"{folder}/hostile.html")
    page = browser.open(f"file://{folder}/hostile.html")
    all_drawn(page, 15)
    assert page.js("document.querySelectorAll('img, iframe, object, [onerror], [onclick]').length") == 0
    assert page.js("document.querySelectorAll('script').length") == 3
    assert HOSTILE.split()[0] in page.js("document.querySelector('h1').textContent")
    assert page.js("document.documentElement.scrollWidth") <= 1280, "it scrolls sideways"
    look(page, "hostile")
    page.close()


def live(browser, folder):
    """A page that follows a run, while it goes on."""
    make_run(f"{folder}/growing", 100, end=False, telemetry=False, profile=False)
    server = subprocess.Popen([os.environ["REDLINE"], "report", "--live", f"{folder}/growing", "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[1]
        page = browser.open(url)
        page.wait("document.querySelector('[role=status]').textContent.startsWith('live')")
        assert range_of(page, "loss") == [1, 100]
        with open(f"{folder}/growing/metrics.jsonl", "a", encoding="utf-8") as out:
            out.write('{"kind":"step","step":101,"loss":1.0,"samples":256,"seconds":0.06,"data_seconds":0,"elapsed":9}\n')
        page.wait("cards.get('loss').chart.scales.x.max === 101")
        assert page.complaints() == [], page.complaints()
        page.close()
    finally:
        server.send_signal(signal.SIGINT)
        begun = time.monotonic()
        code = server.wait(20)
    assert code == 0 and time.monotonic() - begun < 5, code


def variability(browser, folder):
    with open(f"{folder}/study.csv", "w", encoding="utf-8") as out:
        out.write("device,node,cabinet,median_s,clock_mhz,temperature_c,power_w\n")
        for device in range(12):
            for repeat in range(3):
                time_ms = (130 if device == 7 else 100 + device / 4) + repeat / 10
                out.write(f"gpu{device},node{device // 4},c{device // 6},{time_ms / 1000},{2000 - 3 * time_ms},{50 + device},{300 + repeat}\n")
    redline("variability", f"{folder}/study.csv", "-o", f"{folder}/study")
    page = browser.open(f"file://{folder}/study/variability.html")
    all_drawn(page, 6)
    assert page.js("document.querySelector('#devices tbody td').textContent") == "gpu7"
    look(page, "variability")
    page.close()


with Chromium() as chromium, scratch() as place:
    for part in (one_run, several_runs, narrow, hostile, live, variability):
        part(chromium, place)
print("passed")
