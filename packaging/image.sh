#!/usr/bin/env bash
# Builds a container image (an OCI layout in a tar file), without any daemon: packaging/image.sh [DIRECTORY], which has it then
# [default: target/image]. It takes root, or user name spaces.
#
#   SANWIRE_PROGRAM=FILE        with this program, and none is built
set -euo pipefail

readonly SUITE=bookworm PACKAGES=libc6,libgcc-s1,ca-certificates,base-files
# Nobody's number on the host: what the server keeps belongs to it.
readonly OWNER=10000
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
directory=${1:-$target/image}
export PATH=$PATH:$HOME/.cargo/bin
for tool in mmdebstrap umoci strip; do
    command -v "$tool" > /dev/null || { echo "image: the program $tool is missing: 'make setup' installs it" >&2; exit 1; }
done
program=${SANWIRE_PROGRAM:-}
if [ -z "$program" ]; then
    # Sources that came without their history are built all the same.
    commit=${SANWIRE_COMMIT:-$(git -C "$root" rev-parse --short=12 HEAD 2> /dev/null || echo unknown)}
    (cd "$root" && SANWIRE_COMMIT=$commit cargo build --release --locked --package sanwire)
    program=$target/release/sanwire
fi
version=$("$program" --version | cut -d ' ' -f 2)

mkdir -p "$directory"
build=$(mktemp -d "$directory/build.XXXXXX")
trap 'rm -rf "$build"' EXIT
# The mirror that this host's apt uses, which may be the only one it reaches.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Release: $SUITE" 'Component: main' | head -n 1)
mmdebstrap --quiet --variant=extract --include="$PACKAGES" "$SUITE" "$build/root" ${mirror:+"$mirror"} || {
    echo "image: Debian's packages cannot be downloaded" >&2
    # EX_TEMPFAIL
    exit 75
}
rm -rf "$build"/root/usr/share/{doc,man,info,locale,lintian} "$build"/root/var/cache/apt "$build"/root/var/lib/apt
# As its maintainer scripts would: what certificates are trusted, in one file.
cat "$build"/root/usr/share/ca-certificates/*/*.crt > "$build/root/etc/ssl/certs/ca-certificates.crt"
install -D "$program" "$build/root/usr/bin/sanwire"
strip "$build/root/usr/bin/sanwire"
install -d -o $OWNER -g $OWNER -m 700 "$build"/root/var/lib/sanwire/{server,volumes} "$build/root/run/sanwire"

options=()
[ "$(id -u)" = 0 ] || options+=(--rootless)
image=$build/image:$version
umoci init --layout "$build/image"
umoci new --image "$image"
umoci insert "${options[@]}" --image "$image" "$build/root" /
umoci config --image "$image" --author 'The Sanwire authors' --config.user $OWNER:$OWNER --config.workingdir / \
    --config.entrypoint /usr/bin/sanwire --config.cmd serve --config.stopsignal SIGTERM \
    --config.env STATE_DIRECTORY=/var/lib/sanwire/server --config.env RUNTIME_DIRECTORY=/run/sanwire \
    --config.env XDG_DATA_HOME=/var/lib/sanwire/volumes --config.exposedports 5674/udp \
    --config.exposedports 3260/tcp --config.label org.opencontainers.image.title=sanwire \
    --config.label org.opencontainers.image.version="$version"
umoci gc --layout "$build/image"
tar -C "$build/image" -cf "$directory/sanwire-$version.oci.tar" .
echo "$directory/sanwire-$version.oci.tar"
