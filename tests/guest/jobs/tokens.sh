# tokens.sh DEVICE OTHER_DEVICE: tokens that stand for data (SBC-4 5.12 and 5.59), by sg3-utils. Both devices have blocks of 512 bytes and
# are of one server; their first 2 MiB are overwritten.
. /rig/jobs/lib.sh

device=$1 other=$2

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

expect '[Pp]opulate token' sg_opcodes "$device"
expect '[Ww]rite using token' sg_opcodes "$device"
expect '[Rr]ange [Dd]escriptors: 64' sg_vpd -p 0x8f "$device"
expect '[Dd]efault [Ii]nactivity [Tt]imeout: 30 seconds' sg_vpd -p 0x8f "$device"
expect '[Tt]oken [Tt]ransfer [Ss]ize: 2097152' sg_vpd -p 0x8f "$device"
expect '800001|hange [Vv]ulnerable' sg_vpd -p 0x8f "$device"
say 'the page is read'

head -c 2M /dev/urandom > "$SCRATCH/data"
dd if="$SCRATCH/data" of="$device" bs=1M oflag=direct conv=notrunc status=none
dd if=/dev/zero of="$other" bs=1M count=2 oflag=direct conv=notrunc status=none
expect 'Good' populate "$device" 07 "$(range 64 1000)" "$(range 8 24)"
token "$device" 07 "$SCRATCH/token"
expect 'Good' write_token "$other" 08 "$SCRATCH/token" 4 "$(range 100 1000)" "$(range 3000 20)"
{
    dd if="$SCRATCH/data" bs=512 skip=68 count=996 status=none
    dd if="$SCRATCH/data" bs=512 skip=8 count=4 status=none
} > "$SCRATCH/wanted"
same_blocks "$other" 100 1000 "$SCRATCH/wanted"
dd if="$SCRATCH/data" bs=512 skip=12 count=20 status=none > "$SCRATCH/wanted"
same_blocks "$other" 3000 20 "$SCRATCH/wanted"
say 'a token was written'

dd if="$SCRATCH/data" of="$device" bs=512 seek=70 count=1 oflag=direct conv=notrunc status=none
refuse 'oken cancelled|asc=23|23 08' write_token "$other" 08 "$SCRATCH/token" 0 "$(range 0 8)"
head -c 4096 /dev/zero > "$SCRATCH/wanted"
same_blocks "$other" 0 8 "$SCRATCH/wanted"
say 'a token of data that has changed is refused'

bytes ffff0001 000001f8 > "$SCRATCH/zeroes"
head -c 504 /dev/zero >> "$SCRATCH/zeroes"
expect 'Good' write_token "$other" 08 "$SCRATCH/zeroes" 0 "$(range 100 100)"
head -c 51200 /dev/zero > "$SCRATCH/wanted"
blockdev --flushbufs "$other"
same_blocks "$other" 100 100 "$SCRATCH/wanted"
say 'zeroes were written'
