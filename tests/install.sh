#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# A ten-line program builds against the installed tree, found by CMake and by pkg-config, and the shared library
# exports nothing but public names.
set -eu
cd "$(dirname "$0")/.."
: "${ATTN_BUILD:?the build directory}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cmake --install "$ATTN_BUILD" --prefix "$dir/usr" >/dev/null
"$dir/usr/bin/attn" version >/dev/null

mkdir "$dir/user"
cp tests/consumer/main.c "$dir/user"
cat > "$dir/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(attn 1.0 REQUIRED)
add_executable(user main.c)
target_link_libraries(user attn::attn)
END
cmake -S "$dir/user" -B "$dir/user/build" -DCMAKE_PREFIX_PATH="$dir/usr" >/dev/null
cmake --build "$dir/user/build" >/dev/null
"$dir/user/build/user"

pc=$(dirname "$(find "$dir/usr" -name attn.pc)")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --define-variable=prefix="$dir/usr" --cflags --libs attn)
cc "$dir/user/main.c" $flags -o "$dir/user/plain"
lib=$(dirname "$(find "$dir/usr" -name 'libattn.so')")
LD_LIBRARY_PATH=$lib "$dir/user/plain"
# Where the loader does not look, as docs/c.md says it.
grep -qF -e '-Wl,-rpath,PREFIX/lib' docs/c.md && grep -qF 'sudo ldconfig' docs/c.md || { echo "docs/c.md does not say how the library is found"; exit 1; }
cc "$dir/user/main.c" $flags "-Wl,-rpath,$lib" -o "$dir/user/found"
env -u LD_LIBRARY_PATH "$dir/user/found"

foreign=$(nm -D --defined-only "$lib/libattn.so" | awk '$2 ~ /[TDBRV]/ {print $3}' | grep -vE '^attn_[a-z0-9]' || true)
hidden=$(nm -D --defined-only "$lib/libattn.so" | grep ' attn__' || true)
[ -z "$foreign$hidden" ] || { echo "exported but not public: $foreign $hidden"; exit 1; }
tools=$(find "$dir/usr/include" -path '*internal*'; nm -D --defined-only "$lib/libattn.so" | grep -E ' attn_(json|nearest|entries)_' || true)
[ -z "$tools" ] || { echo "the command's own tools are installed or exported: $tools"; exit 1; }
# Every installed header compiles without those that are not installed.
for header in "$dir"/usr/include/attn/*.h; do
    echo "#include <attn/$(basename "$header")>" | cc -x c -I"$dir/usr/include" -fsyntax-only - || exit 1
done
readlink "$lib/libattn.so" | grep -q 'libattn\.so\.1$'
