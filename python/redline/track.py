"""Runs for experiment trackers, without a network: Weights & Biases' offline runs, and MLflow's stores.

    python -m redline.track wandb runs/first            # ./wandb/offline-run-…; then, with a network: wandb sync
    python -m redline.track mlflow runs/*               # MLflow's own database, mlflow.db; then: mlflow ui
    python -m redline.track mlflow runs/first --follow  # until the run ends

The trackers' own packages write, so the installed version can read it. A second call adds what is new and repeats nothing.
"""

import argparse
import contextlib
import datetime
import hashlib
import json
import math
import os
import pathlib
import sys
import time

from redline import Run

NOT_METRICS = {"step", "step_in_epoch"}
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


def identity(run):
    """An id that does not depend on the run's folder or on resuming: from the first line of its metrics."""
    if not run.info:
        raise ValueError(f"{run.folder} has no metrics yet")
    return hashlib.sha256(json.dumps(run.info, sort_keys=True).encode()).hexdigest()[:16]


def parameters(run):
    """Every option as "optimizer.lr", and what the run turned out to be: "run.device", "run.parameters"."""
    found = {f"run.{key}": value for key, value in run.info.items() if isinstance(value, (str, int, float))}
    for section, values in run.config.items():
        if section != "record":
            found.update({f"{section}.{key}": value for key, value in values.items()})
    return found


def numbers_of(line):
    """Of an evaluation as val/top1, of averaged weights as val_ema/top1; NaN and infinities as they were."""
    prefix = ""
    if line["kind"] == "evaluation":
        prefix = "val_ema/" if line.get("weights") == "ema" else "val/"
    found = {}
    for key, value in line.items():
        if value is None and f"{key}_text" in line:
            value = float(line[f"{key}_text"])
        if isinstance(value, (int, float)) and not isinstance(value, bool) and key not in NOT_METRICS:
            found[prefix + key] = value
    return found


def points(lines):
    """(step, {name: number}) by step. While a run is training, its last step is not included: an evaluation of that step
    may follow, and trackers take all numbers of a step at once."""
    found = {}
    for line in lines:
        if line.get("kind") in ("step", "evaluation"):
            found.setdefault(line["step"], {}).update(numbers_of(line))
    going_on = not lines or lines[-1].get("kind") != "end"
    return sorted(found.items())[: -1 if going_on else None]


class Seen:
    """The last step written so far, for each number."""

    def __init__(self, last=None):
        self.last = dict(last or {})

    def new(self, found):
        for step, numbers in found:
            fresh = {key: value for key, value in numbers.items() if step > self.last.get(key, -1)}
            if fresh:
                self.last.update(dict.fromkeys(fresh, step))
                yield step, fresh


class Wandb:
    """An offline run in folder/wandb. A closed offline run cannot be appended to, so every call with new data makes
    another one with the same id, and `wandb sync` merges them. folder/wandb/redline.json records what they contain."""

    def __init__(self, run, folder=".", project="redline"):
        self.run, self.folder, self.project = run, pathlib.Path(folder or "."), project
        self.id = identity(run)
        self.notes = self.folder / "wandb" / "redline.json"
        self.seen = Seen(self._noted().get(self.id))
        self.made = None

    def _noted(self):
        return json.loads(self.notes.read_text(encoding="utf-8")) if self.notes.exists() else {}

    def _open(self):
        import wandb

        self.folder.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(silent=True, console="off", x_disable_meta=True, x_disable_stats=True)
        self.made = wandb.init(mode="offline", dir=str(self.folder), project=self.project, id=self.id, resume="allow",
                               name=self.run.name, config=parameters(self.run), settings=settings)  # fmt: skip

    def add(self, found):
        for step, numbers in self.seen.new(found):
            if self.made is None:
                self._open()
            self.made.log(numbers, step=step)

    def close(self, end):
        if self.made is None:
            return "nothing new"
        for key, value in end.items():
            if key != "kind":
                self.made.summary[f"end/{key}"] = value
        place = pathlib.Path(self.made.dir).parent
        self.made.finish(exit_code=1 if end.get("reason") == "failed" else 0)
        noted = {**self._noted(), self.id: self.seen.last}
        partial = self.notes.with_suffix(".json.partial")
        partial.write_text(json.dumps(noted), encoding="utf-8")
        partial.replace(self.notes)
        return str(place)


