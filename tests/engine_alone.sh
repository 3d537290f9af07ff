#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# The engine builds with a plain compiler call, no configuration and nothing but libc, libm and threads, from the files that
# docs/engine.md says to copy alone, for C and C++ callers. A project that takes it by add_subdirectory or FetchContent is configured;
# scripts/check-install builds such projects.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat > "$dir/user.c" <<'END'
#include <attn/attn.h>
#include <stdio.h>
int main(void)
{
    attn_context *context;
    attn_plan *plan;
    attn_problem problem;
    attn_heads heads = {1, 1, 2, 3, 4, 0, 0, ATTN_LAYOUT_BTHD, 0, 0, 0, 0, ATTN_CAUSAL_NONE, 0, false};
    float q[8] = {0}, k[12] = {0}, v[12] = {0, 1, 2, 3, 3, 3, 3, 3, 6, 6, 6, 6}, o[8];
    attn_arrays arrays = {0};
    arrays.q = q, arrays.k = k, arrays.v = v, arrays.o = o;
    if (attn_context_create(&context, NULL) != ATTN_OK || attn_problem_heads(&problem, &heads) != ATTN_OK ||
        attn_plan_create(&plan, context, &problem, NULL) != ATTN_OK ||
        attn_plan_execute(plan, &arrays, NULL) != ATTN_OK)
        return 1;
    attn_plan_destroy(plan);
    attn_context_destroy(context);
    return !(o[0] > 2.99f && o[0] < 3.01f); /* equal scores: the mean of the values */
}
END
# The line is the documents' own.
line=$(sed -n 's|^    cc -O2 \(.*\) examples/heads.c -lm -o heads$|\1|p' docs/engine.md)
grep -qF "\`cc -O2 $line\`" README.md || { echo "README.md and docs/engine.md compile the engine by different lines"; exit 1; }
# If the build was configured with a compiler launcher, such as ccache, the same files are compiled with the same flags by a call
# for each, which the launcher can answer.
launcher=$(sed -n 's/^CMAKE_C_COMPILER_LAUNCHER:[A-Z]*=//p' "${ATTN_BUILD:-build}/CMakeCache.txt" 2>/dev/null || true)
# The files are the documents' own, too.
copied=$(sed -n '/^To embed the engine, copy /,/into your project/p' docs/engine.md | tr '\n' ' ' | sed 's/ into your project.*//' |
    grep -oE '`[^`]+`' | tr -d '`')
[ "$copied" ] || { echo "docs/engine.md does not say which files are the engine"; exit 1; }
root=$PWD
for path in $copied; do
    mkdir -p "$dir/embedded/$(dirname "$path")"
    cp -r "$path" "$dir/embedded/$path"
done
cd "$dir/embedded"
flags=
if [ "$launcher" ]; then
    for word in $line; do
        case $word in
        *.c) "$launcher" cc -O0 $flags -c "$word" -o "$dir/$(echo "$word" | tr / _).o" ;;
        *) flags="$flags $word" ;;
        esac
    done
    cc -O0 $flags "$dir"/*.o "$dir/user.c" -lm -o "$dir/user"
else
    cc -O0 $line "$dir/user.c" -lm -o "$dir/user"
fi
"$dir/user"
cd "$root"
# outer NAME LINES: configures a project whose LINES take attn from $root, and links its engine
outer() {
    mkdir "$dir/$1"
    cp tests/consumer/main.c "$dir/$1"
    {
        printf 'cmake_minimum_required(VERSION 3.22)\nproject(user C)\nset(ATTN_ENGINE_ONLY ON)\nset(BUILD_SHARED_LIBS OFF)\n'
        cat
        printf 'add_executable(user main.c)\ntarget_link_libraries(user attn::engine)\n'
    } > "$dir/$1/CMakeLists.txt"
    cmake -S "$dir/$1" -B "$dir/$1/build" > "$dir/said" 2>&1 || { cat "$dir/said"; echo "attn is no part of another project by $1"; exit 1; }
    [ -z "$(find "$dir/$1/build" -type d -path '*attn*/tests')" ] || { echo "by $1 a project has attn's tests, too"; exit 1; }
}
outer add_subdirectory <<END
add_subdirectory("$root" attn)
END
outer FetchContent <<END
include(FetchContent)
FetchContent_Declare(attn SOURCE_DIR "$root")
FetchContent_MakeAvailable(attn)
END
if command -v c++ >/dev/null; then
    for header in include/attn/*.h; do
        echo "#include \"attn/$(basename "$header")\"" | c++ -x c++ -Iinclude -Wall -Werror -fsyntax-only -
    done
fi
