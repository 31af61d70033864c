# What the jobs share. A job is run as `bash /rig/jobs/NAME.sh ARGUMENTS`, says on its output what it does, and fails by its status.
set -euo pipefail

readonly MOUNT_POINT=/mnt SCRATCH=/tmp

say() { printf '%s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }

# block_device PATH: the device's own name, as soon as udev has named it so. fio would take a path with colons, as those of iSCSI are, for
# several files.
block_device() {
    within 30 test -b "$1" >&2
    readlink -f "$1"
}

# expect PATTERN COMMAND...: the command succeeds, and its output has a line of this extended regular expression.
expect() {
    local pattern=$1 output
    shift
    output=$("$@" 2>&1) || fail "'$*' ended with status $?: $output"
    grep -Eq -- "$pattern" <<< "$output" || fail "'$*' has no line '$pattern': $output"
}

# refuse PATTERN COMMAND...: the command fails, and says this.
refuse() {
    local pattern=$1 output
    shift
    ! output=$("$@" 2>&1) || fail "'$*' should have failed: $output"
    grep -Eq -- "$pattern" <<< "$output" || fail "'$*' failed without a line '$pattern': $output"
}

# same_blocks DEVICE LBA COUNT FILE: so many blocks of 512 bytes at an address of such blocks are those of the file.
same_blocks() {
    dd if="$1" bs=512 skip="$2" count="$3" iflag=direct status=none | cmp - "$4" || fail "$1: other data at block $2"
}

# within SECONDS COMMAND...: the command succeeds in time, tried again and again. The guest is emulated, and on a busy host it is several times
# slower still.
within() {
    local limit_s=$(($1 * 4))
    shift
    local end=$((SECONDS + limit_s))
    until "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "after $limit_s s still not: $*"
        sleep 0.2
    done
}

# small COMMAND...: makes a file system, an XFS also on a disk of less than 300 MiB, which people should not have.
small() { TEST_DIR=/ TEST_DEV=/ QA_CHECK_FS=1 "$@"; }

# fill DIRECTORY COUNT: so many files of 1 byte to 1 MiB, and their checksums on stdout. The lengths are the same each time.
# They are of BLAKE2b, which takes an emulated processor a third of the time that SHA-256 takes.
fill() {
    local number length
    mkdir -p "$1"
    for number in $(seq 1 "$2"); do
        length=$((number * number * 7919 % 1048576 + 1))
        head -c $length /dev/urandom > "$1/file-$number"
    done
    (cd "$1" && b2sum file-*)
}
