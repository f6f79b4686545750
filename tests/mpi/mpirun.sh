#!/bin/sh
# mpirun.sh PLUGIN RANKS PROGRAM [ARGS...]: runs under mpirun with the fabric mpi; exits with 77 (skipped) if there is
# none. STARLING_MPIRUN selects another launcher, such as mpiexec.mpich; it must belong to the MPI that the plugin was
# built with.
plugin=$1 ranks=$2
shift 2
skip() { echo "skipped: $1" && exit 77; }
[ -e "$plugin" ] || skip "the fabric mpi is not built here (Debian: libopenmpi-dev)"
mpirun=${STARLING_MPIRUN:-mpirun}
command -v "$mpirun" >/dev/null || skip "there is no $mpirun here (Debian: openmpi-bin)"
if "$mpirun" --version | grep -q 'Open MPI'; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  # Ranks share cores with each other and with other tests.
  set -- --oversubscribe --bind-to none --timeout 200 --mca mpi_yield_when_idle 1 "$@"
elif [ "$1" = --mca ]; then
  skip "only Open MPI knows $*"
fi
export STARLING_TEST_FABRIC=mpi
exec "$mpirun" -n "$ranks" "$@"
