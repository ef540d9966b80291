#!/usr/bin/env bash
# Slurm on this machine, with daemons of its own: two tasks of srun are two ranks, and so are two processes that MPICH's mpiexec
# starts within a job; deploy/slurm.sbatch runs as a batch job, and goes back to the queue when a rank is killed. slurm_test.sh <repository> <folder of the program>. Exits with 77 where the machine cannot.
set -euo pipefail
repository=$(readlink -f -- "$1")
PATH=$(readlink -f -- "$2"):$PATH

skip() {
  echo "skipped: $*"
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip "Slurm's daemons need root"
for tool in slurmctld slurmd munged srun; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done
if pgrep -x slurmctld >/dev/null; then skip "there is a Slurm already"; fi

folder=$(mktemp -d)
cd "$folder"
mkdir state spool
daemons=()  # files with the ids of what is started here
finish() {
  for file in "${daemons[@]}"; do
    if [ -s "$file" ]; then kill "$(cat "$file")" 2>/dev/null || true; fi
  done
  for _ in $(seq 100); do
    pgrep -x slurmctld >/dev/null || break
    sleep 0.1
  done
  rm -rf "$folder"
}
trap finish EXIT
if ! pgrep -x munged >/dev/null; then
  install -d -o munge -g munge /run/munge
  [ -e /etc/munge/munge.key ] || mungekey
  runuser -u munge -- munged
  daemons+=(/run/munge/munged.pid)
fi
host=$(hostname -s)
cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/ctld.pid
SlurmdPidFile=$folder/d.pid
SlurmctldPort=26817
SlurmdPort=26818
SlurmctldLogFile=$folder/ctld.log
SlurmdLogFile=$folder/d.log
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES OverSubscribe=YES State=UP
CONF
export SLURM_CONF=$folder/slurm.conf
daemons=("$folder/d.pid" "$folder/ctld.pid" "${daemons[@]}")
slurmctld
slurmd
for _ in $(seq 100); do
  if sinfo -h -o %T 2>/dev/null | grep -q idle; then break; fi
  sleep 0.2
done

expect() { # expect <file> <pattern>...
  local file=$1 pattern
  shift
  for pattern in "$@"; do
    grep -q "$pattern" "$file" || {
      echo "no '$pattern' in $file:"
      cat "$file"
      exit 1
    }
  done
}
small=(--model resnet18 --image-size 32 -b 2 --steps 3 --device cpu)
timeout 100 srun -n 2 --oversubscribe --overcommit redline train synthetic "${small[@]}" --name s >srun.out 2>&1
expect srun.out '2 ranks, launched by srun' '^3 steps of 2 x 2 images' '^  result    finished: 3 steps, 12 images'

# MPICH's mpiexec starts its own processes by srun, whose variables the ranks inherit.
if command -v mpiexec.mpich >/dev/null; then
  timeout 100 salloc -n 2 --oversubscribe --overcommit mpiexec.mpich -n 2 redline train synthetic "${small[@]}" --name h >mpiexec.out 2>&1
  expect mpiexec.out '2 ranks, launched by mpiexec' '^3 steps of 2 x 2 images'
fi

# The example as it stands, but for the machine that it asks for: what the command line says comes after it.
machine=(--nodes=1 --ntasks-per-node=2 --gpus-per-task=0 --cpus-per-task=1 --oversubscribe --overcommit)
timeout 150 sbatch --wait "${machine[@]}" --output=batch.out "$repository/deploy/slurm.sbatch" synthetic "${small[@]}" ||
  { cat batch.out; exit 1; }
expect batch.out '2 ranks, launched by srun' '^  result    finished: 3 steps, 12 images'
run=$(find runs -maxdepth 1 -name 'slurm-*')
[ -n "$run" ] || { echo "the batch job left no run"; exit 1; }
[ ! -e ".redline-token-${run##*-}" ] || { echo "the batch job left its token"; exit 1; }

# A rank is killed: the job goes back to the queue, with a checkpoint and without its token.
until_line() { # until_line <file> <pattern>
  for _ in $(seq 600); do
    if grep -q "$2" "$1" 2>/dev/null; then return; fi
    sleep 0.1
  done
  expect "$1" "$2"
}
job=$(sbatch --parsable "${machine[@]}" --output=lost.out "$repository/deploy/slurm.sbatch" synthetic "${small[@]}" --steps 40 \
  --checkpoint-every 1 --log-every 1)
until_line lost.out 'step 3/'
kill -9 "$(pgrep -xf "[^ ]*redline train .*--name slurm-$job .*" | tail -n 1)"
until_line lost.out 'result    failed'
for _ in $(seq 300); do
  if [ "$(squeue -h -j "$job" -o %T)" = PENDING ] && [ ! -e ".redline-token-$job" ]; then break; fi
  sleep 0.2
done
[ "$(squeue -h -j "$job" -o %T)" = PENDING ] || { cat lost.out; echo "the job is not in the queue"; exit 1; }
scancel "$job"
expect lost.out "start 2 ranks of redline train --resume runs/slurm-$job"
[ ! -e ".redline-token-$job" ] || { echo "the job that lost a rank left its token"; exit 1; }
echo "srun, mpiexec and sbatch ran"
