#!/bin/sh
# own_host.sh PROGRAM...: runs as a rank that is alone on its host.
STARLING_HOST=host-${OMPI_COMM_WORLD_RANK:-$PMI_RANK} exec "$@"
