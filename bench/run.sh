#!/bin/sh
# Measures Sanwire, its peers and the bare link; needs root. `bench/run.sh hyperscsi`, `iscsi`, `iser`, `security`, `links`, `flood`, `frozen`,
# `scale`, `management`, `snapshots`, `paper`, `visa` or `raw` measures one part, `bench/run.sh --help` has the options.
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-target}
if [ "$(id -u)" != 0 ]; then
    echo "bench/run.sh: network namespaces and raw Ethernet need root: run it with sudo" >&2
    exit 2
fi
for tool in ip tc ethtool taskset nsenter unshare; do
    command -v "$tool" >/dev/null || {
        echo "bench/run.sh: $tool is missing: 'packaging/setup.sh bench' installs it" >&2
        exit 2
    }
done
"$cargo" build --release --quiet -p sanwire -p sanwire-bench
"$cargo" build --release --quiet -p sanwire-io --example rawlink
# What it mounts is seen by nobody else, and gone with it, however it ends.
exec unshare --mount "$target/release/sanwire-bench" run --programs "$target/release" --results bench/results "$@"
