"""MLCommons' own compliance checker takes the MLPerf logs: of a real run, and of ImageNet's recipe in the closed division."""

import json
import logging
import os
import signal
import subprocess
import time

from helper import need, redline, scratch

checker = need("mlperf_logging.compliance_checker.mlp_compliance")
RULES = "4.0.0"  # the last with a ResNet
RECIPE = os.path.join(os.path.dirname(__file__), "..", "..", "recipes", "imagenet-mlperf.toml")


def accepted(log):
    """Whether the checker takes the log, its warnings counted as errors."""
    logging.disable(logging.CRITICAL)
    check = checker.make_checker("training", RULES, quiet=False, werror=True)
    valid, *_ = checker.main(log, f"training_{RULES}/common.yaml", check)
    return bool(valid), check.overwritable, check.not_overwritable


def lines(log):
    with open(log, encoding="utf-8") as file:
        return [json.loads(line.removeprefix(":::MLLOG ")) for line in file]


def recorded(path, text):
    try:
        with open(path, encoding="utf-8") as file:
            return text in file.read()
    except FileNotFoundError:
        return False


def keys(log):
    return [line["key"] for line in lines(log)]


with scratch() as folder:
    # A run of the open division that is stopped in its first epoch and goes on.
    data, runs = f"{folder}/pictures", f"{folder}/runs"
    redline("data", "synth", data, "--classes", 3, "--train", 24, "--val", 11, "--size", 32, "--quiet")
    log = f"{runs}/a/mlperf.log"
    train = ["train", data, "--model", "resnet18", "--image-size", 64, "-b", 1, "--epochs", 3, "--lr", 0.001, "--target-accuracy", 0.01, "-o", runs,
             "--name", "a", "--quiet", "--mlperf-log"]
    stopped = subprocess.Popen([os.environ["REDLINE"], *map(str, train)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while stopped.poll() is None and not recorded(f"{runs}/a/metrics.jsonl", '"step":2,'):
        time.sleep(0.02)
    stopped.send_signal(signal.SIGINT)
    assert stopped.wait() == 130, stopped.returncode
    assert keys(log)[-1] == "run_stop" and lines(log)[-1]["metadata"]["status"] == "aborted", keys(log)
    assert "eval_start" not in keys(log), keys(log)
    redline(*train, "--resume")
    said = keys(log)
    ended = lines(log)[-1]
    assert ended["key"] == "run_stop" and ended["metadata"]["status"] == "success", ended
    for key, count in {"run_start": 1, "run_stop": 1, "init_stop": 1, "resumed": 1}.items():
        assert said.count(key) == count, (key, said)
    for interval in ("epoch", "block", "eval"):
        assert said.count(f"{interval}_start") == said.count(f"{interval}_stop") > 0, (interval, said)
    assert said.count("eval_accuracy") == said.count("eval_start"), said
    values = {line["key"]: line["value"] for line in lines(log)}
    assert values["global_batch_size"] == 1 and values["train_samples"] == 24 and values["eval_samples"] == 11, values
    assert values["submission_division"] == "open" and 0 < values["eval_accuracy"] < 1, values
    stamps = [line["time_ms"] for line in lines(log)]
    assert stamps == sorted(stamps), stamps
    assert accepted(log)[0], accepted(log)

    # The recipe with LARS, and the same with SGD, are the closed division's where they reach its accuracy.
    for name, top1, optimizer, good in (("lars", 0.7593, [], True), ("sgd", 0.7593, ["sgd"], True), ("short", 0.7, [], False)):
        log = f"{folder}/{name}.log"
        subprocess.run([os.environ["MLPERF_PROBE"], RECIPE, log, str(top1), *optimizer], check=True)
        values = {line["key"]: line["value"] for line in lines(log)}
        assert values["submission_division"] == "closed", values
        assert accepted(log)[0] == good, (name, accepted(log))
    blocks = [line["metadata"] for line in lines(f"{folder}/lars.log") if line["key"] == "block_start"]
    assert [block["epoch_count"] for block in blocks] == [1] + [4] * 9, blocks
    assert [block["first_epoch_num"] for block in blocks][:3] == [1, 2, 6], blocks
