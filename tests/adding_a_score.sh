#!/bin/sh
# SPDX-License-Identifier: MIT
# docs/adding-a-score.md is true: its file and its row, taken from the page and put into a copy of the sources, give a
# score that computes what the page's formula says and passes the tests that every score passes.
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

# The page's first fenced block is the file, its second the row.
page=docs/adding-a-score.md
awk '/^```c$/ {n++; inside = 1; next} /^```/ {inside = 0} inside && n == 1' $page > "$dir/src/attend/scores/score_cosine.c"
awk '/^```c$/ {n++; inside = 1; next} /^```/ {inside = 0} inside && n == 2' $page > "$dir/row"
[ "$(wc -l < "$dir/row")" -eq 1 ] || { echo "$page: the second block is not one row"; exit 1; }
awk -v row="$(sed 's/\\$/@/' "$dir/row")" '/a new row goes above this line/ {sub(/@$/, "\\", row); print row} {print}' \
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

# The problem's floor is compiled anew; base and kernels, which do not know scores, are taken from the build.
cd "$dir"
printf '%s\n' src/attend/*/*.c tests/support/*.c tests/test_attend_*.c user.c | grep -v simd_probe |
    xargs -P 2 -n 12 sh -c 'd=$1; shift; for f; do cc -std=gnu11 -O0 -w -Iinclude -Isrc -Itests -c "$f" \
        -o "$d/$(basename "$f" .c).o" || exit 1; done' sh objects
cd objects
shared=$(ls ./*.o | grep -v -e './user' -e './test_')
ar rc libshared.a $shared # of the tests' support only what they need: the rest knows tensors
for program in user test_attend_scores test_attend_random; do
    cc $program.o libshared.a "$ATTN_BUILD/libattn.a" -pthread -lcmocka -lm -o $program
done
./user || { echo "the cosine is not what its formula says"; exit 1; }
./test_attend_scores
ATTN_TEST_PROBLEMS=500 ./test_attend_random
