#!/usr/bin/env bash
# What the way of a batch to the GPU does to training: each --input-copy against pinned memory, in pairs
# (`redline bench ab`), on synthetic batches and on files that the CPU decodes.
#   benchmarks/input_copy.sh [time of each comparison, 1m] >results.csv        with redline in PATH
# Prints a line a comparison, as CSV; there are ten.
set -euo pipefail
limit=${1:-1m}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
redline data synth "$work/pictures" --train 4096 --val 16 --size 256 >/dev/null

# compare <data> <name in the table> <way>
compare() {
  redline bench ab --data "$1" --device cuda --model resnet18 --dtype fp16 --image-size 224 -b 256 --warmup 15 \
    --run-time 2s --precision 0.5% --time "$limit" --json "$work/result.json" -- --input-copy pinned -- \
    --input-copy "$3" >&2
  python3 - "$2" "$3" "$work/result.json" <<'PY'
import json
import statistics
import sys

data, way, path = sys.argv[1:]
with open(path) as file:
    result = json.load(file)
speeds = [statistics.median(run["images_per_second"] for run in result["runs"] if run["side"] == side) for side in "ab"]
change = result["images_per_second"]
held = change["interval"] or {"low": "", "high": ""}
print(data, way, *speeds, change["change"], held["low"], held["high"], result["pairs"], result["verdict"], sep=",")
PY
}

echo data,input_copy,pinned_images_per_second,images_per_second,change,change_low,change_high,pairs,verdict
for way in pageable write-combined mapped managed chunked; do
  compare synthetic synthetic "$way"
  compare "$work/pictures" pictures "$way"
done
