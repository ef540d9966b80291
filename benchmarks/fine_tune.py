#!/usr/bin/env python3
"""Fine-tuning ResNet-50 from given weights on a generated set: Redline's accuracy beside PyTorch's, over several seeds.

    ./benchmarks/fine_tune.py [--seeds 5] [--epochs 3] [--model resnet50] [--frozen]

PyTorch trains a starting point on one generated set (6 classes) and saves it as safetensors. Then both sides fine-tune
from that file on another set (12 classes, half of them new; a new last layer) with the same options. Whether the mean top-1
differs by more than seeds do is judged by Welch's interval, which counts the spread of both sides. With --frozen,
the stem and the first two stages stay as they are, and the rest is trained by AdamW with a rate of its own for the
last layer; without, all of it by SGD. --python names a
Python that has torch and torchvision; without, they are installed from PyPI into build/peer on the first run. Both
sides take a GPU where there is one. Writes benchmarks/results/fine_tune-<date>.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / "build" / "peer"
SIZE, BATCH, RATE, SCALE = 64, 16, 0.01, 0.5
FROZEN_RATE, HEAD_RATE, DECAY = 0.0003, 0.003, 0.05  # of --frozen
START, TUNED = 6, 12  # classes


# Student's t for 95%, by degrees of freedom from 1 on; beyond the table 2.
STUDENT = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09]


def welch(ours, theirs):
    """The difference of means, and half of its 95% interval."""
    parts = [statistics.variance(side) / len(side) for side in (ours, theirs)]
    squares = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (ours, theirs)))
    freedom = int(sum(parts) ** 2 / squares) if squares > 0 else len(STUDENT)
    student = STUDENT[freedom - 1] if freedom <= len(STUDENT) else 2.0
    return statistics.mean(ours) - statistics.mean(theirs), student * sum(parts) ** 0.5


def run(command):
    return subprocess.run([str(part) for part in command], check=True, text=True, stdout=subprocess.PIPE).stdout


def peer_python():
    """A Python with what the peer needs."""
    python = VENV / "bin" / "python"
    if not python.exists():
        print(f"installing torch into {VENV.relative_to(ROOT)} …", file=sys.stderr)
        run([sys.executable, "-m", "venv", VENV])
    if subprocess.run([python, "-c", "import torch, torchvision, numpy"], check=False, capture_output=True).returncode:
        run([python, "-m", "pip", "install", "--quiet", "torch", "torchvision", "numpy"])
    return python


def train_torch(python, data, model, epochs, seed, init=None, save=None, frozen=False):
    """Top-1 after training, in percent."""
    peer = pathlib.Path(__file__).with_name("peer_fine_tune.py")
    command = [python, peer, data, "--model", model, "--epochs", epochs, "--seed", seed, "--size", SIZE,
               "--batch", BATCH, "--scale", SCALE, "--lr", FROZEN_RATE if frozen else RATE if init else 5 * RATE]
    command += ["--head-lr", HEAD_RATE, "--decay", DECAY] if frozen else []
    command += ["--init", init] if init else []
    command += ["--save", save] if save else []
    return json.loads(run(command))


def train_redline(redline, data, model, epochs, seed, init, frozen):
    how = ["--lr", RATE, "--weight-decay", 1e-4]
    if frozen:
        how = ["--opt", "adamw", "--lr", FROZEN_RATE, "--head-lr", HEAD_RATE, "--weight-decay", DECAY,
               "--freeze", "stem,layer1,layer2"]
    with tempfile.TemporaryDirectory() as folder:
        run([redline, "train", data, "--model", model, "--image-size", SIZE, "-b", BATCH, "-e", epochs, *how,
             "--lr-scheduler", "cosine", "--crop-pct", 1, "--scale", SCALE, 1, "--init", init,
             "--seed", seed, "--eval-every", 0, "--quiet", "-o", folder, "--name", "run"])
        with open(pathlib.Path(folder) / "run" / "metrics.jsonl", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
    last = [record for record in records if record["kind"] == "evaluation"][-1]
    return 100 * last["top1"], records[0]


def parse_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--start-epochs", type=int, help="of the starting point (three times --epochs)")
    options.add_argument("--model", default="resnet50")
    options.add_argument("--frozen", action="store_true", help="leave the front of the network as it is, and use AdamW")
    options.add_argument("--jobs", type=int, default=1, help="trainings at the same time")
    options.add_argument("--redline", type=pathlib.Path, default=ROOT / "redline", help="the program to measure")
    options.add_argument("--python", type=pathlib.Path, help="that has PyTorch (default: one made in build/peer)")
    options.add_argument("--output", type=pathlib.Path, default=ROOT / "benchmarks" / "results", help="of the result")
    given = options.parse_args()
    if given.seeds < 2:
        options.error("--seeds: a spread takes two at least")
    return given


def main():
    args = parse_options()
    run([args.redline, "--version"])
    python = args.python or peer_python()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        start, data = pathlib.Path(folder) / "start", pathlib.Path(folder) / "data"
        run([args.redline, "data", "synth", start, "--classes", START, "--train", 3000, "--val", 300, "--seed", 1])
        run([args.redline, "data", "synth", data, "--classes", TUNED, "--train", 1200, "--val", 1200, "--seed", 2])
        weights = pathlib.Path(folder) / "start.safetensors"
        begun = train_torch(python, start, args.model, args.start_epochs or 3 * args.epochs, 0, save=weights)
        print(f"starting point: top-1 {begun['top1']:.2f}% of {START} classes", flush=True)
        seeds = range(args.seeds)
        peers = pool.map(lambda seed: train_torch(python, data, args.model, args.epochs, seed, weights, None, args.frozen),
                         seeds)
        runs = pool.map(lambda seed: train_redline(args.redline, data, args.model, args.epochs, seed, weights, args.frozen),
                        seeds)
        peers, runs = list(peers), list(runs)
    ours, theirs = [top1 for top1, _ in runs], [peer["top1"] for peer in peers]
    header, peer = runs[-1][1], peers[-1]
    difference, interval = welch(ours, theirs)
    inside = abs(difference) <= interval
    date = datetime.date.today().isoformat()
    result = {"benchmark": "fine_tune", "date": date, "model": args.model, "frozen": args.frozen, "epochs": args.epochs,
              "redline": ours,
              "torch": theirs, "difference": difference, "interval": interval, "within_spread": inside, "start": begun["top1"], "program": header.get("program"),
              "device": header.get("device"), "torch_version": peer.get("torch"),
              "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
              "command": "benchmarks/fine_tune.py " + " ".join(sys.argv[1:])}
    text = [f"# Fine-tuning {args.model} on a generated set, {date}", "",
            f"`{result['command'].strip()}`; Redline {header['program']['version']} ({header['program']['commit']}), "
            f"{header['device']}; PyTorch {peer['torch']}, {peer['device']}; {args.epochs} epochs of 1200 images from the "
            f"same weights, which reach {begun['top1']:.2f}% on the {START} classes that they were trained on"
            + (f", with the stem and two stages frozen, AdamW at {FROZEN_RATE} and {HEAD_RATE} for the last layer."
               if args.frozen else "."), "",
            "| seed | Redline top-1 | PyTorch top-1 |", "| --- | --- | --- |"]
    text += [f"| {seed} | {a:.2f}% | {b:.2f}% |" for seed, (a, b) in enumerate(zip(ours, theirs))]
    text += ["", f"Redline {statistics.mean(ours):.2f}% on average with a standard deviation of {statistics.stdev(ours):.2f}, "
             f"PyTorch {statistics.mean(theirs):.2f}% with {statistics.stdev(theirs):.2f}. The difference is {difference:+.2f} points, "
             f"with a 95% interval of ± {interval:.2f}: {'within' if inside else 'OUTSIDE'} the spread of seeds."]
    print("\n" + "\n".join(text))
    name = f"fine_tune-{date}" + ("-frozen" if args.frozen else "")
    (args.output / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.output / f"{name}.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
