#!/usr/bin/env bash
# What the exchange of gradients costs on one GPU: benchmarks/gpu_ranks.sh [time of each comparison, 3m]. With one rank,
# training without and with it, in pairs (`redline bench ab`); then two ranks that share the GPU, each said to be a machine of
# its own, so that NCCL takes its way over sockets: the longest that there is. `redline` and NCCL 2 must be found.
set -euo pipefail
limit=${1:-3m}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
options=(--model resnet50 --image-size 224 --device cuda --dtype fp16 --log-every 1000)
for batch in 64 256; do
  redline bench ab "${options[@]}" -b $batch --warmup 20 --run-time 2s --precision 0.2% --time "$limit" \
    --json "$batch.json" -- -- --comm-when-alone >&2
done
for rank in 0 1; do
  NCCL_HOSTID=host$rank RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 \
    redline train synthetic "${options[@]}" -q -b 64 --steps 40 --name two >/dev/null &
done
wait
python3 - <<'PY'
import json
import statistics

for batch in (64, 256):
    with open(f"{batch}.json") as file:
        result = json.load(file)
    for side, how in (("a", "off"), ("b", "on")):
        seconds = statistics.median(run["step_seconds_p50"] for run in result["runs"] if run["side"] == side)
        print(f"batch {batch}, exchange {how}: {1000 * seconds:.3f} ms a step")
    change = result["images_per_second"]
    held = change["interval"]
    text = f", 95% interval {-100 * held['high']:.2f}% to {-100 * held['low']:.2f}%" if held else ""
    print(f"batch {batch}: the exchange costs {-100 * change['change']:.2f}%{text}; {result['pairs']} pairs, with it: "
          f"{result['verdict']}")
with open("runs/two/metrics.jsonl") as file:
    two = [record for record in map(json.loads, file) if record["kind"] == "step"][10:]
seconds = [step["seconds"] for step in two]
exposed = [step["communication_seconds"] for step in two]
print(f"two ranks: {1000 * statistics.median(seconds):.1f} ms a step, {100 * sum(exposed) / sum(seconds):.1f}% of it exposed")
PY
