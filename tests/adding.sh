#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# docs/adding-a-score.md and docs/adding-a-solver.md are true: their files and rows, taken from the pages and put into a copy of
# the sources, give a score that computes what the page's formula says and a solver that the planner finds, and pass the tests
# that every score and every solver passes.
set -eu
cd "$(dirname "$0")/.."
: "${ATTN_BUILD:?the build directory}"
if nm "$ATTN_BUILD/libattn.a" 2>/dev/null | grep -qE '__(asan|tsan)_'; then
    echo "not tried: the engine is rebuilt without the sanitizer that its kernels have"
    exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tests" "$dir/objects"
cp -R include src "$dir/"
cp -R tests/support tests/test_attend_scores.c tests/test_attend_random.c "$dir/tests/"

# A page's first fenced block of C is the file, its second the row.
block() {
    awk -v wanted="$2" '/^```c$/ {n++; inside = 1; next} /^```/ {inside = 0} inside && n == wanted' "docs/$1"
}
block adding-a-score.md 1 > "$dir/src/engine/attend/scores/score_cosine.c"
block adding-a-score.md 2 > "$dir/row"
block adding-a-solver.md 1 > "$dir/src/engine/attend/solve/one_key.c"
block adding-a-solver.md 2 > "$dir/line"
[ "$(cat "$dir/row" "$dir/line" | wc -l)" -eq 2 ] || { echo "a page's second block is not one row"; exit 1; }
awk -v line="$(cat "$dir/line")" '/^X\(/ && !n++ {print line} {print}' src/engine/attend/plan/solvers.inc > "$dir/src/engine/attend/plan/solvers.inc"
awk -v row="$(sed 's/\\$/@/' "$dir/row")" '/add new rows above this line/ {sub(/@$/, "\\", row); print row} {print}' \
    include/attn/attn.h > "$dir/include/attn/attn.h"

cat > "$dir/user.c" <<'END'
#include "attn/attn.h"
#include <math.h>
#include <stdio.h>
int main(void) /* two keys, one along the query and one across: weights e : 1 */
{
    const float q[2] = {3, 4}, k[4] = {6, 8, -4, 3}, v[2] = {1, 0};
    float o;
    attn_context *context;
    attn_plan *plan;
    attn_problem problem;
    attn_heads heads = {.batch = 1, .heads = 1, .queries = 1, .keys = 2, .dim = 2, .dim_value = 1};
    if (attn_context_create(&context, NULL) != ATTN_OK ||
        attn_problem_heads(&problem, &heads) != ATTN_OK)
        return 1;
    problem.score = ATTN_SCORE_COSINE;
    if (attn_plan_create(&plan, context, &problem, NULL) != ATTN_OK ||
        attn_plan_execute(plan, &(attn_arrays){.q = q, .k = k, .v = v, .o = &o}, NULL) != ATTN_OK) {
        puts(attn_context_error(context));
        return 1;
    }
    attn_plan_destroy(plan);
    attn_context_destroy(context);
    return fabsf(o - (float)(exp(1) / (exp(1) + 1))) > 1e-6f;
}
END
cat > "$dir/user_solver.c" <<'END'
#include "attn/attn.h"
#include <stdio.h>
#include <string.h>
int main(void) /* one key: the output is its value; of two keys the new solver says what it lacks */
{
    const float q[2] = {3, 4}, k[2] = {6, 8}, v[1] = {7};
    float o = 0;
    attn_context *context;
    attn_plan *plan, *none;
    attn_problem problem, two;
    attn_plan_options options = {.solver = "one_key"};
    attn_heads heads = {.batch = 1, .heads = 1, .queries = 1, .keys = 1, .dim = 2, .dim_value = 1};
    if (attn_context_create(&context, NULL) != ATTN_OK || attn_problem_heads(&problem, &heads) != ATTN_OK ||
        attn_plan_create(&plan, context, &problem, &options) != ATTN_OK ||
        attn_plan_execute(plan, &(attn_arrays){.q = q, .k = k, .v = v, .o = &o}, NULL) != ATTN_OK) {
        puts(attn_context_error(context));
        return 1;
    }
    heads.keys = 2;
    attn_problem_heads(&two, &heads);
    int refused = attn_plan_create(&none, context, &two, &options) == ATTN_ERROR_UNSUPPORTED &&
                  strstr(attn_context_error(context), "more keys than one") != NULL;
    attn_plan_destroy(plan);
    attn_context_destroy(context);
    return o != 7 || !refused;
}
END

# What answers repeated compilations, such as ccache, if the build was configured with it.
launcher=$(sed -n 's/^CMAKE_C_COMPILER_LAUNCHER:[A-Z]*=//p' "$ATTN_BUILD/CMakeCache.txt")
# The problem's floor is compiled anew; base and kernels, which do not depend on scores, are taken from the build.
cd "$dir"
printf '%s\n' src/engine/attend/*/*.c tests/support/*.c tests/test_attend_*.c user.c user_solver.c | grep -v simd_probe |
    xargs -P 2 -n 12 sh -c 'd=$1 launcher=$2; shift 2; for f; do $launcher cc -std=gnu11 -O0 -w -Iinclude -Isrc -Isrc/engine -Isrc/networks -Isrc/files -Itests -c "$f" \
        -o "$d/$(basename "$f" .c).o" || exit 1; done' sh objects "$launcher"
cd objects
shared=$(ls ./*.o | grep -v -e './user' -e './test_')
ar rc libshared.a $shared # of the tests' support only what they need: the rest knows tensors
for program in user user_solver test_attend_scores test_attend_random; do
    cc $program.o libshared.a "$ATTN_BUILD/libattn.a" -pthread -lcmocka -lm -o $program
done
./user || { echo "the cosine is not what its formula says"; exit 1; }
./user_solver || { echo "the solver for one key does not do what its page says"; exit 1; }
./test_attend_scores
ATTN_TEST_PROBLEMS=500 ./test_attend_random > random || { cat random; exit 1; }
cat random
grep -q 'one_key *forward *[1-9]' random || { echo "no random problem was run by the new solver"; exit 1; }
