# What the jobs of RDMA for programs share: the kernel's two adapters in software, on one card, one at a time.

# start_rdma siw|rxe [CARD]: from now on programs have that one: iWARP over TCP, or RoCE.
start_rdma() {
    local kind=$1 card=${2:-eth0} module=siw other=rxe
    [ "$kind" = siw ] || { module=rdma_rxe; other=siw; }
    # An adapter that goes away is taken from the last of these first. One of siw is taken from ib_uverbs only when no program has it open
    # any more, and programs hear of it by rdma_cm.
    modprobe -a ib_uverbs iw_cm rdma_cm rdma_ucm "$module"
    ! rdma link show | grep -q "^link ${other}0/" || rdma link delete "${other}0"
    rdma link show | grep -q "^link ${kind}0/" || rdma link add "${kind}0" type "$kind" netdev "$card"
    expect "${kind}0/1 state ACTIVE" rdma link show
    # The connection manager for programs has its device node a moment later.
    within 10 test -e /dev/infiniband/rdma_cm
}
