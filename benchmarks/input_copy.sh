#!/usr/bin/env bash
# What the way of a batch to the GPU does to training: every --input-copy twice, in turns, on synthetic batches and on
# files that the CPU decodes. Prints a line a run, as CSV; needs about a minute and a half on an H200.
#   benchmarks/input_copy.sh >results.csv            with redline in PATH
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
redline data synth "$work/pictures" --train 4096 --val 16 --size 256 >/dev/null

# run <data> <name in the table> <round> <way> <steps> <steps that warm up>
run() {
  redline bench throughput --models resnet18 --dtype fp16 --image-size 224 -b 256 --data "$1" --stop-iteration "$5" \
    --rounds 1 --warmup "$6" --input-copy "$4" -o "$work/out" >/dev/null
  [ -n "${head_done:-}" ] || sed -n '1s/^/data,input_copy,round,/p' "$work/out/throughput.csv"
  head_done=1
  sed -n "2s/^/$2,$4,$3,/p" "$work/out/throughput.csv"
}

ways=(pinned pageable write-combined mapped managed chunked)
for round in 1 2; do for way in "${ways[@]}"; do run synthetic synthetic "$round" "$way" 120 20; done; done
for round in 1 2; do for way in "${ways[@]}"; do run "$work/pictures" pictures "$round" "$way" 60 15; done; done
