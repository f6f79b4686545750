#!/bin/sh
# lost_rank.sh PLUGIN PROGRAM: the last of three ranks is killed; the job must end within seconds and name the missing
# rank.
here=$(dirname "$0")
# MPICH's mpiexec may be faster than the ranks and end them before they can print anything.
[ "${STARLING_MPIRUN:-}" != mpiexec.mpich ] || words=-disable-auto-cleanup
output=$(timeout 60 "$here/mpirun.sh" "$1" 3 ${words:-} "$2" --gtest_filter='*RankFailureTest.*AKilledRank*/mpi_3' 2>&1)
code=$?
echo "$output"
[ $code -ne 77 ] || exit 77
fail() { echo "FAILED: $1" && exit 1; }
[ $code -ne 124 ] || fail "the job did not end"
[ $code -ne 0 ] || fail "the job ended as if nothing had happened"
echo "$output" | grep -q 'lost rank 2 .*MPI cannot continue without it' || fail "nobody says that rank 2 is lost"
