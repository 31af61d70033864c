# rdma-adapter.sh siw|rxe ADDRESS PROGRAM: the tests of crates/verbs, which PROGRAM is, over that adapter at an address of eth0.
. /rig/jobs/lib.sh
. /rig/jobs/rdma.sh

start_rdma "$1"
expect "$1" ibv_devices
export SANWIRE_RDMA_ADDRESS=$2
# A limit like that of people who are not root.
ulimit -l 65536
"$3" --test-threads=1
