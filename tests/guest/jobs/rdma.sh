# What the jobs of RDMA for programs share: the kernel's two adapters in software, on one card, one at a time.

# start_rdma siw|rxe [CARD]: from now on programs have that one: iWARP over TCP, or RoCE.
start_rdma() {
    local kind=$1 card=${2:-eth0} module=siw other=rxe
    [ "$kind" = siw ] || { module=rdma_rxe; other=siw; }
    modprobe -a iw_cm rdma_cm rdma_ucm ib_uverbs "$module"
    ! rdma link show | grep -q "^link ${other}0/" || rdma link delete "${other}0"
    rdma link show | grep -q "^link ${kind}0/" || rdma link add "${kind}0" type "$kind" netdev "$card"
    expect "${kind}0/1 state ACTIVE" rdma link show
    # The connection manager for programs has its device node a moment later.
    within 10 test -e /dev/infiniband/rdma_cm
}
