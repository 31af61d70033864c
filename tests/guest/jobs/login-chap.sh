# login-chap.sh PORTAL IQN NAME SECRET TARGET_NAME TARGET_SECRET ALGORITHMS...: mutual CHAP, with wrong secrets, and with the right
# ones for each of these lists of algorithms, of which the target takes one: `MD5`, `SHA3-256,SHA256`.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh

portal=$1 iqn=$2 name=$3 secret=$4 target_name=$5 target_secret=$6
shift 6

# try SECRET TARGET_SECRET [SETTING=VALUE]...
try() {
    local chap=("node.session.auth.authmethod=CHAP" "node.session.auth.username=$name" "node.session.auth.password=$1"
        "node.session.auth.username_in=$target_name" "node.session.auth.password_in=$2")
    shift 2
    add_target "$portal" "$iqn" "${chap[@]}" "$@"
    iscsiadm -m node -T "$iqn" -p "$portal" --login
}

start_iscsi
add_target "$portal" "$iqn"
say 'without CHAP'
refuse 'authorization failure|Could not login' iscsiadm -m node -T "$iqn" -p "$portal" --login
say 'with a wrong secret of the initiator'
refuse 'authorization failure|Could not login' try wrongsecret1 "$target_secret"
say 'with a wrong secret of the target'
refuse 'authorization failure|Could not login' try "$secret" wrongsecret1
for algorithms in "$@"; do
    say "with $algorithms"
    try "$secret" "$target_secret" "node.session.auth.chap_algs=$algorithms"
    within 20 test -b "$(device_of "$portal" "$iqn")"
    logout "$portal" "$iqn"
done
