# What the jobs of RDMA for programs share: the kernel's two adapters in software, on one card, one at a time.

# add_rdma siw|rxe [CARD]: programs can have that one from now on.
add_rdma() {
    local kind=$1 card=${2:-eth0} module=siw
    [ "$kind" = siw ] || module=rdma_rxe
    # An adapter that goes away is taken from the last of these first. Those in software are taken from ib_uverbs only when no program has
    # them open any more, and programs hear of it by rdma_cm.
    modprobe -a ib_uverbs iw_cm rdma_cm rdma_ucm "$module"
    rdma link show | grep -q "^link ${kind}0/" || rdma link add "${kind}0" type "$kind" netdev "$card"
    expect "${kind}0/1 state ACTIVE" rdma link show
    # The connection manager for programs has its device node a moment later.
    within 10 test -e /dev/infiniband/rdma_cm
}

# start_rdma siw|rxe [CARD]: from now on programs have that one: iWARP over TCP, or RoCE.
start_rdma() {
    local other=rxe
    [ "$1" = siw ] || other=siw
    modprobe ib_core
    ! rdma link show | grep -q "^link ${other}0/" || rdma link delete "${other}0"
    add_rdma "$@"
}
