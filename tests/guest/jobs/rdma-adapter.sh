# rdma-adapter.sh siw|rxe ADDRESS PROGRAM: the tests of crates/verbs, which PROGRAM is, over that adapter at an address of eth0.
. /rig/jobs/lib.sh
. /rig/jobs/rdma.sh

start_rdma "$1"
expect "$1" ibv_devices
export SANWIRE_RDMA_ADDRESS=$2
# A limit like that of people who are not root.
ulimit -l 65536
skipped=()
# A queue pair of rxe that ends before the windows of it are closed is never let go of, and the kernel warns (__rxe_cleanup).
[ "$1" != rxe ] || skipped=(--skip an_end_that_is_dropped_with_windows_lets_go_of_their_memory)
"$3" --include-ignored --test-threads=1 "${skipped[@]}" 2>&1 | tee "$SCRATCH/rdma-adapter"
# Each has found the adapter.
expect '^test result: ok\. [1-9][0-9]* passed; 0 failed; 0 ignored' cat "$SCRATCH/rdma-adapter"
! grep '^SKIPPED' "$SCRATCH/rdma-adapter" || fail 'a test has not run'
