# multipath.sh PORTAL_1 PORTAL_2 IQN: one device over two portals. Each link is cut in turn while fio writes: no write fails,
# and the path comes back.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh

iqn=$3
paths=()

# count_paths STATE COUNT
count_paths() { [ "$(multipathd show paths raw format '%t' | grep -c "$1")" = "$2" ]; }

start_multipath() {
    modprobe -a dm_multipath scsi_dh_alua
    # A path that is back is used again at once, and with all paths gone a write waits instead of failing.
    cat > /etc/multipath.conf << 'CONF'
defaults {
    user_friendly_names yes
    find_multipaths no
    polling_interval 1
    max_polling_interval 2
    no_path_retry queue
    path_grouping_policy multibus
}
CONF
    pidof multipathd > /dev/null || multipathd
    within 30 multipathd show daemon
}

start_multipath
for portal in "$1" "$2"; do
    login "$portal" "$iqn" node.session.timeo.replacement_timeout=5 'node.conn[0].timeo.noop_out_interval=1' \
        'node.conn[0].timeo.noop_out_timeout=3'
    paths+=("$(basename "$(readlink -f "$(device_of "$portal" "$iqn")")")")
done
within 30 count_paths active 2
device=/dev/mapper/$(multipathd show paths raw format '%d %m' | awk -v path="${paths[0]}" '$1 == path { print $2 }')
[ "$(multipathd show paths raw format '%m' | sort -u | wc -l)" = 1 ] || fail "$(multipathd show paths)"
say "${paths[*]} are $device"

fio --name=multipath --filename="$device" --ioengine=libaio --direct=1 --rw=randwrite --bs=16k --iodepth=8 --size=32m \
    --time_based --runtime=600 --verify=crc32c --do_verify=0 --rate_iops=200 > "$SCRATCH/fio" 2>&1 &
writer=$!
for card in eth0 eth1; do
    say "without $card"
    ip link set $card down
    within 60 count_paths failed 1
    sleep 2
    ip link set $card up
    within 60 count_paths active 2
done
kill -INT $writer
wait $writer && status=0 || status=$?
# fio that is interrupted ends with 128.
[ $status = 0 ] || [ $status = 128 ] || fail "fio ended with $status: $(cat "$SCRATCH/fio")"
! grep -qiE 'error=|Input/output' "$SCRATCH/fio" || fail "$(cat "$SCRATCH/fio")"
bash /rig/jobs/fio-verify.sh "$device"
multipath -f "${device##*/}"
kill "$(pidof multipathd)"
for portal in "$1" "$2"; do
    logout "$portal" "$iqn"
done
