# What the jobs of iSER share: the RDMA devices that carry it, which are siw, the kernel's own iWARP over TCP.

# start_iser [CARD]...: the kernel can speak iSER on these cards; on eth0 if none is said.
start_iser() {
    local card device
    modprobe -a ib_iser iw_cm rdma_cm siw
    for card in "${@:-eth0}"; do
        device=siw${card#eth}
        rdma link show | grep -q "^link $device/" || rdma link add "$device" type siw netdev "$card"
        expect "$device/1 state ACTIVE" rdma link show
    done
}
