# copy.sh FROM TO: EXTENDED COPY from a logical unit to that of another target of the server, asked for at either of them. The
# first 3 MiB of TO are overwritten, and the first 2 MiB of FROM.
. /rig/jobs/lib.sh

from=$1 to=$2
for side in --on_src --on_dst; do
    head -c 2M /dev/urandom > "$SCRATCH/data"
    dd if="$SCRATCH/data" of="$from" bs=1M oflag=direct conv=notrunc status=none
    dd if=/dev/zero of="$to" bs=1M count=3 oflag=direct conv=notrunc status=none
    sg_xcopy if="$from" of="$to" $side bs=512 count=4096 seek=64
    same_blocks "$to" 64 4096 "$SCRATCH/data"
    say "copied with $side"
done
