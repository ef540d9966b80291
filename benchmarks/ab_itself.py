#!/usr/bin/env python3
"""A build against itself on a busy machine: how often does `redline bench ab` claim a change that is not there?

    ./benchmarks/ab_itself.py [--series 20] [--busy 2] [--time 60s] [--redline path/to/redline]

Small runs of ResNet-18 on one thread, compared with themselves, while `--busy` other processes compute and pause for
random stretches. Each series adds to ab_itself-<date>.json in the output folder, and ab_itself-<date>.md is written from
all of them: run it in pieces (`--series 5`, four times) where a machine is lent for minutes only. A claim is a verdict of
"faster" or "slower"; at most one of 20 is expected.
"""
import argparse
import collections
import datetime
import json
import multiprocessing
import pathlib
import random
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ["--device", "cpu", "--model", "resnet18", "--image-size", "32", "--classes", "10", "-b", "1", "--threads", "1"]
CLAIMS = ("faster", "slower")
FEWEST = 6  # pairs with which a claim is possible


def neighbour(seed, until):
    """Computes and pauses in turn, for 0.1 to 2 seconds each."""
    chance = random.Random(seed)
    while time.monotonic() < until:
        end = min(until, time.monotonic() + chance.uniform(0.1, 2))
        while time.monotonic() < end:
            pass
        time.sleep(chance.uniform(0.1, 2))


def series(command, neighbours, longest):
    """The record of one experiment, measured beside the neighbours."""
    until = time.monotonic() + longest
    others = [multiprocessing.Process(target=neighbour, args=(random.random(), until), daemon=True) for _ in range(neighbours)]
    for other in others:
        other.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ab.json"
            subprocess.run([*command, "--json", str(path), "--", "--"], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            return json.loads(path.read_text())
    finally:
        for other in others:
            other.terminate()
            other.join()


def row_of(record):
    change = record["images_per_second"]
    loads = [run["other_cores"] for run in record["runs"] if run["other_cores"] is not None]
    return {"verdict": record["verdict"], "pairs": record["pairs"], "change": change["change"], "interval": change["interval"],
            "other_cores": sum(loads) / len(loads) if loads else None, "machine": record["machine"], "redline": record["redline"]}


def text_of(day, command, rows):
    counts = collections.Counter(row["verdict"] for row in rows)
    claims = sum(counts[verdict] for verdict in CLAIMS)
    able = sum(row["pairs"] >= FEWEST for row in rows)
    machine, program = rows[-1]["machine"], rows[-1]["redline"]
    lines = [f"# A build against itself on a busy machine, {day}", "",
             f"`benchmarks/ab_itself.py`, that is `{command}`, beside processes that compute and pause for 0.1 to 2 seconds each. "
             f"Redline {program['version']} ({program['commit']}, {program['build']}); {machine['cpu']}, "
             f"{machine['cores']} core{'s' if machine['cores'] > 1 else ''}.", "",
             f"**{claims} of {len(rows)} claim a change** ({', '.join(f'{count} {verdict}' for verdict, count in counts.most_common())}). "
             f"A claim takes at least {FEWEST} pairs, which {able} of them have.", "",
             "| series | pairs | change | 95% interval | cores that others kept busy | verdict |", "| --- | --- | --- | --- | --- | --- |"]
    for number, row in enumerate(rows, 1):
        held = row["interval"]
        within = f"{100 * held['low']:+.1f}% to {100 * held['high']:+.1f}%" if held else "too few pairs"
        busy = f"{row['other_cores']:.1f}" if row["other_cores"] is not None else "not known"
        lines.append(f"| {number} | {row['pairs']} | {100 * row['change']:+.1f}% | {within} | {busy} | {row['verdict']} |")
    return "\n".join(lines) + "\n"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--series", type=int, default=20, help="experiments that are added")
    options.add_argument("--busy", type=int, default=2, help="other processes that compute meanwhile")
    options.add_argument("--time", default="60s", help="of one experiment: enough for 6 pairs or more, or it cannot claim anything")
    options.add_argument("--redline", type=pathlib.Path, default=ROOT / "redline", help="the program to measure")
    options.add_argument("--output", type=pathlib.Path, default=ROOT / "benchmarks" / "results", help="folder of the result")
    args = options.parse_args()
    day = datetime.date.today().isoformat()
    args.output.mkdir(parents=True, exist_ok=True)
    kept = args.output / f"ab_itself-{day}.json"
    rows = json.loads(kept.read_text()) if kept.exists() else []
    words = ["bench", "ab", *FLAGS, "--run-time", "1s", "--time", args.time]
    for _ in range(args.series):
        rows.append(row_of(series([str(args.redline), *words], args.busy, longest=600)))
        kept.write_text(json.dumps(rows, indent=1) + "\n")
        (args.output / f"ab_itself-{day}.md").write_text(text_of(day, " ".join(["redline", *words, "--", "--"]), rows))
        print(f"{len(rows)}: {rows[-1]['verdict']} after {rows[-1]['pairs']} pairs, {100 * rows[-1]['change']:+.1f}%", flush=True)


if __name__ == "__main__":
    main()
