#!/usr/bin/env bash
# Installs what is missing on Debian 12, and nothing else: packaging/setup.sh build|test|bench|package
set -euo pipefail

build_packages=(build-essential cmake)
package_packages=(debhelper dpkg-dev fakeroot mmdebstrap umoci binutils)
test_packages=(tshark tcpdump qemu-utils qemu-block-extra xfsprogs dosfstools mtools fuse3 nbd-client libnbd-bin nbdkit fio ethtool nftables
    iproute2 tgt prometheus tmux ceph-mon ceph-osd ceph-common
    libiscsi-bin vblade aoetools util-linux e2fsprogs jq qemu-system-x86 debootstrap debian-archive-keyring xz-utils ipxe syslinux
    lintian systemd runc python3-venv curl openssl clang lld)
bench_packages=(fio ethtool iproute2 tgt libiscsi-bin vblade util-linux e2fsprogs fuse3 nfs-ganesha nfs-ganesha-vfs rpcbind
    libnfs-utils)

case ${1:-} in
    build) wanted=("${build_packages[@]}") ;;
    test) wanted=("${build_packages[@]}" "${package_packages[@]}" "${test_packages[@]}") ;;
    package) wanted=("${build_packages[@]}" "${package_packages[@]}") ;;
    bench) wanted=("${build_packages[@]}" "${bench_packages[@]}") ;;
    *) echo "usage: packaging/setup.sh build|test|bench|package" >&2; exit 2 ;;
esac

# Rust installed by rustup may not be on the path of a fresh shell.
export PATH="$PATH:$HOME/.cargo/bin"
wanted_rust=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if ! found_rust=$(rustc --version 2>/dev/null | cut -d' ' -f2) || [ -z "$found_rust" ]; then
    echo "setup: Rust is not installed: install Rust $wanted_rust or newer (https://rustup.rs), then try again" >&2
    exit 1
fi
if [ "$(printf '%s\n' "$wanted_rust" "$found_rust" | sort -V | head -n 1)" != "$wanted_rust" ]; then
    echo "setup: Rust $found_rust is too old: Sanwire needs $wanted_rust or newer (rustup update stable)" >&2
    exit 1
fi

# Examples of programs for derived devices are compiled for WebAssembly; without this their tests say that they do not run.
webassembly=wasm32-unknown-unknown
if [ "$1" = test ] && [ ! -d "$(rustc --print target-libdir --target $webassembly)" ]; then
    rustup target add $webassembly || echo "setup: Rust's target $webassembly is not installed, so some tests are skipped" >&2
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "setup: this is no Debian: install what these packages hold, then run cargo yourself: ${wanted[*]}" >&2
    exit 1
fi
missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$status" = "install ok installed" ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "setup: nothing is missing (Rust $found_rust)"
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: as root, run: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
# Tests and measurements start their own. As services they would serve what nobody asked for: tgt would keep port 3260 from
# `sanwire serve`, prometheus 9090, and rpcbind (which nfs-ganesha comes with) 111.
for service in tgt prometheus nfs-ganesha rpcbind; do
    if [[ " ${missing[*]} " == *" $service "* ]] && [ -d /run/systemd/system ]; then
        "${as_root[@]}" systemctl disable --quiet --now "$service"
    fi
done
