#!/usr/bin/env bash
# Builds the Debian package: packaging/package.sh [DIRECTORY], which has the packages then [default: target/package].
#
#   DEB_BUILD_OPTIONS=noopt     quickly, with the program of `cargo build`
#   SANWIRE_PROGRAM=FILE        with this program, and none is built
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
directory=${1:-${CARGO_TARGET_DIR:-$root/target}/package}
for tool in dpkg-buildpackage dh; do
    command -v "$tool" > /dev/null || { echo "package: the program $tool is missing: 'make setup' installs it" >&2; exit 1; }
done
# debhelper gives its commands another home, where cargo would find neither toolchain nor crates.
export PATH=$PATH:$HOME/.cargo/bin CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
export SANWIRE_SOURCE=$root
# A tree of its own: what debhelper makes is not among the sources, and two builds do not disturb each other.
mkdir -p "$directory"
build=$(mktemp -d "$directory/build.XXXXXX")
trap 'rm -rf "$build"' EXIT
mkdir "$build/sanwire"
cp -r "$root/packaging/debian" "$build/sanwire/debian"
(cd "$build/sanwire" && dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes --no-check-builddeps > "$build/log" 2>&1) || {
    cat "$build/log" >&2
    exit 1
}
mv "$build"/*.deb "$build"/*.changes "$build"/*.buildinfo "$directory/"
ls "$directory"/*.deb
