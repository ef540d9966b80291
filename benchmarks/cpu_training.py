#!/usr/bin/env python3
"""ResNet training on a CPU: Redline beside PyTorch, in one run on one machine.

    ./benchmarks/cpu_training.py [--models resnet50] [--size 64] [--rounds 3] [--quick]

Installs the newest torch, torchvision and timm from PyPI into build/peer on its first run, unless `--python` names a
Python that has them. For every setting it measures both in turn, several rounds, and takes medians; then it prints the
ratios, where Redline's time goes by op, and both sides' activation memory, and writes all of it to
benchmarks/results/. Leave the machine alone while it runs.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / "build" / "peer"
PEER = ""  # a Python that has torch
REDLINE = ROOT / "redline"
# image size, batch, dtype, steps of a round
SETTINGS = [(224, 32, "fp32", 3), (224, 32, "bf16", 5), (64, 64, "fp32", 10), (64, 64, "bf16", 20)]


def run(command, **options):
    return subprocess.run([str(part) for part in command], check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def peer_python():
    if PEER:
        return PEER
    python = VENV / "bin" / "python"
    if not python.exists():
        print(f"installing torch into {VENV.relative_to(ROOT)} …", file=sys.stderr)
        run([sys.executable, "-m", "venv", VENV])
        run([python, "-m", "pip", "install", "--quiet", "torch", "torchvision", "timm"])
    return python


def time_torch(model, size, batch, dtype, steps, *flags):
    script = ROOT / "benchmarks" / "peer_torch.py"
    return json.loads(run([peer_python(), script, "--model", model, "--size", size, "--batch", batch, "--dtype", dtype, "--steps",
                           steps, *flags]))


def torch_memory(model, size, batch, dtype):
    script = ROOT / "benchmarks" / "peer_torch.py"
    out = run([peer_python(), script, "--model", model, "--size", size, "--batch", batch, "--dtype", dtype, "--memory"])
    return json.loads(out)["activation_bytes"]


def time_redline(model, size, batch, dtype, steps):
    """Images/s of the median step, the first two left out, and the run's own header."""
    with tempfile.TemporaryDirectory() as folder:
        run([REDLINE, "train", "synthetic", "--model", model, "--classes", 1000, "--image-size", size,
             "-b", batch, "--dtype", dtype, "--steps", steps + 2, "--lr", 0.01, "--label-smoothing", 0.1,
             "--weight-decay", 1e-4, "--quiet", "-o", folder, "--name", "run"])
        with open(pathlib.Path(folder) / "run" / "metrics.jsonl") as lines:
            records = [json.loads(line) for line in lines]
    header = records[0]
    seconds = [record["seconds"] for record in records if record["kind"] == "step"][2:]
    for record in records:
        if record["kind"] == "notice" and record.get("what") == "disturbed":
            print(f"  disturbed: {record['text']}", file=sys.stderr, flush=True)
    return batch / statistics.median(seconds), header


def cpu_seconds(command):
    """CPU time of a command and its threads."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def redline_per_cpu_second(model, size, batch, dtype, steps):
    """Images per second of CPU time on one thread: what more steps take beyond a short run. And the run's header."""
    with tempfile.TemporaryDirectory() as folder:
        def training(count):
            return cpu_seconds([REDLINE, "train", "synthetic", "--model", model, "--classes", 1000, "--image-size", size, "-b",
                                batch, "--dtype", dtype, "--steps", count, "--lr", 0.01, "--label-smoothing", 0.1,
                                "--weight-decay", 1e-4, "--threads", 1, "--quiet", "-o", folder, "--name", f"run{count}"])

        few = training(2)
        seconds = training(2 + steps) - few
        with open(pathlib.Path(folder) / "run2" / "metrics.jsonl") as lines:
            return batch * steps / seconds, json.loads(lines.readline())


