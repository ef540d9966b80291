"""Redline's runs in notebooks.

    import redline

    run = redline.Run("runs/first")
    run.steps.plot(x="step", y="loss")      # pandas
    run.report()                            # the page of `redline report`, inline
    redline.table("runs")                   # a line for each run

    job = redline.train("flowers", model="resnet18", epochs=3, name="second")
    for line in job.follow():               # lines of metrics.jsonl, as they come
        print(line["kind"], line.get("loss"))

It reads the files of run folders (docs/training.md) and starts the program; it computes nothing itself. The program is
what the environment variable REDLINE names, else the one of the wheel that this came in, else `redline` on the PATH.
"""

import html
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import warnings

try:
    import tomllib
except ImportError:  # Python before 3.11
    import tomli as tomllib

try:
    import pandas
except ImportError:
    raise ImportError("redline needs pandas for its tables: pip install pandas") from None

__all__ = ["Job", "Run", "predict", "runs", "table", "train"]

_BAD_DATA = 65  # exit codes; the other is of a run that was asked to stop, with a checkpoint or without
_STOPPED = (75, 143, -15)


def _program():
    if os.environ.get("REDLINE"):
        return os.environ["REDLINE"]
    try:
        from redline_train import PROGRAM
    except ImportError:
        PROGRAM = shutil.which("redline")
    if PROGRAM is None:
        raise FileNotFoundError("there is no `redline` on the PATH; set the environment variable REDLINE to the program")
    return PROGRAM


