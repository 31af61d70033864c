# What the jobs of tokens share: tokens that stand for data (SBC-4 5.12 and 5.59), by sg3-utils.

# bytes HEX...: these bytes.
bytes() {
    local digits
    digits=$(tr -d ' ' <<< "$*")
    # shellcheck disable=SC2059
    printf "$(sed 's/../\\x&/g' <<< "$digits")"
}

# range LBA BLOCKS: a block device range descriptor, in hexadecimal digits.
range() { printf '%016x%08x00000000' "$1" "$2"; }

# populate DEVICE LIST_ID RANGE...: POPULATE TOKEN.
populate() {
    local device=$1 id=$2 ranges
    shift 2
    ranges=$(printf '%s' "$@")
    local length=$((${#ranges} / 2))
    bytes "$(printf '%04x' $((14 + length)))" 00000000000000000000 0000 "$(printf '%04x' $length)" "$ranges" > "$SCRATCH/list"
    # shellcheck disable=SC2046
    sg_raw -s $((16 + length)) -i "$SCRATCH/list" "$device" 83 10 00 00 00 00 00 00 00 "$id" 00 00 $(printf '%02x %02x' $(((16 + length) / 256)) $(((16 + length) % 256))) 00 00
}

# token DEVICE LIST_ID FILE: RECEIVE ROD TOKEN INFORMATION, of which the file gets the token.
token() {
    sg_raw -r 1024 -o "$SCRATCH/information" "$1" 84 07 00 00 00 "$2" 00 00 00 00 00 00 04 00 00 00 2> /dev/null
    [ "$(od -An -tx1 -N 6 "$SCRATCH/information")" = ' 00 00 02 22 10 01' ] || fail "no token: $(od -Ax -tx1 -N 64 "$SCRATCH/information")"
    tail -c 512 "$SCRATCH/information" > "$3"
}

# write_token DEVICE LIST_ID FILE OFFSET RANGE...: WRITE USING TOKEN.
write_token() {
    local device=$1 id=$2 token=$3 offset=$4 ranges
    shift 4
    ranges=$(printf '%s' "$@")
    local length=$((${#ranges} / 2))
    {
        bytes "$(printf '%04x' $((534 + length)))" 000000000000 "$(printf '%016x' "$offset")"
        cat "$token"
        bytes 000000000000 "$(printf '%04x' $length)" "$ranges"
    } > "$SCRATCH/list"
    local all=$((536 + length))
    # shellcheck disable=SC2046
    sg_raw -s $all -i "$SCRATCH/list" "$device" 83 11 00 00 00 00 00 00 00 "$id" 00 00 $(printf '%02x %02x' $((all / 256)) $((all % 256))) 00 00
}
