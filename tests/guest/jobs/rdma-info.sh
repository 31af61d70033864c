# rdma-info.sh siw|rxe URL: what the program tells of a volume that it reaches by that adapter, to people and to programs.
. /rig/jobs/lib.sh

kind=$1 url=$2
export XDG_STATE_HOME=$SCRATCH/state
/host/sanwire info --iser-path rdma "$url" | tee "$SCRATCH/info"
for line in "^RDMA +by the adapter ${kind}0 .*; [1-9][0-9]* credits" '^STags +[0-9]+ good now, [0-9]+ in all' '^zero-copy +[a-z]' \
    '^received +.* of data, .* straight into its place'; do
    expect "$line" cat "$SCRATCH/info"
done
/host/sanwire info --iser-path rdma --json "$url" > "$SCRATCH/info"
for line in "\"adapter\": \"${kind}0 " '"path": "rdma"' '"credits": [1-9]' '"stags_ever": [0-9]'; do
    expect "$line" cat "$SCRATCH/info"
done
