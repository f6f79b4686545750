#!/bin/sh
# mpi_agent.sh [OPTIONS] HOST COMMAND...: what mpirun calls in place of ssh. Host h3 is the network namespace ${STARLING_BENCH_HOSTS}3
# and has its name to itself, so that Open MPI takes no two hosts for one.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "$STARLING_BENCH_HOSTS${host#h}" \
  unshare --uts sh -c "echo $host >/proc/sys/kernel/hostname && exec $*"
