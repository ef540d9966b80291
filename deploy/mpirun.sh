#!/bin/sh
# Trains with Open MPI's mpirun: deploy/mpirun.sh <ranks> <data> [options of redline train]
# On several machines add --hostfile, and -x MASTER_ADDR=<host of rank 0>. Redline divides the cores itself, hence
# --bind-to none.
set -eu
ranks=$1
data=$2
shift 2
exec mpirun -np "$ranks" --bind-to none redline train "$data" "$@"
