# What the jobs of multipath share: one device over two portals, named by the arguments PORTAL_1 PORTAL_2 IQN.

# count_paths STATE COUNT
count_paths() { [ "$(multipathd show paths raw format '%t' | grep -c "$1")" = "$2" ]; }

start_multipath() {
    modprobe -a dm_multipath scsi_dh_alua
    # A path that is back is used again at once, and with all paths gone a write waits instead of failing. All paths of the
    # best state share the work.
    cat > /etc/multipath.conf << 'CONF'
defaults {
    user_friendly_names yes
    find_multipaths no
    polling_interval 1
    max_polling_interval 2
    no_path_retry queue
    path_grouping_policy group_by_prio
    prio alua
    failback immediate
}
CONF
    pidof multipathd > /dev/null || multipathd
    within 30 multipathd show daemon
}

# join_paths PORTAL_1 PORTAL_2 IQN [SETTING=VALUE]...: logs in by both; gives `paths`, the names of their devices, and `device`, what is above them.
join_paths() {
    local portal iqn=$3
    start_multipath
    paths=()
    for portal in "$1" "$2"; do
        login "$portal" "$iqn" node.session.timeo.replacement_timeout=5 'node.conn[0].timeo.noop_out_interval=1' \
            'node.conn[0].timeo.noop_out_timeout=3' "${@:4}"
        paths+=("$(basename "$(readlink -f "$(device_of "$portal" "$iqn")")")")
    done
    within 30 count_paths active 2
    device=/dev/mapper/$(multipathd show paths raw format '%d %m' | awk -v path="${paths[0]}" '$1 == path { print $2 }')
    [ "$(multipathd show paths raw format '%m' | sort -u | wc -l)" = 1 ] || fail "$(multipathd show paths)"
    say "${paths[*]} are $device"
}

# begin_writing DEVICE: in the background, until end_writing.
begin_writing() {
    fio --name=multipath --filename="$1" --ioengine=libaio --direct=1 --rw=randwrite --bs=16k --iodepth=8 --size=32m \
        --time_based --runtime=3600 --verify=crc32c --do_verify=0 --rate_iops=200 > "$SCRATCH/fio" 2>&1 &
    writer=$!
}

# end_writing WRITER: none of its writes has failed.
end_writing() {
    kill -INT "$1"
    tail --pid="$1" -f /dev/null
    grep -q 'err= 0' "$SCRATCH/fio" && ! grep -qiE 'error=|Input/output' "$SCRATCH/fio" || fail "$(cat "$SCRATCH/fio")"
}

# part_paths PORTAL_1 PORTAL_2 IQN DEVICE
part_paths() {
    local portal
    # After a path has changed, udev has the map open for a moment.
    within 30 multipath -f "${4##*/}"
    kill "$(pidof multipathd)"
    rm /etc/multipath.conf
    for portal in "$1" "$2"; do
        logout "$portal" "$3"
    done
}