def _call(*arguments, codes=(0,)):
    """Standard output and standard error of the program. Raises RuntimeError when its exit code is not among `codes`."""
    done = subprocess.run([_program(), *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise RuntimeError(f"redline {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout, done.stderr.strip()


def _objects(text):
    """The objects of JSON lines. An incomplete line is skipped."""
    found = []
    for line in text.split("\n"):  # and nothing else: a name may hold other characters that end a line
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def _flags(options):
    """{"batch_size": 4, "amp": True, "scale": (0.1, 1)} as --batch-size 4 --amp --scale 0.1 1"""
    words = []
    for name, value in options.items():
        if value is False or value is None:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words += [str(one) for one in (value if isinstance(value, (list, tuple)) else [value])]
    return words


class Run:
    """A run folder. Every access reads the files again, so it can be used while the run is training."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        if not (self.folder / "config.toml").is_file():
            raise FileNotFoundError(f"{folder} is not a run folder: it has no config.toml")

    @property
    def name(self):
        return self.folder.resolve().name

    @property
    def config(self):
        """Every option as it was resolved; "record" has the command, versions and machine."""
        return tomllib.loads((self.folder / "config.toml").read_text(encoding="utf-8"))

    @property
    def class_names(self):
        """By label; empty if the data has no class names."""
        file = self.folder / "classes.txt"
        return file.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if file.exists() else []

    @property
    def lines(self):
        """metrics.jsonl, one object per line. A line that is still being written is skipped."""
        file = self.folder / "metrics.jsonl"
        return _objects(file.read_text(encoding="utf-8")) if file.exists() else []

    def metrics(self, kind):
        """The lines of one kind as a table: "step", "evaluation", "checkpoint", "notice"."""
        rows = [line for line in self.lines if line.get("kind") == kind]
        return pandas.DataFrame(rows).drop(columns="kind", errors="ignore")

    @property
    def info(self):
        """The facts of the run: model, data, device, batch, steps."""
        return next((line for line in self.lines if line.get("kind") == "run"), {})

    @property
    def end(self):
        """How it ended; empty while it is training."""
        return next((line for line in reversed(self.lines) if line.get("kind") == "end"), {})

    @property
    def steps(self):
        return self.metrics("step")

    @property
    def evaluations(self):
        return self.metrics("evaluation")

    @property
    def checkpoints(self):
        return self.metrics("checkpoint")

    @property
    def telemetry(self):
        """Clocks, power and temperatures over time, of all ranks; empty without --telemetry."""
        files = sorted((self.folder / "profile").glob("telemetry*.csv"))
        return pandas.concat(map(pandas.read_csv, files), ignore_index=True) if files else pandas.DataFrame()

    @property
    def profile(self):
        """summary.json of `redline profile`; empty if nothing was profiled."""
        file = self.folder / "profile" / "summary.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def report(self, height=900):
        """The page of `redline report`, for a notebook."""
        return Report([self], height)

    def __repr__(self):
        return f"Run({str(self.folder)!r})"


class Report:
    """A page that a notebook shows inline."""

    def __init__(self, shown, height):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "report.html"
            _call("report", *[run.folder for run in shown], "-o", page, "-q")
            self.page = page.read_text(encoding="utf-8")
        self.height = height

    def _repr_html_(self):
        return (
            f'<iframe style="width:100%;border:0" height="{int(self.height)}" '
            f'srcdoc="{html.escape(self.page, quote=True)}"></iframe>'
        )


def runs(folder="runs"):
    """The runs in a folder, by name."""
    return [Run(path.parent) for path in sorted(pathlib.Path(folder).glob("*/config.toml"))]


def table(folder="runs"):
    """One row per run: its settings and progress."""
    rows = []
    for run in runs(folder):
        info, steps, evaluations = run.info, run.steps, run.evaluations
        rows.append({
            "name": run.name, "model": info.get("model"), "data": info.get("data"), "dtype": info.get("dtype"),
            "batch_size": info.get("batch_size"), "state": run.end.get("reason", "going on"), "steps": len(steps),
            "loss": steps["loss"].iloc[-1] if len(steps) else None,
            "best_top1": evaluations["top1"].max() if len(evaluations) else None,
        })  # fmt: skip
    return pandas.DataFrame(rows)


class Job:
    """A run that was started here."""

    def __init__(self, words, folder):
        self.folder, self.stopped = folder, False
        self.file = folder / "metrics.jsonl"
        self.before = self._resumes() if self.file.exists() else None  # nothing was there
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # a pipe that is not read would fill up
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=self.errors)

    def _resumes(self):
        """The times at which the run was resumed so far."""
        return {line["started"] for line in self.run.lines if line.get("kind") == "resume"}

    @property
    def run(self):
        return Run(self.folder)

    def follow(self, every=0.2):
        """Yields the lines of metrics.jsonl as they are written, until the run ends."""
        at, begun = 0, self.before is None
        while True:
            ended = self.process.poll() is not None
            if self.file.exists():
                with self.file.open("rb") as opened:
                    opened.seek(at)
                    new = opened.read()
                new = new[: new.rfind(b"\n") + 1]
                lines = _objects(new.decode("utf-8"))
                if not begun:  # a run that is resumed takes back lines first, then says so
                    while lines and not (lines[0].get("kind") == "resume" and lines[0]["started"] not in self.before):
                        lines.pop(0)
                    begun = bool(lines)
                at += len(new) if begun else 0
                yield from lines
            if ended:
                break
            time.sleep(every)
        self.wait()

    def wait(self):
        """Waits for the end and returns the run. Raises RuntimeError if it failed."""
        code = self.process.wait()
        if code != 0 and not (self.stopped and code in _STOPPED):
            self.errors.seek(0)
            raise RuntimeError(f"redline train ended with {code}: {self.errors.read().strip()}")
        return self.run

    def stop(self):
        """Asks it to stop: it finishes its step and writes a checkpoint. wait() waits for that."""
        self.stopped = True
        self.process.terminate()


def train(data, name, output_dir="runs", **options):
    """Starts `redline train` with options by their long names (batch_size=64, lr=0.1, amp=True), and does not wait."""
    words = [_program(), "train", str(data), "--name", name, "--output-dir", str(output_dir), "--quiet", *_flags(options)]
    return Job(words, pathlib.Path(output_dir) / name)


def predict(model, *images, **options):
    """Classifies images: one row per image and class, the likeliest first. Warns of images that cannot be read, which have
    no rows."""
    text, said = _call("predict", model, *images, "--format", "jsonl", "-q", *_flags(options), codes=(0, _BAD_DATA))
    found = _objects(text)
    if not found:
        raise RuntimeError(f"redline predict: {said}")
    unread = [f"{one['image']}: {one['error']}" for one in found if "error" in one]
    if unread:
        warnings.warn(f"{len(unread)} of {len(found)} images could not be read, the first {unread[0]}", stacklevel=2)
    rows = [{"image": one["image"], "rank": rank, **ranked}
            for one in found for rank, ranked in enumerate(one["predictions"], 1)]  # fmt: skip
    words = ["words"] if any("words" in row for row in rows) else []
    return pandas.DataFrame(rows, columns=["image", "rank", "class", "label", "probability", *words])