def redline_ops(model, size, batch, dtype):
    """Time by op kind, from `redline bench op`."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "ops.json"
        run([REDLINE, "bench", "op", "--model", model, "--image-size", size, "--batch", batch, "--dtype",
             dtype, "--repeat", 3, "--in-step", "--json", file])
        return json.loads(file.read_text())


def redline_memory(model, size, batch, dtype):
    """Activation bytes of the plan, as --dry-run prints them."""
    text = run([REDLINE, "train", "synthetic", "--model", model, "--classes", 1000, "--image-size", size,
                "-b", batch, "--dtype", dtype, "--steps", 1, "--dry-run"])
    number, unit = re.search(r"^ *activations +([0-9.]+) (KiB|MiB|GiB)", text, re.MULTILINE).groups()
    return float(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]


def cpu_name():
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def ops_table(ops):
    kinds = {}
    for op in ops["ops"]:
        entry = kinds.setdefault(op["kind"], [0.0, 0.0])
        entry[0] += op["seconds"] * op["count"]
        entry[1] += op["flops"] * op["count"]
    total = sum(entry[0] for entry in kinds.values())
    lines = ["| op | ms a step | share | GFLOP/s |", "| --- | --- | --- | --- |"]
    for kind, (seconds, flops) in sorted(kinds.items(), key=lambda item: -item[1][0]):
        if seconds / total < 0.001:
            continue
        rate = f"{flops / seconds / 1e9:.0f}" if flops else ""
        lines.append(f"| {kind} | {seconds * 1e3:.1f} | {100 * seconds / total:.1f}% | {rate} |")
    return "\n".join(lines)


def result_of(rows, details, header, peer, rounds):
    return {"benchmark": "cpu_training", "date": datetime.date.today().isoformat(), "cpu": cpu_name(),
            "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(), "redline": header.get("program"),
            "device": header.get("device"), "torch": peer.get("torch"), "torchvision": peer.get("torchvision"),
            "torch_threads": peer.get("threads"), "rounds": rounds,
            "command": "benchmarks/cpu_training.py " + " ".join(sys.argv[1:]), "rows": rows,
            "ops": [{"model": m, "size": s, "batch": b, "dtype": d, "table": ops} for m, s, b, d, ops in details]}


def report(result, details):
    where = "one core" if result["cpu_time"] else f"{result['cores']} cores"
    text = [f"# Training on {where} of {result['cpu']}, {result['date']}", "",
            f"`{result['command'].strip()}`; Redline {result['redline']['version']} ({result['redline']['commit']}), "
            f"{result['device']}; PyTorch {result['torch']}, channels_last, {result['torch_threads']} threads; medians "
            f"of {result['rounds']} rounds."
            + (" Others used the machine, so seconds are those of CPU time, on one thread." if result["cpu_time"] else ""), "",
            "| model | image | batch | dtype | Redline images/s | PyTorch images/s | ratio | Redline activations | PyTorch activations |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in result["rows"]:
        text.append(f"| {row['model']} | {row['size']} px | {row['batch']} | {row['dtype']} | {row['redline']:.2f} | {row['torch']:.2f} | "
                    f"{row['ratio']:.2f}x | {row['redline_activation_bytes'] / 2**20:.0f} MiB | "
                    f"{row['torch_activation_bytes'] / 2**20:.0f} MiB |")
    text += ["", "Activations: the most that is alive at once in Redline; what autograd keeps for backward in PyTorch, "
             "which its working memory comes on top of."]
    for model, size, batch, dtype, ops in details:
        text += ["", f"## Where Redline's time goes: {model}, {size} px, batch {batch}, {dtype}", "", ops_table(ops)]
    return "\n".join(text) + "\n"


def save(result, text, args):
    which = "" if args.models == "resnet50" else "-" + args.models.replace(",", "-")
    name = f"cpu_training-{result['date']}{which}" + (f"-{args.size}px" if args.size else "") + ("-cpu-time" if args.cpu_time else "")
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.output / f"{name}.md").write_text(text)


def main():
    global PEER, REDLINE
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3, help="how often each side is measured, in turn")
    options.add_argument("--quick", action="store_true", help="one round of the 64 px settings only")
    options.add_argument("--models", default="resnet50", help="the models, with commas between them")
    options.add_argument("--size", type=int, help="only the settings of this image size")
    options.add_argument("--dtype", help="only the settings of this type")
    options.add_argument("--batch", type=int, help="instead of the settings' batch sizes")
    options.add_argument("--cpu-time", action="store_true",
                         help="compare images per second of CPU time on one thread: for a machine that others use too")
    options.add_argument("--python", default="", help="a Python that has torch and torchvision")
    options.add_argument("--redline", type=pathlib.Path, default=REDLINE, help="the program to measure")
    options.add_argument("--output", type=pathlib.Path, default=ROOT / "benchmarks" / "results", help="folder of the result")
    args = options.parse_args()
    PEER, REDLINE = args.python, args.redline
    size = 64 if args.quick else args.size
    settings = [(model, pixels, args.batch or batch, dtype, steps) for model in args.models.split(",")
                for pixels, batch, dtype, steps in SETTINGS
                if size in (None, pixels) and args.dtype in (None, dtype)]
    rounds = 1 if args.quick else args.rounds
    run([REDLINE, "--version"])

    rows, details, header, peer = [], [], {}, {}
    for model, size, batch, dtype, steps in settings:
        ours, theirs = [], []
        for _ in range(rounds):
            peer = time_torch(model, size, batch, dtype, steps, *(["--cpu-time"] if args.cpu_time else []))
            theirs.append(peer["images_per_second"])
            measure = redline_per_cpu_second if args.cpu_time else time_redline
            speed, header = measure(model, size, batch, dtype, steps)
            ours.append(speed)
        row = {"model": model, "size": size, "batch": batch, "dtype": dtype, "redline": statistics.median(ours),
               "torch": statistics.median(theirs), "redline_rounds": ours, "torch_rounds": theirs,
               "redline_activation_bytes": redline_memory(model, size, batch, dtype),
               "torch_activation_bytes": torch_memory(model, size, batch, dtype)}
        row["ratio"] = row["redline"] / row["torch"]
        rows.append(row)
        print(f"{model}, {size} px, batch {batch}, {dtype}: {row['redline']:.2f} images/s beside PyTorch's {row['torch']:.2f}: "
              f"{row['ratio']:.2f}x", flush=True)
        if not args.cpu_time:  # times by op are those of a clock
            details.append((model, size, batch, dtype, redline_ops(model, size, batch, dtype)))
        result = result_of(rows, details, header, peer, rounds) | {"cpu_time": args.cpu_time}
        if not args.quick:  # after every setting: a run that is cut short has the settings before
            save(result, report(result, details), args)
    print("\n" + report(result, details))


if __name__ == "__main__":
    main()