class Mlflow:
    """An MLflow run: in the store of a URI (sqlite:///…, http://…), in a folder as MLflow's file store, or, without either,
    in MLflow's default store. The store is asked what it has, so that nothing is written twice."""

    def __init__(self, run, store=None, project="redline"):
        if store and "://" not in store:
            os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # or MLflow refuses, as it does not develop it any more
            store = pathlib.Path(store).resolve().as_uri()
        from mlflow.tracking import MlflowClient

        self.run, self.client = run, MlflowClient(tracking_uri=store)
        mark = identity(run)
        began = datetime.datetime.fromisoformat(run.info["started"].replace("Z", "+00:00"))
        self.start = self.last = int(began.timestamp() * 1000)
        known = self.client.get_experiment_by_name(project)
        place = known.experiment_id if known else self.client.create_experiment(project)
        there = self.client.search_runs([place], f"tags.`redline.id` = '{mark}'", max_results=1)
        self.seen = Seen()
        if there:
            self.id = there[0].info.run_id
            for key in there[0].data.metrics:
                self.seen.last[key] = max(one.step for one in self.client.get_metric_history(self.id, key))
        else:
            self.id = self.client.create_run(place, self.start, {"redline.id": mark}, run.name).info.run_id
            self._add_parameters()

    def _add_parameters(self):
        from mlflow.entities import Param

        found = [Param(key, str(value)[:6000]) for key, value in parameters(self.run).items()]
        for at in range(0, len(found), 100):  # as many as a batch may have
            self.client.log_batch(self.id, params=found[at : at + 100])

    def add(self, found):
        from mlflow.entities import Metric

        batch = []
        for step, numbers in self.seen.new(found):
            elapsed = max((value for key, value in numbers.items() if key.endswith("elapsed")), default=math.nan)
            if math.isfinite(elapsed):
                self.last = max(self.last, self.start + int(1000 * elapsed))
            batch += [Metric(key, float(value), self.last, step) for key, value in numbers.items()]
        for at in range(0, len(batch), 1000):  # as many as a batch may have
            self.client.log_batch(self.id, metrics=batch[at : at + 1000])

    def close(self, end):
        status = STATUS.get(end.get("reason"))
        if status:
            self.client.set_terminated(self.id, status, self.last)
        else:
            self.client.update_run(self.id, "RUNNING")
        return self.id


TRACKERS = {"wandb": Wandb, "mlflow": Mlflow}


def track(tracker, run, to=None, project="redline", follow=False, every=5.0):
    """Exports a run (redline.Run or its folder) to a tracker, "wandb" or "mlflow", and returns where it is. With `follow`,
    continues until the run ends, checking every `every` seconds; Ctrl-C stops earlier and keeps what was written."""
    run = run if isinstance(run, Run) else Run(run)
    place = TRACKERS[tracker](run, to, project)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            lines = run.lines
            place.add(points(lines))
            if not follow or (lines and lines[-1].get("kind") == "end"):
                break
            time.sleep(every)
    return place.close(run.end)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m redline.track", description=__doc__.splitlines()[0])
    parser.add_argument("tracker", choices=sorted(TRACKERS))
    parser.add_argument("runs", nargs="+", help="run folders")
    parser.add_argument("--to", help="wandb: the folder for wandb/; mlflow: a folder, or the URI of a store")
    parser.add_argument("--project", default="redline", help="W&B's project, or MLflow's experiment (redline)")
    parser.add_argument("--follow", action="store_true", help="continue until the run ends (one run only)")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between checks with --follow (5)")
    given = parser.parse_args(arguments)
    if given.follow and len(given.runs) > 1:
        parser.error("--follow takes one run")
    try:
        for folder in given.runs:
            made = track(given.tracker, folder, given.to, given.project, given.follow, given.every)
            print(f"{folder}: {made}")
    except ModuleNotFoundError as missing:
        return f"redline.track: {missing.name} is missing: pip install {given.tracker}"
    except Exception as wrong:
        if not isinstance(wrong, (OSError, ValueError)) and type(wrong).__module__.split(".")[0] not in TRACKERS:
            raise
        return f"redline.track: {wrong}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
