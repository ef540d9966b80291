"""Reports in a browser: they load with no complaint, draw every chart, zoom, sort, compare, and run nothing hostile.

Screenshots are left in $REDLINE_SCREENSHOTS where that is set."""

import os
import random
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


# Elements that reach out of the screen or of their box, unless a part of them scrolls by itself.
OVERFLOWING = """(() => {
  const scrolls = (node) => { for (node = node.parentElement; node; node = node.parentElement) if (getComputedStyle(node).overflowX !== 'visible') return true; return false; };
  const seen = (node) => node.getClientRects().length && !node.closest('.unseen, .skip, thead, svg');
  return [...document.querySelectorAll('body *')].filter((node) => seen(node) && !scrolls(node))
    .filter((node) => node.getBoundingClientRect().right > innerWidth + 1 || (node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== 'inline'
      && getComputedStyle(node).overflowX === 'visible' && node.clientWidth > 0))
    .map((node) => node.tagName + '#' + node.id + '.' + node.className + ': ' + node.textContent.slice(0, 40));
})()"""
# Tables of which a part is out of sight until it is scrolled to.
CUT = "[...document.querySelectorAll('.scroll')].filter((box) => box.clientWidth && box.scrollWidth > box.clientWidth + 1).map((box) => box.getAttribute('aria-label'))"
# Words in the heads of tables that are cut into two lines: the lines of a word's range are more than one.
BROKEN = """[...document.querySelectorAll('th')].filter((head) => head.getClientRects().length).flatMap((head) => {
  const found = [], walker = document.createTreeWalker(head, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) for (const word of walker.currentNode.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
    const range = document.createRange();
    range.setStart(walker.currentNode, word.index);
    range.setEnd(walker.currentNode, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1) found.push(word[0]);
  }
  return found;
})"""


# Labels of a phone's tables that may not wrap, and so run into the value.
ON_ONE_LINE = """[...new Set([...document.querySelectorAll('table.blocks td:not(:first-child)')]
  .filter((cell) => innerWidth <= 600 && getComputedStyle(cell, '::before').whiteSpace !== 'normal').map((cell) => cell.dataset.title))]"""


# The height in pixels of the highest name in the first column of a table.
HIGHEST_NAME = """((table) => Math.max(...[...document.querySelectorAll(table + ' tbody tr')].map((row) => {
  const range = document.createRange();
  range.selectNodeContents(row.cells[0]);
  return range.getBoundingClientRect().height;
})))"""


def fits(page, width):
    """Nothing sticks out, no column is cut off, no word in a table's head is broken, no label runs into its value."""
    page.resize(width, 900)
    assert page.js("document.documentElement.scrollWidth") <= width, "it scrolls sideways"
    for what in (OVERFLOWING, CUT, BROKEN, ON_ONE_LINE):
        assert page.js(what) == [], f"{width} px: {page.js(what)}"


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
    assert page.js("document.querySelector('#profile-0-cores').textContent").count("61.25\u00a0%") == 1
    assert page.js("[plain(12800000), format(7.2e7, 'J'), format(0.5, 'J')]") == ["12,800,000", "20\u00a0kWh", "0.5\u00a0J"]
    look(page, "light")
    where_time_went(page)
    roofline(page)
    for_everyone(page)
    zooming(page)
    assert page.js("spoken.textContent") == "Loss: everything"
    sorting(page)
    choosing(page)
    page.js("document.querySelector('.tools button').click()")
    assert page.js("document.documentElement.dataset.theme") == "dark"
    all_drawn(page, 15)
    assert page.js(FAINT) == [], page.js(FAINT)
    printing(page)
    page.close()


def where_time_went(page):
    """The time of the run by cause: in a table, and over the run; no warm-up step sets a scale."""
    heads = page.js("[...document.querySelectorAll('#time-split th')].map((head) => head.textContent)")
    assert heads == ["shares", "steps", "waiting for data", "host late", "evaluation", "in all"], heads
    shares = page.js("[...document.querySelectorAll('#time-split .stack span')].map((part) => part.getBoundingClientRect().width / part.parentNode.getBoundingClientRect().width)")
    assert abs(sum(shares) - 1) < 0.02 and shares[0] > 0.5, shares
    assert page.js("cards.get('split').chart.data.datasets.map((set) => set.label)") == ["steps", "waiting for data", "host late", "evaluation"]
    assert page.js("Number.isInteger(cards.get('split').chart.data.datasets[0].data[0].x)"), "there is no step 15.5"
    assert page.js("(() => { const lower = document.querySelector('.charts + div > .charts'); return lower.getBoundingClientRect().top - lower.parentNode.previousElementSibling.getBoundingClientRect().bottom; })()") >= 10, "charts touch"
    assert page.js("cards.get('seconds').chart.data.datasets[0].data[0].y") is None, "the warm-up step is not drawn"
    assert "without the warm-up step (26" in page.js("cards.get('seconds').caption.textContent")
    assert 0.068 < page.js("cards.get('seconds').chart.scales.y.max") < 0.1, "spikes of 0.2 s are beyond the scale, and their arrows above the steps of 0.066 s"
    page.js("cards.get('seconds').all.click()")
    assert page.js("cards.get('seconds').chart.scales.y.max") > 0.2
    page.js("cards.get('seconds').all.click()")


