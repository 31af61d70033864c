# What the jobs of iSER share: the RDMA devices that carry it.

# start_iser [CARD]...: the kernel can speak iSER on these cards; on eth0 if none is said. One that has no RDMA device yet gets siw, the
# kernel's own iWARP over TCP.
start_iser() {
    local card device
    modprobe -a ib_iser iw_cm rdma_cm
    for card in "${@:-eth0}"; do
        if ! rdma link show | grep -q "netdev $card"; then
            device=siw${card#eth}
            modprobe siw
            rdma link add "$device" type siw netdev "$card"
        fi
        expect "state ACTIVE .*netdev $card" rdma link show
    done
}
