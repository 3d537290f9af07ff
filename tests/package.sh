#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# The Debian packages, unpacked into an empty root: the command runs from there, its man pages and completions are
# where Debian looks for them, the links of its documents hold, a program builds against headers and library and runs, and
# where MPI is there two processes train together.
set -eu
cd "$(dirname "$0")/.."
: "${ATTN_BUILD:?the build directory}"
bad() { echo "$1"; exit 1; }
# These files repeat the version of attn.h.
version=$(sed -n 's/^#define ATTN_VERSION_[A-Z]* //p' include/attn/attn.h | paste -sd.)
grep -qF "\"version\": \"$version\"" packaging/vcpkg/attn-engine/vcpkg.json || bad "packaging/vcpkg/attn-engine/vcpkg.json is not of version $version"
head -1 packaging/debian/changelog | grep -qF "attn ($version-" || bad "packaging/debian/changelog does not begin with version $version"
[ -f "packaging/debian/libattn${version%.*}.symbols" ] || bad "packaging/debian has no package libattn${version%.*}, whose name has the version of the soname"
[ -f "packaging/debian/libattn-engine${version%%.*}.symbols" ] || bad "packaging/debian has no package libattn-engine${version%%.*}"
command -v dpkg-deb >/dev/null || { echo "not tried: no dpkg-deb here"; exit 77; }
[ -d "$ATTN_BUILD/share/man" ] || { echo "not tried: this build has no man pages (a sanitizer's, or for another machine)"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# CPack makes all of the build first, which other tests use at the same time; for Ninja it leaves that to the caller.
SOURCE_DATE_EPOCH=1700000000 cpack --config "$ATTN_BUILD/CPackConfig.cmake" -G DEB -B "$dir/out" \
    -D CPACK_CMAKE_GENERATOR=Ninja -D CPACK_OUTPUT_FILE_PREFIX="$dir/out" > "$dir/log" 2>&1 ||
    bad "cpack failed: $(tail -5 "$dir/log")"
packages="attn libattn1.0 libattn-engine1 libattn-dev"
[ ! -e "$ATTN_BUILD/attn-mpi.so" ] || packages="$packages attn-mpi"
[ "$(find "$dir/out" -maxdepth 1 -name '*.deb' | wc -l)" -eq "$(echo "$packages" | wc -w)" ] || bad "packages: $(ls "$dir/out")"
for package in $packages; do
    set -- "$dir"/out/${package}_*.deb
    dpkg-deb -x "$1" "$dir/root"
    if [ $package = attn ]; then # alone, as it may be installed
        sh tests/support/dead_links.sh "$dir/root/usr/share/doc/attn" || bad "package attn has links to files that it does not have"
    fi
    mkdir "$dir/control"
    dpkg-deb -e "$1" "$dir/control"
    grep -q "^Package: $package$" "$dir/control/control" || bad "$1 is not package $package"
    case $package in
    libattn-dev) grep -q '^Depends: libattn1.0 (= .*libattn-engine1 (= ' "$dir/control/control" || bad "libattn-dev does not bring libattn1.0 and libattn-engine1" ;;
    attn-mpi) ! command -v dpkg-shlibdeps >/dev/null || grep -q '^Depends: .*lib[a-z]*mpi' "$dir/control/control" ||
        bad "attn-mpi does not bring MPI" ;;
    *) ! command -v dpkg-shlibdeps >/dev/null || grep -q '^Depends: .*libc6 ' "$dir/control/control" ||
        bad "$package says nothing of the libraries that it needs" ;;
    esac
    [ $package = attn-mpi ] || ! grep -q '^Depends: .*lib[a-z]*mpi' "$dir/control/control" || bad "$package brings MPI along"
    [ -f "$dir/root/usr/share/doc/$package/copyright" ] || bad "$package has no copyright file"
    rm -r "$dir/control"
done

root=$dir/root/usr
"$root/bin/attn" version > /dev/null
[ "$(find "$root/share/man/man1" -name 'attn*.1.gz' | wc -l)" -eq $(($("$root/bin/attn" help --names | wc -l) + 1)) ] ||
    bad "not every command has its man page"
for file in bash-completion/completions/attn zsh/vendor-completions/_attn fish/vendor_completions.d/attn.fish \
    doc/attn/README.md; do
    [ -s "$root/share/$file" ] || bad "share/$file is missing"
done
if find "$root" -perm /022 -not -type l | grep .; then
    bad "these files are writable by others"
fi

if [ -e "$ATTN_BUILD/attn-mpi.so" ]; then
    [ -s "$root/lib/attn/attn-mpi.so" ] || bad "attn-mpi has no lib/attn/attn-mpi.so"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none
    train="train translate --data phrasebook --num-hiddens 8 --ffn-num-hiddens 8 --num-blks 1 --num-heads 2 --max-examples 30
           --epochs 1 --threads 1 --quiet --json"
    # shellcheck disable=SC2086
    timeout 120 mpirun -n 2 "$root/bin/attn" $train --out "$dir/trained" > "$dir/said" 2> "$dir/log" ||
        bad "two processes do not train: $(cat "$dir/log")"
    grep -q '"processes": 2' "$dir/said" || bad "two processes trained each for itself: $(cat "$dir/said")"
    mv "$root/lib/attn/attn-mpi.so" "$dir/aside.so"
    # shellcheck disable=SC2086
    ! timeout 120 mpirun -n 2 "$root/bin/attn" $train --out "$dir/alone" > "$dir/said" 2> "$dir/log" ||
        bad "without attn-mpi two processes train as if they were one each"
    grep -q 'attn-mpi.so cannot be loaded' "$dir/log" || bad "without attn-mpi: $(cat "$dir/log")"
    mv "$dir/aside.so" "$root/lib/attn/attn-mpi.so"
fi

flags=$(PKG_CONFIG_PATH=$root/lib/pkgconfig pkg-config --cflags --libs attn)
case $flags in *"$root"*) ;; *) bad "pkg-config says $flags, not where the library was unpacked" ;; esac
# shellcheck disable=SC2086
cc tests/consumer/main.c $flags -o "$dir/main"
LD_LIBRARY_PATH=$root/lib "$dir/main"
