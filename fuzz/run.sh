#!/usr/bin/env bash
# Runs every fuzz target, on the stable compiler: fuzz/run.sh SECONDS [TARGET...]
#
# cargo-fuzz asks for a nightly compiler only for its sanitizers; the coverage counters below are a stable compiler's
# too. Two targets run at a time, each with at most 1 GiB of memory. New inputs go to fuzz/work/TARGET, which starts
# from fuzz/corpus/TARGET; `fuzz/run.sh --keep` merges what they reach back into the corpus, smallest inputs first.
# A finding makes the run fail and is printed with the command that repeats it.
set -euo pipefail
cd "$(dirname "$0")"

# -Cdebug-assertions and overflow checks are in the profile.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
# A target triple on the command line keeps these flags away from build scripts.
triple=$(rustc -vV | sed -n 's/^host: //p')
target_directory=${CARGO_TARGET_DIR:-$PWD/target}

usage() {
    echo "usage: fuzz/run.sh SECONDS [TARGET...]   or   fuzz/run.sh --keep [TARGET...]" >&2
    exit 2
}

[ $# -ge 1 ] || usage
mode=$1
shift
[[ $mode == --keep || $mode =~ ^[0-9]+$ ]] || usage
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(basename -s .rs fuzz_targets/*.rs | sort)
fi

cargo build --release --quiet --target "$triple" --bins
programs=$target_directory/$triple/release

keep() {
    mkdir -p "corpus/$1" "work/$1"
    local merged
    merged=$(mktemp -d)
    "$programs/$1" -merge=1 -max_len=1024 "$merged" "corpus/$1" "work/$1" 2>/dev/null
    # Few and small: what a next run starts from, not an archive.
    rm -f "corpus/$1"/*
    find "$merged" -type f -printf '%s %p\n' | sort -n | head -n 60 | cut -d' ' -f2- | xargs -r cp -t "corpus/$1"
    rm -r "$merged"
}

fuzz() {
    mkdir -p "corpus/$1" "work/$1" "artifacts/$1"
    # Whole frames of Ethernet are inputs here, and some have 9,018 bytes.
    local longest=1500
    case $1 in hdsp_wire | aoe_*) longest=9100 ;; esac
    if "$programs/$1" -max_total_time="$mode" -rss_limit_mb=1024 -timeout=20 -max_len="$longest" -len_control=0 -print_final_stats=1 \
        -artifact_prefix="artifacts/$1/" "work/$1" "corpus/$1" >"work/$1.log" 2>&1; then
        local runs
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "work/$1.log")
        echo "ok   $1: $runs runs"
        return 0
    fi
    echo "FAIL $1:"
    grep -m 3 -E "panicked at|ERROR: libFuzzer|^SUMMARY" -A 1 "work/$1.log" | sed 's/^/     /'
    local input
    input=$(sed -n 's/.*Test unit written to //p' "work/$1.log" | head -n 1)
    echo "     repeat it: $programs/$1 $PWD/$input"
    echo "     the log:   $PWD/work/$1.log"
    return 1
}

failed=0
if [ "$mode" = --keep ]; then
    for target in "${targets[@]}"; do keep "$target"; done
    exit 0
fi
for target in "${targets[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do
        wait -n || failed=1
    done
    fuzz "$target" &
done
while [ -n "$(jobs -p)" ]; do
    wait -n || failed=1
    jobs >/dev/null
done
exit $failed
