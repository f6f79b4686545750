#!/bin/sh
# mpi_rank.sh FOLDER PROGRAM...: a rank that is told by one pipe in the folder and answers through another.
folder=$1
shift
exec >"$folder/out-$OMPI_COMM_WORLD_RANK" <"$folder/in-$OMPI_COMM_WORLD_RANK"
exec "$@"
