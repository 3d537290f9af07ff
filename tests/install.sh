#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# A ten-line program builds against the installed tree, found by CMake and by pkg-config, with each library: shared, static,
# the engine alone. The shared library exports nothing but public names, the documents' links hold, and uninstalling leaves nothing.
set -eu
cd "$(dirname "$0")/.."
: "${ATTN_BUILD:?the build directory}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cmake --install "$ATTN_BUILD" --prefix "$dir/usr" >/dev/null
mkdir "$dir/manifests" && mv "$ATTN_BUILD/install_manifest.txt" "$dir/manifests"
"$dir/usr/bin/attn" version >/dev/null

mkdir "$dir/user"
cp tests/consumer/*.c "$dir/user"
cat > "$dir/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(attn 1.0 REQUIRED COMPONENTS static)
find_package(attn-engine 1.0 REQUIRED)
foreach(library attn attn_static engine engine_static)
  if(library MATCHES engine)
    add_executable(user_${library} main.c)
  else()
    add_executable(user_${library} library.c)
  endif()
  target_link_libraries(user_${library} attn::${library})
endforeach()
END
cmake -S "$dir/user" -B "$dir/user/build" -DCMAKE_PREFIX_PATH="$dir/usr" >/dev/null
cmake --build "$dir/user/build" >/dev/null
for library in attn attn_static engine engine_static; do
    "$dir/user/build/user_$library"
done
# Without the packages of what the static library links, a program that links the shared one is configured.
sed -i 's/ COMPONENTS static//; s/ attn_static / /' "$dir/user/CMakeLists.txt"
cmake -S "$dir/user" -B "$dir/user/bare" -DCMAKE_PREFIX_PATH="$dir/usr" -DCMAKE_DISABLE_FIND_PACKAGE_PNG=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON >/dev/null
# A version that the library does not promise to be is not found.
for wanted in 1.9 2.0; do
    sed "s/find_package(attn 1.0/find_package(attn $wanted/" "$dir/user/CMakeLists.txt" > "$dir/other.txt"
    mkdir -p "$dir/other" && cp "$dir"/user/*.c "$dir/other" && mv "$dir/other.txt" "$dir/other/CMakeLists.txt"
    ! cmake -S "$dir/other" -B "$dir/other/$wanted" -DCMAKE_PREFIX_PATH="$dir/usr" >/dev/null 2>&1 ||
        { echo "find_package(attn $wanted) finds 1.0"; exit 1; }
done

pc=$(dirname "$(find "$dir/usr" -name attn.pc)")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --define-variable=prefix="$dir/usr" --cflags --libs attn)
lib=$(dirname "$(find "$dir/usr" -name 'libattn.so')")
# tests/consumer/NAME.c uses attn/NAME.h, as its first example does, and checks the results; it writes to the folder it is given.
for program in "$dir"/user/*.c; do
    mkdir "${program%.c}"
    cc -std=c11 -Wall -Wextra -Werror "$program" $flags -lm -o "${program%.c}.run"
    LD_LIBRARY_PATH=$lib "${program%.c}.run" "${program%.c}" || { echo "tests/consumer/$(basename "$program") failed"; exit 1; }
done
# Where the loader does not look, as docs/c.md says it.
grep -qF -e '-Wl,-rpath,PREFIX/lib' docs/c.md && grep -qF 'sudo ldconfig' docs/c.md || { echo "docs/c.md does not say how the library is found"; exit 1; }
cc "$dir/user/main.c" $flags "-Wl,-rpath,$lib" -o "$dir/user/found"
env -u LD_LIBRARY_PATH "$dir/user/found"

# The static libraries, whose .pc names what they link.
for name in attn attn-engine; do
    static=$(PKG_CONFIG_PATH=$pc pkg-config --static --define-variable=prefix="$dir/usr" --cflags --libs $name |
        sed "s/-l$name /-l:lib$name.a /")
    case $static in *"-l:lib$name.a "*) ;; *) echo "pkg-config --static $name says $static"; exit 1 ;; esac
    program=library
    [ $name = attn ] || program=main
    cc "$dir/user/$program.c" $static -o "$dir/user/static"
    env -u LD_LIBRARY_PATH "$dir/user/static"
    if ldd "$dir/user/static" | grep libattn; then echo "$name: not linked statically"; exit 1; fi
done

foreign=$(nm -D --defined-only "$lib/libattn.so" | awk '$2 ~ /[TDBRV]/ {print $3}' | grep -vE '^attn_[a-z0-9]' || true)
hidden=$(nm -D --defined-only "$lib/libattn.so" | grep ' attn__' || true)
[ -z "$foreign$hidden" ] || { echo "exported but not public: $foreign $hidden"; exit 1; }
tools=$(find "$dir/usr/include" -path '*internal*'; nm -D --defined-only "$lib/libattn.so" | grep -E ' attn_(json|nearest|entries)_' || true)
[ -z "$tools" ] || { echo "the command's own tools are installed or exported: $tools"; exit 1; }
# Every installed header compiles without those that are not installed.
for header in "$dir"/usr/include/attn/*.h; do
    echo "#include <attn/$(basename "$header")>" | cc -x c -I"$dir/usr/include" -fsyntax-only - || exit 1
    [ -e "tests/consumer/$(basename "$header" .h).c" ] || { echo "tests/consumer has no program that uses $header"; exit 1; }
done
readlink "$lib/libattn.so" | grep -q 'libattn\.so\.1\.0$'
readlink "$lib/libattn-engine.so" | grep -q 'libattn-engine\.so\.1$'
# The engine's library needs nothing but libc, libm and the loader.
needed=$(readelf -d "$lib/libattn-engine.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|libpthread|ld-linux.*)\.so' || true)
[ -z "$needed" ] || { echo "libattn-engine.so needs $needed"; exit 1; }

# Every link of the installed documents leads to a file.
doc=$(dirname "$(find "$dir/usr" -name README.md -path '*doc/attn/README.md')")
sh tests/support/dead_links.sh "$doc"

cmake -DMANIFESTS="$dir/manifests" -P cmake/uninstall.cmake
left=$(find "$dir/usr" ! -type d)
[ -z "$left" ] || { echo "uninstalling leaves $left"; exit 1; }
[ ! -e "$doc" ] || { echo "uninstalling leaves $doc"; exit 1; }
