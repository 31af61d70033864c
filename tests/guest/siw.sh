# Part of build.sh: the kernel's iWARP over TCP, siw, which Debian's kernels are built without.

# add_siw DIRECTORY RELEASE: builds it from the source of this kernel, and puts it beside the kernel's own modules. Nothing is installed.
add_siw() {
    local release=$2 version=${2%%.*}.$(cut -d . -f 2 <<< "$2") flavour=${2##*-}
    local series=${release%-"$flavour"} downloads=$1/siw/packages tree=$1/siw/tree source=$1/siw/source
    mkdir -p "$downloads" "$tree" "$source"
    say "building siw for $release"
    (cd "$downloads" && private_apt apt-get download "linux-source-$version" "linux-headers-$release" "linux-headers-$series-common" \
        "linux-kbuild-$series" >&2) || unavailable "the source and the headers of $release cannot be downloaded from $mirror"
    local package
    for package in "$downloads"/linux-headers-*.deb "$downloads"/linux-kbuild-*.deb; do dpkg -x "$package" "$tree"; done
    dpkg --fsys-tarfile "$downloads"/linux-source-*.deb | tar -xO "./usr/src/linux-source-$version.tar.xz" |
        tar -xJ --wildcards --strip-components=5 -C "$source" '*/drivers/infiniband/sw/siw/*'
    local headers=$tree/usr/src/linux-headers-$release
    # It names its other half by where it would be installed.
    sed -i "s,/usr/src/,$tree/usr/src/," "$headers/Makefile"
    # Without type information, which would take a program more.
    make -s -C "$headers" M="$source" CC=gcc CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= modules >&2 || fail 'siw cannot be built'
    strip --strip-debug "$source/siw.ko"
    install -D -m 644 "$source/siw.ko" "$1/root/usr/lib/modules/$release/updates/siw.ko"
    rm -rf "$1/siw"
}
