# What the jobs of iSER share: the RDMA device that carries it, which is siw, the kernel's own iWARP over TCP.

# start_iser: the kernel can speak iSER on eth0.
start_iser() {
    modprobe -a ib_iser iw_cm rdma_cm siw
    rdma link show | grep -q '^link siw0/' || rdma link add siw0 type siw netdev eth0
    expect 'siw0/1 state ACTIVE' rdma link show
}
