#!/usr/bin/env bash
# Jobs of two ranks that lose one at a random moment, from their start to well into training, again and again:
# faults_test.sh <folder of the program> <KILL|STOP|CLOSE> <times> [seed]. KILL and STOP are signals to a rank, CLOSE breaks
# one of its connections. Every job must end with 75 within the limits that it was given, say which rank was lost, and leave
# no process behind.
set -euo pipefail
PATH=$(readlink -f -- "$1"):$PATH
fault=$2 times=$3
RANDOM=${4:-$((10#$(date +%N) % 32768))}
echo "seed ${4:-$RANDOM}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
if [ "$fault" = CLOSE ] && { [ "$(id -u)" -ne 0 ] || ! command -v ss >/dev/null; }; then
  echo "skipped: breaking a connection needs root and ss"
  exit 77
fi

fail() {
  echo "$fault $time after $((delay / 10)).$((delay % 10)) s, rank $victim: $*"
  cat err
  exit 1
}

# One of the connections that a process has to its peer, as a filter for ss; nothing while it has none.
connection_of() {
  ss -tnpH state established | awk -v me="pid=$1," 'index($0, me) { print "src", $3, "dst", $4 }' | shuf -n 1
}

for time in $(seq "$times"); do
  victim=$((RANDOM % 2)) delay=$((3 + RANDOM % 40))
  redline launch -g 2 -- train synthetic --model resnet18 --image-size 32 -b 2 --steps 1000000 --threads 1 --device cpu \
    --checkpoint-every 5 --comm-timeout 4 --join-timeout 8 --name "job$time" >out 2>err &
  job=$!
  for _ in $(seq 200); do
    mapfile -t ranks < <(pgrep -P "$job")
    [ ${#ranks[@]} -lt 2 ] || break
    sleep 0.1
  done
  [ ${#ranks[@]} -eq 2 ] || fail "the job has ${#ranks[@]} ranks"
  sleep $((delay / 10)).$((delay % 10))
  hit=${ranks[$victim]}
  begun=$SECONDS
  if [ "$fault" = CLOSE ]; then
    filter=
    for _ in $(seq 50); do
      filter=$(connection_of "$hit")
      [ -z "$filter" ] || break
      sleep 0.1
    done
    [ -n "$filter" ] || fail "it has no connection"
    # shellcheck disable=SC2086  # several words
    ss -K $filter >/dev/null 2>&1
  else
    kill -"$fault" "$hit"
  fi
  status=0
  timeout 40 tail --pid="$job" -f /dev/null || fail "the job still runs after 40 s"
  wait "$job" || status=$?
  [ "$status" -eq 75 ] || fail "the job ended with $status"
  named=$victim
  [ "$fault" != CLOSE ] || named='[01]'  # two ends of a connection are the same to it
  cause=$(sed -n 's/^\[rank [0-9]*\] //p' err | grep -m 1 "rank $named\b") || fail "no rank says who was lost"
  for rank in "${ranks[@]}"; do
    if kill -0 "$rank" 2>/dev/null; then fail "process $rank is left"; fi
  done
  echo "$fault $time after $((delay / 10)).$((delay % 10)) s, rank $victim: ended after $((SECONDS - begun)) s: ${cause:0:120}"
done
