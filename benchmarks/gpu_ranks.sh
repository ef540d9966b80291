#!/usr/bin/env bash
# What the exchange of gradients costs on one GPU: benchmarks/gpu_ranks.sh [rounds]. With one rank, training with and
# without it in turn; then two ranks that share the card, each said to be a machine of its own, so that NCCL takes its way
# over sockets: the longest that there is. `redline` and NCCL 2 must be found.
set -euo pipefail
rounds=${1:-3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
options=(synthetic --model resnet50 --image-size 224 --device cuda --dtype fp16 --log-every 1000 -q)
for round in $(seq "$rounds"); do
  for batch in 64 256; do
    steps=$((batch == 64 ? 160 : 60))
    redline train "${options[@]}" -b $batch --steps $steps --name "$batch.off.$round" >/dev/null
    redline train "${options[@]}" -b $batch --steps $steps --comm-when-alone --name "$batch.on.$round" >/dev/null
  done
done
for rank in 0 1; do
  NCCL_HOSTID=host$rank RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 \
    redline train "${options[@]}" -b 64 --steps 40 --name two >/dev/null &
done
wait
python3 - "$rounds" <<'PY'
import json
import statistics
import sys

rounds = range(1, int(sys.argv[1]) + 1)


def steps(name, warmup):
    with open(f"runs/{name}/metrics.jsonl") as file:
        return [record for record in map(json.loads, file) if record["kind"] == "step"][warmup:]


for batch in (64, 256):
    milliseconds = {how: [1000 * statistics.mean(s["seconds"] for s in steps(f"{batch}.{how}.{r}", 20)) for r in rounds]
                    for how in ("off", "on")}
    cost = [100 * (on / off - 1) for off, on in zip(milliseconds["off"], milliseconds["on"])]
    for how, values in milliseconds.items():
        print(f"batch {batch}, exchange {how}: ms a step", " ".join(f"{value:.3f}" for value in values))
    print(f"batch {batch}: the exchange costs {statistics.median(cost):.2f}%")
two = steps("two", 10)
seconds = [step["seconds"] for step in two]
exposed = [step["communication_seconds"] for step in two]
print(f"two ranks: {1000 * statistics.median(seconds):.1f} ms a step, {100 * sum(exposed) / sum(seconds):.1f}% of it exposed")
PY
