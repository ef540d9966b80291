"""What --live offers to Prometheus: read by its own client's parser, and held to the rules that promtool checks."""

import os
import re
import signal
import subprocess
import urllib.request

from helper import need, redline, scratch
from make_run import HOSTILE, make_run

parser = need("prometheus_client.parser")
UNITS = re.compile(r"(milliseconds|minutes|hours|kilobytes|mib|gib|percent|mhz|milliwatts)")


def scrape(url):
    with urllib.request.urlopen(url + "metrics", timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers["Content-Type"]
        return answer.read().decode()


def check_text(text):
    """Every metric has help and a type before its lines, which stay together; the last line ends."""
    assert text.endswith("\n")
    current, done = None, set()
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in done and line.split(" ", 3)[3].strip(), line
            done.add(current)
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2] == current and line.split(" ")[3] in ("counter", "gauge"), line
        else:
            assert line.startswith(current + "{"), line


def check_families(families):
    """What promtool check metrics demands of names, units and labels."""
    for family in families:
        assert re.fullmatch(r"redline_[a-z0-9_]+", family.name), family.name
        assert not UNITS.search(family.name), f"{family.name}: base units only"
        seen = set()
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen, f"twice: {key}"
            seen.add(key)
            assert (family.type == "counter") == sample.name.endswith("_total"), sample.name
            assert all(re.fullmatch(r"[a-z_]+", label) for label in sample.labels), sample.labels
            assert sample.value == sample.value, f"{sample.name} is not a number"


def check(folder):
    make_run(f"{folder}/first", 300, ranks=2)
    make_run(f"{folder}/second", 200, end=False, telemetry=False)
    name = HOSTILE[:100].replace("/", "_")
    make_run(f"{folder}/{name}", 100, hostile=True, telemetry=False)
    server = subprocess.Popen([os.environ["REDLINE"], "report", "--live", f"{folder}/first", f"{folder}/second", f"{folder}/{name}", "--port", "0"],
                              stdout=subprocess.PIPE, text=True)
    try:
        text = scrape(server.stdout.readline().split()[1])
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0
    check_text(text)
    families = list(parser.text_string_to_metric_families(text))
    check_families(families)
    values = {(s.name, s.labels.get("run"), s.labels.get("state"), s.labels.get("rank"), s.labels.get("cause")): s.value for f in families for s in f.samples}
    assert values[("redline_steps_total", "first", None, None, None)] == 300
    assert values[("redline_images_total", "second", None, None, None)] == 200 * 256
    assert values[("redline_run_state", "second", "unfinished", None, None)] == 1
    assert 500 < values[("redline_gpu_power_watts", "first", None, "1", None)] < 700
    assert values[("redline_gpu_clock_hertz", "first", None, "0", None)] > 1.5e9
    assert 3000 < values[("redline_images_per_second", "first", None, None, None)] < 5000
    assert values[("redline_gap_seconds_total", "first", None, None, "data")] > 0
    assert ("redline_steps_total", name, None, None, None) in values, "a hostile name comes back as it was"


with scratch() as place:
    redline("--version")
    check(place)
print("passed")
