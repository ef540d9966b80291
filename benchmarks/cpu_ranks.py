#!/usr/bin/env python3
"""Weak scaling on a CPU: one rank of one thread, and two that share the machine, in turn.

    ./benchmarks/cpu_ranks.py [--rounds 3] [--batch 64] [--redline path/to/redline]

ResNet-50 at 64 px, fp32, synthetic images. Besides one rank and two ranks it runs two trainings that know nothing of
each other, each pinned to a core: what the machine itself loses when both cores work. Prints images/s of each, medians
over the rounds, and their ratio to twice one rank's; writes cpu_ranks-<date>.md into the output folder. Leave the
machine alone while it runs.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARM_UP = 2


def speed(folder):
    """Images/s by the median step, and the records' header."""
    with open(folder / "run" / "metrics.jsonl") as lines:
        records = [json.loads(line) for line in lines]
    steps = [record for record in records if record["kind"] == "step"][WARM_UP:]
    return statistics.median(step["samples"] / step["seconds"] for step in steps), records[0]


def measure(redline, batch, steps):
    flags = ["train", "synthetic", "--device", "cpu", "--model", "resnet50", "--image-size", "64", "-b", str(batch), "--threads",
             "1", "--workers", "1", "--steps", str(steps + WARM_UP), "--quiet", "--name", "run"]
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def start(kind, *command):
            return subprocess.Popen([*command, *flags, "-o", str(folder / kind)], stdout=subprocess.DEVNULL)

        launch = [str(redline), "launch", "-g"]
        cores = [str(core) for core in sorted(os.sched_getaffinity(0))[:2]]
        groups = {"one": [("one", *launch, "1", "--")],
                  "strangers": [(f"stranger{core}", "taskset", "-c", core, str(redline)) for core in cores],
                  "two": [("two", *launch, "2", "--")]}
        for kind, commands in groups.items():
            for process in [start(*command) for command in commands]:
                if process.wait() != 0:
                    raise SystemExit(f"{kind}: redline ended with {process.returncode}")
            results = [speed(folder / command[0]) for command in commands]
            found[kind], header = sum(result[0] for result in results), results[0][1]
    return found, header


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3, help="how often each is measured, in turn")
    options.add_argument("--batch", type=int, default=64, help="images of a rank's step")
    options.add_argument("--steps", type=int, default=8, help="steps of a round")
    options.add_argument("--redline", type=pathlib.Path, default=ROOT / "redline", help="the program to measure")
    options.add_argument("--output", type=pathlib.Path, default=ROOT / "benchmarks" / "results", help="folder of the result")
    args = options.parse_args()
    rounds, header = [], {}
    for _ in range(args.rounds):
        found, header = measure(args.redline, args.batch, args.steps)
        print("images/s: " + ", ".join(f"{kind} {value:.1f}" for kind, value in found.items()), flush=True)
        rounds.append(found)
    today, program = datetime.date.today().isoformat(), header.get("program", {})
    medians = {kind: statistics.median(found[kind] for found in rounds) for kind in rounds[0]}
    kept = {kind: statistics.median(found[kind] / (2 * found["one"]) for found in rounds) for kind in ("strangers", "two")}
    cells = [f"{medians['one']:.1f}"] + [f"{medians[kind]:.1f} ({kept[kind]:.2f})" for kind in ("strangers", "two")]
    text = "\n".join([
        f"# Two ranks on two cores, {today}", "",
        f"`benchmarks/cpu_ranks.py --rounds {args.rounds} --batch {args.batch}`; Redline {program.get('version')} "
        f"({program.get('commit')}), {header.get('device')}; {platform.processor() or platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} cores. ResNet-50, 64 px, fp32, batch {args.batch} a rank, one thread a rank: images/s "
        "in all, and in brackets of twice one rank's, medians over the rounds.", "",
        "| one rank | two trainings apart, a core each | two ranks |", "| --- | --- | --- |",
        "| " + " | ".join(cells) + " |", "", "Rounds, images/s:", "",
        *("- " + ", ".join(f"{kind} {value:.1f}" for kind, value in found.items()) for found in rounds), ""])
    print(text)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / f"cpu_ranks-{today}-b{args.batch}.md").write_text(text)


if __name__ == "__main__":
    main()
