# digests.sh PORTAL IQN: header and data digests are on, and what is written is read again.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh

login "$1" "$2" 'node.conn[0].iscsi.HeaderDigest=CRC32C' 'node.conn[0].iscsi.DataDigest=CRC32C'
for digest in HeaderDigest DataDigest; do
    expect "$digest: CRC32C" iscsiadm -m session -P 2
done
bash /rig/jobs/fio-verify.sh "$(device_of "$1" "$2")"
logout "$1" "$2"
expect 'No active sessions|^$' bash -c 'iscsiadm -m session 2>&1 || true'