def roofline(page):
    """Ops by kind, the larger the longer they take, the largest with a name."""
    sets = page.js("cards.get('roofline').spec.sets.map((set) => [set.label, set.points.map((p) => p.size), set.points.filter((p) => p.tag).length])")
    assert {label for label, *_ in sets} == {"conv", "conv_grad_weight", "batch_norm", "what this machine can do"}, sets
    assert sum(named for *_, named in sets) == 10
    sizes = [size for _, of, _ in sets[:-1] for size in of]
    assert max(sizes) == 14 and min(sizes) < 9, sizes
    colours = page.js("cards.get('roofline').chart.data.datasets.map((set) => set.backgroundColor)")
    assert len(set(colours)) == len(colours), colours


def choosing(page):
    """Charts over steps, epochs or time, with curves as smooth as wanted."""
    choose = "(name, value) => { const list = document.querySelector(`select[name=${name}]`); list.value = value; list.dispatchEvent(new Event('change')); }"
    page.js(f"({choose})('axis', 'epoch')")
    assert range_of(page, "loss") == [1 / 750, 4], range_of(page, "loss")
    page.js(f"({choose})('axis', 'time')")
    assert page.js("cards.get('loss').spec.x") == "time" and 240 < range_of(page, "seconds")[1] < 260, range_of(page, "seconds")
    page.js(f"({choose})('axis', 'step')")
    wobble = "(() => { const y = cards.get('gradient_norm').spec.sets.at(-1).points.map((p) => p.y).slice(20, -20); return Math.max(...y) - Math.min(...y); })()"
    light = page.js(wobble)
    page.js(f"({choose})('smoothing', 'strong')")
    assert page.js(wobble) < 0.5 * light
    page.js(f"({choose})('smoothing', 'none')")
    assert page.js("cards.get('gradient_norm').spec.sets.length") == 1
    page.js(f"({choose})('smoothing', 'light')")


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
    for expected in ("Skip to the report", "Learning"):
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
    make_run(f"{folder}/second", 2000, speed=1.04, seed=1, ranks=4, smoothing=0.1)
    redline("report", f"{folder}/first", f"{folder}/second", "-o", f"{folder}/both.html")
    page = browser.open(f"file://{folder}/both.html", dark=True)
    all_drawn(page, 15)
    row = page.js("[...document.querySelectorAll('#changes tbody tr')].find((r) => r.textContent.startsWith('images per second')).textContent")
    assert "better" in row and "+3." in row or "+4." in row, row
    assert page.js("document.querySelector('#differences').textContent").count("run.seed") == 1
    assert page.js("cards.get('loss').chart.data.datasets.length") == 6
    assert page.js("cards.get('loss').chart.data.datasets.map((set) => set.label)")[2:4] == ["label smoothing 0.1, second (each step)", "label smoothing 0.1, second"]
    assert page.js("document.querySelectorAll('#slowest tbody tr').length") == 4
    assert page.js("cards.get('scaling').figure.isConnected")
    assert page.js("[...document.querySelectorAll('#devices tbody tr')].map((row) => row.children[2].textContent)") == ["node0", "node0", "node0", "node1", "node1"]
    look(page, "dark")
    page.close()


