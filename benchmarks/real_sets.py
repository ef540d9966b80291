#!/usr/bin/env python3
"""Real photographs on a GPU: how fast Redline trains on them, and what its recipes reach, beside PyTorch.

    python3 benchmarks/real_sets.py --work FOLDER [--imagenet SET] [--tiny-imagenet SET] [--cifar SET]
                                    [--redline path/to/redline] [--minutes 9] [--only TEXT …] [--seeds 3] [--rounds 3]
                                    [--earlier RESULT.json …]

Run it with a Python that has torch, torchvision and Pillow. A set is whatever Redline reads: a folder of images by
class, ImageNet's or Tiny ImageNet's own layout, TFRecord shards, CIFAR's binary files. For ImageNet a plain folder of
files named <class>_<anything>.JPEG will do, too; each then counts ten times, so that an epoch has several steps.
--imagenet       speed of ResNet-50 at batch 256 in fp16, in turns: synthetic images, JPEGs decoded by the CPU, by the
                 GPU and by both (auto); and what the pipeline alone delivers
--tiny-imagenet  the recipe tiny-imagenet with ResNet-18 and with ResNet-50
--cifar          the recipe cifar-like with ResNet-18
Recipes are trained to their end with every seed, with Redline from JPEGs and with peer_real_sets.py from images that lie
decoded on the GPU, and evaluated after every epoch.

The work is done in pieces, which are remembered in FOLDER. With --minutes it stops in time, also in the middle of a
training, and exits with status 75: call it again to continue. Whenever it ends, it writes real_sets-<date>.md and .json
of what there is so far into --output. Trainings that were recorded there, perhaps on another machine, are not repeated with
--earlier real_sets-<date>.json. --list shows the pieces. --trial does everything in miniature, to see that it works: a few
classes, images and steps.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = ROOT / "benchmarks" / "peer_real_sets.py"
AGAIN = 75  # exit status: there is more to do
COPIES = 10  # of each file of a plain folder

# set, recipe, model, the accuracy whose time is measured
TRAININGS = [("tiny-imagenet", "tiny-imagenet", "resnet18", 0.55), ("tiny-imagenet", "tiny-imagenet", "resnet50", 0.60),
             ("cifar", "cifar-like", "resnet18", 0.90)]
DECODERS = ("synthetic", "cpu", "gpu", "auto")


class NotDone(Exception):
    """The time is up; the piece continues with the next call."""


class Bench:
    def __init__(self, args):
        self.args, self.work = args, args.work.resolve()
        self.until = time.time() + 60 * args.minutes if args.minutes else None
        (self.work / "pieces").mkdir(parents=True, exist_ok=True)
        self.earlier = {}
        for file in args.earlier:
            found = json.loads(file.read_text())
            if found["trial"] != args.trial:
                raise SystemExit(f"{file}: measured {'with' if found['trial'] else 'without'} --trial")
            # Speeds are compared within one machine; a training's accuracy is the same on all.
            self.earlier.update({piece: result for piece, result in found["pieces"].items() if piece.startswith("train ")})

    def left(self):
        return self.until - time.time() if self.until else None

    def need(self, seconds):
        """A piece that cannot be stopped in the middle begins only where there is time for it."""
        if self.until and not self.args.trial and self.left() < seconds:
            raise NotDone

    def run(self, command, **options):
        done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, **options)
        if done.returncode != 0:
            raise SystemExit(f"exit status {done.returncode} of: {' '.join(map(str, command))}\n{done.stdout}")
        return done.stdout

    def redline(self, *flags):
        return self.run([self.args.redline, *flags])

    def train(self, folder, *flags):
        """A training with checkpoints, stopped when the time is up; the records of its metrics."""
        command = [str(self.args.redline), "train", *map(str, flags), "--device", self.args.device, "-o", str(folder.parent),
                   "--name", folder.name, "--resume", "--quiet"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            status = process.wait(None if self.until is None else max(1, self.left() - 15))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            status = process.wait()
            if status == 128 + signal.SIGINT:
                raise NotDone from None
        except KeyboardInterrupt:
            process.wait()
            raise
        if status != 0:
            raise SystemExit(f"exit status {status} of: {' '.join(command)}")
        with open(folder / "metrics.jsonl", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    # ---- sets

    def source(self, name):
        return getattr(self.args, name.replace("-", "_")).resolve()

    def prepare(self, name):
        """Redline's shards and, but for ImageNet, PyTorch's arrays of the same images."""
        target = self.work / name
        target.mkdir(exist_ok=True)
        source = self.source(name)
        if name != "imagenet" or self.args.trial or not (source / "train").exists():
            source = self.class_folders(name, source, target)
        if self.args.trial:
            source = self.excerpt(source, target / "few", 24 if name == "imagenet" else 3)
        self.redline("data", "convert", source, target / "shards", "--format", "tfrecord")
        if name != "imagenet":
            self.run([sys.executable, PEER, "arrays", source, target / "arrays.pt"])
        return {"source": str(self.source(name)), "bytes": sum(
            file.stat().st_size for file in (target / "shards").iterdir() if not file.name.endswith(".idx"))}

    def class_folders(self, name, source, target):
        """The set as train/<class>/… and val/<class>/…"""
        if name == "imagenet" and any(source.glob("n*_*.JPEG")):
            return self.spread(source, target / "spread")
        if (source / "train").is_dir() and (source / "test").is_dir() and not (source / "val").exists():
            linked = target / "linked"
            linked.mkdir(exist_ok=True)
            for link, part in (("train", "train"), ("val", "test")):
                if not (linked / link).exists():
                    (linked / link).symlink_to(source / part)
            return linked
        self.redline("data", "convert", source, target / "folders", "--format", "folders")
        return target / "folders"

    def spread(self, source, target):
        """A plain folder by class: every file ten times to train with, once to evaluate."""
        for file in sorted(source.glob("n*_*.JPEG")):
            for part, copies in (("train", 1 if self.args.trial else COPIES), ("val", 1)):
                place = target / part / file.name.split("_")[0]
                place.mkdir(parents=True, exist_ok=True)
                for copy in range(copies):
                    link = place / f"{copy}_{file.name}"
                    if not link.exists():
                        link.symlink_to(file)
        return target

    def excerpt(self, source, target, classes):
        """Few images of few classes."""
        for part, count in (("train", 24), ("val", 10)):
            for place in sorted((source / part).iterdir())[:classes]:
                (target / part / place.name).mkdir(parents=True, exist_ok=True)
                for file in sorted(file for file in place.rglob("*") if file.is_file())[:count]:
                    shutil.copyfile(file, target / part / place.name / file.name)
        return target

    # ---- measurements

    def speed_sizes(self):
        """Of a measurement of speed: images in a batch, steps, of which so many to warm up, and pixels."""
        return (4, 6, 2, 64) if self.args.trial else (256, 200, 60, 224)

    def speed(self, decoder, number):
        """Images/s of training, once it is under way."""
        self.need(90)
        batch, steps, warm_up, size = self.speed_sizes()
        data = ["synthetic", "--classes", 1000] if decoder == "synthetic" else [self.work / "imagenet" / "shards", "--decode", decoder]
        folder = self.work / "runs" / f"speed-{decoder}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        records = self.train(folder, *data, "--model", "resnet50", "--image-size", size, "-b", batch, "--steps", steps, "--lr", 0.01,
                             "--eval-every", 0, "--checkpoint-every", "off", *([] if self.args.device == "cpu" else ["--dtype", "fp16"]))
        shutil.rmtree(folder)
        step = [record for record in records if record["kind"] == "step"][warm_up:]
        seconds = sum(record["seconds"] + record["gap_seconds"] for record in step)
        return {"images_per_second": sum(record["samples"] for record in step) / seconds,
                "waiting_for_data": sum(record["data_seconds"] for record in step) / seconds, "device": records[0]["device"],
                "program": records[0]["program"]}

    def pipeline(self, decoder):
        """Images/s of the loader alone."""
        self.need(60)
        file = self.work / "pipeline.json"
        self.redline("bench", "data", self.work / "imagenet" / "shards", "--decode", decoder, "--warm-only", "--batch-size",
                     8 if self.args.trial else 256, "--seconds", 0.5 if self.args.trial else 10, "--threads",
                     len(os.sched_getaffinity(0)), "--json", file)
        found = json.loads(file.read_text())
        return {timing["transform"]: timing["images_per_second"] for timing in found["timings"]}

    def overrides(self):
        return {"--image-size": 32, "-b": 8, "-e": 2, "--lr-warmup-epochs": 1} if self.args.trial else {}

    def ours(self, name, recipe, model, seed):
        folder = self.work / "runs" / f"{name}-{model}-{seed}"
        changed = [part for pair in self.overrides().items() for part in pair]
        records = self.train(folder, self.work / name / "shards", "-c", ROOT / "recipes" / f"{recipe}.toml", "--model", model, "--seed",
                             seed, "--checkpoint-every", "1m", "--eval-every", 1, *changed,
                             *([] if self.args.device == "cpu" else ["--amp"]))
        steps = {record["step"]: record for record in records if record["kind"] == "step" and record["epoch"] > 0}
        busy = sum(record["seconds"] + record["gap_seconds"] - record.get("evaluation_seconds", 0) for record in steps.values())
        curve = {record["epoch"]: [record["top1"], record["elapsed"]] for record in records if record["kind"] == "evaluation"}
        return {"curve": curve, "images_per_second": sum(record["samples"] for record in steps.values()) / busy,
                "device": records[0]["device"], "program": records[0]["program"]}

    def peers(self, name, recipe, model, seed):
        base = self.work / "runs" / f"torch-{name}-{model}-{seed}"
        base.parent.mkdir(exist_ok=True)
        records, state = base.with_suffix(".jsonl"), base.with_suffix(".state")
        flags = {"--image-size": "--size", "-b": "--batch", "-e": "--epochs", "--lr-warmup-epochs": "--warmup-epochs"}
        changed = [part for key, value in self.overrides().items() for part in (flags[key], value)]
        command = [sys.executable, PEER, "train", self.work / name / "arrays.pt", "--recipe", ROOT / "recipes" / f"{recipe}.toml",
                   "--model", model, "--seed", seed, "--records", records, "--state", state, "--device", self.args.device,
                   *(["--until", self.until - 10] if self.until else []), *changed]
        status = subprocess.run([str(part) for part in command]).returncode
        if status == AGAIN:
            raise NotDone
        if status != 0:
            raise SystemExit(f"exit status {status} of: {' '.join(map(str, command))}")
        rows = {row["epoch"]: row for row in map(json.loads, records.read_text().splitlines())}
        later = [row for epoch, row in rows.items() if epoch > 1]
        state.unlink()
        return {"curve": {epoch: [row["top1"], row["elapsed"]] for epoch, row in rows.items()},
                "images_per_second": sum(row["samples"] for row in later) / sum(row["train_seconds"] for row in later),
                **{key: rows[1][key] for key in ("how", "torch", "torchvision")}}

    # ---- pieces

    def pieces(self):
        """name -> function, the most telling first: one seed of everything before the next."""
        found, sets = {}, [name for name in ("imagenet", "tiny-imagenet", "cifar") if getattr(self.args, name.replace("-", "_"))]
        for name in sets:
            found[f"prepare {name}"] = lambda name=name: self.prepare(name)
        decoders = DECODERS if self.args.device == "cuda" else ("synthetic", "cpu")
        if "imagenet" in sets:
            for number in range(self.args.rounds):
                for decoder in decoders:
                    found[f"speed {decoder} {number}"] = lambda decoder=decoder, number=number: self.speed(decoder, number)
            for decoder in ("cpu", "gpu") if self.args.device == "cuda" else ("cpu",):
                found[f"pipeline {decoder}"] = lambda decoder=decoder: self.pipeline(decoder)
        for seed in range(self.args.seeds):
            for name, recipe, model, _ in TRAININGS:
                if name not in sets:
                    continue
                for side, function in (("redline", self.ours), ("torch", self.peers)):
                    found[f"train {name} {model} {side} {seed}"] = \
                        lambda f=function, rest=(name, recipe, model, seed): f(*rest)
        return found

    def file_of(self, piece):
        return self.work / "pieces" / (re.sub(r"[^a-z0-9-]+", "_", piece) + ".json")

    def result_of(self, piece):
        file = self.file_of(piece)
        return json.loads(file.read_text()) if file.exists() else self.earlier.get(piece)

    def go(self):
        """Whether all pieces are done."""
        for piece, function in self.pieces().items():
            chosen = not self.args.only or piece.startswith("prepare") or any(text in piece for text in self.args.only)
            if not chosen or self.result_of(piece) is not None:
                continue
            print(f"{datetime.datetime.now():%H:%M:%S} {piece}", flush=True)
            try:
                result = function()
            except NotDone:
                print("the time is up; call again to continue", flush=True)
                return False
            file = self.file_of(piece)
            file.with_suffix(".partial").write_text(json.dumps(result))
            os.replace(file.with_suffix(".partial"), file)
        return True


def spread_of(values, form):
    values = sorted(values)
    return form(statistics.median(values)) + (f" ({form(values[0])} to {form(values[-1])})" if len(values) > 1 else "")


def time_to(curve, target):
    reached = [elapsed for top1, elapsed in curve.values() if top1 >= target]
    return min(reached) if reached else None


def speed_rows(results):
    rows = ["| images | images/s in training | of synthetic | of the time waiting for data | the pipeline alone, images/s |",
            "| --- | --- | --- | --- | --- |"]
    by_decoder = {decoder: [result for piece, result in results.items() if piece.startswith(f"speed {decoder} ")] for decoder in DECODERS}
    median = {decoder: statistics.median(row["images_per_second"] for row in found) for decoder, found in by_decoder.items() if found}
    for decoder, speed in median.items():
        found = by_decoder[decoder]
        alone = results.get(f"pipeline {decoder}")
        rows.append(f"| {'synthetic' if decoder == 'synthetic' else '--decode ' + decoder} | "
                    f"{spread_of([row['images_per_second'] for row in found], lambda value: f'{value:.0f}')} | "
                    + (f"{100 * speed / median['synthetic']:.1f}%" if "synthetic" in median else "") +
                    f" | {100 * statistics.median(row['waiting_for_data'] for row in found):.1f}% | "
                    f"{alone['training'] if alone else 0:.0f} |".replace("| 0 |", "| |"))
    return rows if median else []


def training_rows(results):
    rows = ["| set | model | side | seeds | top-1 at the end | best top-1 | seconds in all | seconds to | images/s |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, _, model, target in TRAININGS:
        for side in ("redline", "torch"):
            found = [result for piece, result in results.items() if piece.startswith(f"train {name} {model} {side} ")]
            if not found:
                continue
            curves = [{int(epoch): value for epoch, value in row["curve"].items()} for row in found]
            times = [time_to(curve, target) for curve in curves]
            reached = [value for value in times if value is not None]
            to = spread_of(reached, lambda value: f"{value:.0f}") if reached else "not reached"
            if reached and len(reached) < len(times):
                to += f", {len(times) - len(reached)} never"
            label = "Redline" if side == "redline" else f"PyTorch, {found[0]['how']}"
            percent = lambda value: f"{100 * value:.2f}%"
            rows.append(f"| {name} | {model} | {label} | {len(found)} | "
                        f"{spread_of([curve[max(curve)][0] for curve in curves], percent)} | "
                        f"{spread_of([max(top1 for top1, _ in curve.values()) for curve in curves], percent)} | "
                        f"{spread_of([curve[max(curve)][1] for curve in curves], lambda value: f'{value:.0f}')} | "
                        f"{100 * target:.0f}%: {to} | {spread_of([row['images_per_second'] for row in found], lambda value: f'{value:.0f}')} |")
    return rows if len(rows) > 2 else []


def report(bench, results, pieces):
    date = datetime.date.today().isoformat()
    programs = sorted({f"Redline {row['program']['version']} ({row['program']['commit']}) on {row['device']}"
                       for row in results.values() if "program" in row})
    peer = next((row for row in results.values() if "torch" in row), None)
    missing = [piece for piece in pieces if piece not in results]
    text = [f"# Real photographs, {date}", "",
            "`benchmarks/real_sets.py`" + (", in miniature (--trial)" if bench.args.trial else "") + "; medians, with the least and the most."]
    if programs:
        text += ["", f"{'; '.join(programs)}; {len(os.sched_getaffinity(0))} CPU cores." +
                 (f" torch {peer['torch']}, torchvision {peer['torchvision']}." if peer else "")]
    earlier = [piece for piece in results if not bench.file_of(piece).exists()]
    if earlier:
        text += ["", f"{len(earlier)} trainings are from earlier results."]
    if missing:
        text += ["", "Not measured yet: " + ", ".join(missing) + "."]
    batch, _, _, size = bench.speed_sizes()
    dtype = "fp32" if bench.args.device == "cpu" else "fp16"
    for title, rows in ((f"ResNet-50, batch {batch}, {size} pixels, {dtype}, on JPEGs of ImageNet in the page cache", speed_rows(results)),
                        ("Recipes, trained to their end", training_rows(results))):
        if rows:
            text += ["", f"## {title}", "", *rows]
    text += ["", "Redline decodes JPEGs as it trains; PyTorch has all images decoded in the device's memory. Seconds count training and the "
             "evaluation after every epoch, not starting and compiling; images/s leave out the first epoch and evaluations."]
    bench.args.output.mkdir(parents=True, exist_ok=True)
    base = bench.args.output / f"real_sets-{date}"
    base.with_suffix(".md").write_text("\n".join(text) + "\n")
    recipes = {recipe: tomllib.loads((ROOT / "recipes" / f"{recipe}.toml").read_text()) for _, recipe, _, _ in TRAININGS}
    base.with_suffix(".json").write_text(json.dumps(
        {"date": date, "machine": platform.machine(), "cores": len(os.sched_getaffinity(0)), "trial": bench.args.trial,
         "recipes": recipes, "missing": missing, "pieces": results}, indent=1) + "\n")
    return base.with_suffix(".md")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--work", type=pathlib.Path, required=True, help="folder for prepared sets and finished pieces; on a fast disk")
    for name in ("imagenet", "tiny-imagenet", "cifar"):
        options.add_argument(f"--{name}", type=pathlib.Path, metavar="SET")
    options.add_argument("--redline", type=pathlib.Path, default=ROOT / "redline")
    options.add_argument("--minutes", type=float, default=0, help="stop in time; 0: when all is done")
    options.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="pieces whose name has one of these")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--rounds", type=int, default=3, help="of the speed table")
    options.add_argument("--output", type=pathlib.Path, default=ROOT / "benchmarks" / "results")
    options.add_argument("--earlier", nargs="+", default=[], type=pathlib.Path, metavar="RESULT.json",
                         help="results whose trainings are not repeated")
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options.add_argument("--trial", action="store_true", help="everything in miniature")
    options.add_argument("--list", action="store_true", help="show the pieces and which are done")
    args = options.parse_args()
    if args.trial and args.output == ROOT / "benchmarks" / "results":
        args.output = args.work
    bench = Bench(args)
    pieces = list(bench.pieces())
    if not pieces:
        options.error("name a set: --imagenet, --tiny-imagenet or --cifar")
    if args.list:
        for piece in pieces:
            print(f"{'done' if bench.result_of(piece) is not None else '    '} {piece}")
        return 0
    try:
        done = bench.go()
    finally:
        results = {piece: result for piece in pieces if (result := bench.result_of(piece)) is not None}
        if results:
            print(report(bench, results, pieces))
    return 0 if done else AGAIN


if __name__ == "__main__":
    sys.exit(main())