def four_runs(browser, folder):
    """Side by side on a desktop and on a phone; long names are cut where they may be."""
    names = ["resnet50-imagenet-20261115-044113", "resnet50-imagenet-20261115-071502-bf16", "resnet50-imagenet-20261116-010203", "resnet50-imagenet-largebatch-20261116"]
    for index, name in enumerate(names):
        make_run(f"{folder}/four/{name}", 600, speed=1 + 0.03 * index, seed=index, ranks=1 + index // 3, smoothing=0.1)
    os.makedirs(f"{folder}/four/pictures")
    said = redline("report", *(f"{folder}/four/{name}" for name in sorted(os.listdir(f"{folder}/four"))), "-o", f"{folder}/four.html")
    assert f"skipped {folder}/four/pictures: not a run folder" in said, said
    page = browser.open(f"file://{folder}/four.html", width=1400)
    all_drawn(page, 15)
    for width, kind in ((1400, "four"), (390, "phone")):
        fits(page, width)
        all_drawn(page, 15)
        look(page, kind)
    page.resize(1400, 900)
    page.js("document.querySelector('#runs input').click()")
    assert page.js("cards.get('lr').chart.data.datasets.length") == 3, "a run that is not ticked is not drawn"
    page.js("document.querySelector('.tools button').click()")
    all_drawn(page, 15)
    look(page, "four-dark")
    page.close()


def many_runs(browser, folder):
    """A table that is sorted and filtered; charts of the first few, or of those that the filter leaves."""
    for index in range(24):  # every third with what its GPU drew
        make_run(f"{folder}/many/run-{index:02d}-{'even' if index % 2 == 0 else 'odd'}", 60, speed=1 + 0.01 * index, seed=index, telemetry=index % 3 == 0, profile=False)
    redline("report", *(f"{folder}/many/{name}" for name in sorted(os.listdir(f"{folder}/many"))), "-o", f"{folder}/many.html")
    page = browser.open(f"file://{folder}/many.html", width=1400)
    all_drawn(page, 5)
    for width, kind in ((390, "many-phone"), (1400, "many")):
        fits(page, width)
        look(page, kind)
    for changes in ("#changes", "#changes-device"):
        assert page.js(f"{HIGHEST_NAME}('{changes}')") < 30, "names of runs are broken"
    assert page.js("cards.get('lr').chart.data.datasets.length") == 10
    assert page.js("document.querySelectorAll('#runs tbody tr').length") == 20
    page.js("document.querySelector('#runs').closest('.table').querySelector('.more').click()")
    assert page.js("document.querySelectorAll('#runs tbody tr').length") == 24
    page.js("(() => { const box = document.querySelector('#runs').closest('.table').querySelector('input[type=search]'); box.value = 'odd'; box.dispatchEvent(new Event('input')); })()")
    assert page.js("document.querySelectorAll('#runs tbody tr').length") == 12
    page.js("[...document.querySelectorAll('button')].find((button) => button.textContent.startsWith('draw those')).click()")
    assert page.js("cards.get('lr').chart.data.datasets.length") == 12
    page.close()


def one_step(browser, folder):
    """A line through one value cannot be seen, so the value is a dot."""
    make_run(os.path.join(folder, "single"), steps=1, telemetry=False, profile=False)
    redline("report", f"{folder}/single")
    page = browser.open(f"file://{folder}/single/report.html")
    for name in ("loss", "accuracy", "lr", "gradient_norm"):
        assert page.js(f"cards.get('{name}').chart.getDatasetMeta(0).data[0].options.radius") > 0, name
    page.close()


def narrow(browser, folder):
    page = browser.open(f"file://{folder}/first/report.html", width=390, height=800)
    all_drawn(page, 15)
    fits(page, 390)
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
        look(page, "live")
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


def many_devices(browser, folder):
    """800 devices, one of them far from the others: boxes that can be read, tables that are cut short but saved whole."""
    chance = random.Random(1)
    with open(f"{folder}/fleet.csv", "w", encoding="utf-8") as out:
        out.write("device,node,cabinet,median_s,clock_mhz,temperature_c,power_w\n")
        for device in range(800):
            usual = 0.1 * (1 + 0.01 * chance.gauss(0, 1)) * (1.35 if device == 77 else 1)
            for repeat in range(4):
                time_s = usual * (1 + 0.004 * chance.gauss(0, 1))
                out.write(f"node{device // 8:03d}-gpu{device % 8},node{device // 8:03d},cabinet{device // 64},{time_s},{2000 - 3000 * time_s},{50 + device % 20},{300 + repeat}\n")
    redline("variability", f"{folder}/fleet.csv", "-o", f"{folder}/fleet")
    page = browser.open(f"file://{folder}/fleet/variability.html", width=1400)
    all_drawn(page, 6)
    heights = page.js("[...cards.values()].filter((card) => card.spec.boxes).map((card) => { const y = card.chart.scales.y; "
                      "return card.spec.boxes.map((box) => Math.abs(y.getPixelForValue(box.q1) - y.getPixelForValue(box.q3))).sort((a, b) => a - b)[card.spec.boxes.length >> 1]; })")
    assert all(height > 4 for height in heights), f"boxes of {heights} pixels"
    assert page.js("cards.get('rank').spec.sets.reduce((sum, set) => sum + set.points.length, 0)") == 800
    assert page.js("document.querySelector('#devices tbody td').textContent") == "node009-gpu5"
    assert page.js("document.querySelectorAll('#devices tbody tr').length") == 20
    assert page.js(HIGHEST_NAME + "('#devices')") < 30, "names of devices are broken"
    page.js("saveCsv = (name, rows) => { window.saved = [name, rows.length, rows[0][0], rows[1][0]]; }")
    page.js("document.querySelector('#devices').closest('.table').querySelector('.bar button').click()")
    assert page.js("window.saved") == ["devices.csv", 801, "device", "node009-gpu5"], page.js("window.saved")
    assert page.js("[...document.querySelectorAll('#all-runs th')].map((head) => head.textContent)") == ["run", "device", "median", "of the median", "clock", "temperature", "power"]
    assert "of 100 nodes in 13 cabinets" in page.js("document.querySelector('#top').textContent")
    for width, kind in ((1400, "fleet"), (390, "fleet-phone")):
        fits(page, width)
        look(page, kind)
    assert page.js("[...document.querySelectorAll('#devices td[data-title=why]')].filter((cell) => cell.getClientRects().length).length") == 1, "of the one that stands out"
    page.close()


with Chromium() as chromium, scratch() as place:
    for part in (one_run, several_runs, four_runs, many_runs, one_step, narrow, hostile, live, variability, many_devices):
        part(chromium, place)
print("passed")
