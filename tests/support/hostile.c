/* SPDX-License-Identifier: MIT */
#include "support/hostile.h"

#include "base/rng.h"
#include "attn/tensor.h"
#include "tensor/tape_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"linear", "matmul", "convolution"};
static const char *const aims[] = {"forward", "dx", "dw"};

static int numbers_of(hostile_kind kind)
{
    return kind == HOSTILE_CONVOLUTION ? (int)C_NUMBERS : (int)P_NUMBERS;
}

/* ------------------------------------------------------------------------------------------- as a text */

void hostile_print(const hostile_case *c, char text[HOSTILE_TEXT])
{
    int at = snprintf(text, HOSTILE_TEXT, "%s:%s:%s:%d:%" PRIu64 ":", kinds[c->kind],
                      hostile_structure_name(c->structure), aims[c->aim], c->swap, c->seed);
    for (int i = 0; i < numbers_of(c->kind) && at < HOSTILE_TEXT; i++)
        at += snprintf(text + at, (size_t)(HOSTILE_TEXT - at), "%s%" PRId64, i ? "," : "", c->n[i]);
}

static int find(const char *const *names, int n, const char *name)
{
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i;
}

bool hostile_parse(hostile_case *c, const char *text)
{
    char kind[32], structure[32], aim[32];
    int swap, used = 0;
    *c = (hostile_case){0};
    if (sscanf(text, "%31[^:]:%31[^:]:%31[^:]:%d:%" SCNu64 ":%n", kind, structure, aim, &swap, &c->seed, &used) < 5 ||
        !used)
        return false;
    c->kind = (hostile_kind)find(kinds, HOSTILE_KINDS, kind);
    c->structure = hostile_structure_find(structure);
    c->aim = (hostile_aim)find(aims, HOSTILE_AIMS, aim);
    c->swap = swap != 0;
    if (c->kind == HOSTILE_KINDS || c->structure == HOSTILE_COUNT || c->aim == HOSTILE_AIMS)
        return false;
    char *at = (char *)(uintptr_t)(text + used);
    for (int i = 0; i < numbers_of(c->kind); i++) {
        c->n[i] = strtoll(at, &at, 10);
        at += *at == ',';
    }
    return true;
}

/* ------------------------------------------------------------------------------------------- at random */

typedef struct draw {
    uint64_t seed, n;
} draw;

static int64_t next(draw *d, int64_t n)
{
    return hostile_pick(d->seed, d->n++, n);
}

static int64_t of_list(draw *d, const int64_t *list, size_t n)
{
    return list[next(d, (int64_t)n)];
}
#define ONE_OF(d, ...)                                                                                                 \
    of_list(d, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static int64_t small_length(draw *d)
{
    return next(d, 3) ? 1 + next(d, 70) : ONE_OF(d, 1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 48, 63, 64, 65, 96, 97);
}

/* Draws a length that is close to a multiple of the products' block sizes. */
static int64_t deep_length(draw *d)
{
    return ONE_OF(d, 127, 128, 129, 191, 193, 255, 256, 257, 319, 321, 383, 384, 385, 511, 512, 513, 767, 769, 1023,
                  1025);
}

static int64_t large_length(draw *d)
{
    return ONE_OF(d, 128, 131, 160, 192, 193, 197, 224, 256, 257, 260, 320, 383, 384);
}

static void draw_product(hostile_case *c, draw *d, bool large)
{
    c->n[P_M] = large ? large_length(d) : small_length(d);
    c->n[P_N] = large ? large_length(d) : small_length(d);
    c->n[P_K] = next(d, 3) == 0 ? deep_length(d) : large ? large_length(d) : small_length(d);
    if (!large && next(d, 4) == 0) { /* In some small cases, the axis over which a gradient sums is long. */
        c->n[next(d, 2) ? P_M : P_N] = deep_length(d);
        c->n[P_K] = small_length(d);
    }
    c->n[P_BATCH] = 1;
    if (c->kind == HOSTILE_LINEAR) {
        c->n[P_BIAS] = next(d, 2);
    } else {
        c->n[P_BATCH] = large ? 1 + next(d, 2) : 1 + next(d, 4);
        c->n[P_TRANSPOSE_A] = next(d, 2);
        c->n[P_TRANSPOSE_B] = next(d, 2);
        c->n[P_SHARED] = next(d, 2);
    }
    c->n[P_TWICE] = next(d, 4) == 0;
}

static void draw_convolution(hostile_case *c, draw *d, bool large)
{
    const int64_t spatial = large ? 2 : 1 + next(d, 3);
    c->n[C_SPATIAL] = spatial;
    c->n[C_BATCH] = 1 + next(d, 3);
    c->n[C_GROUPS] = next(d, 3) ? 1 : ONE_OF(d, 2, 3, 4);
    c->n[C_CHANNELS] = c->n[C_GROUPS] * (large ? ONE_OF(d, 32, 48, 64, 67, 128) : 1 + next(d, 18));
    c->n[C_OUTPUTS] = c->n[C_GROUPS] * (large ? ONE_OF(d, 32, 64, 65) : 1 + next(d, 18));
    for (int a = 0; a < 3; a++) {
        const bool used = a >= 3 - spatial;
        const int64_t most = spatial == 1 ? 90 : spatial == 2 ? 14 : 5;
        const bool padded = c->structure != HOSTILE_infinite && c->structure != HOSTILE_not_a_number;
        c->n[C_KERNEL + a] = !used ? 1 : large ? ONE_OF(d, 1, 3, 3) : ONE_OF(d, 1, 2, 3, 3, 4);
        c->n[C_SIZE + a] = !used ? 1 : large ? 9 + next(d, 12) : c->n[C_KERNEL + a] + next(d, most);
        c->n[C_STRIDE + a] = !used ? 1 : next(d, 3) ? 1 : 1 + next(d, 3);
        c->n[C_PADDING + a] = used && padded ? next(d, 1 + c->n[C_KERNEL + a] / 2) : 0;
    }
    c->n[C_BIAS] = next(d, 2);
}

hostile_case hostile_draw(uint64_t seed, bool large)
{
    draw d = {.seed = seed};
    hostile_case c = {.seed = attn__mix64(seed) >> 32};
    c.structure = (hostile_structure)next(&d, HOSTILE_COUNT);
    /* Linear layers are drawn twice as often as the other kinds. */
    c.kind = (hostile_kind)(next(&d, 4) % HOSTILE_KINDS);
    c.aim = (hostile_aim)next(&d, HOSTILE_AIMS);
    c.swap = next(&d, 4) == 0;
    if (c.kind == HOSTILE_CONVOLUTION)
        draw_convolution(&c, &d, large);
    else
        draw_product(&c, &d, large);
    return c;
}

/* ------------------------------------------------------------------------------------------- running */

void hostile_note(hostile_report *report, const char *array, const int64_t at[2], double got, double value,
                  double share)
{
    report->share = share > report->share ? share : report->share;
    if (share > 1 && report->broken++ == 0) {
        snprintf(report->first, sizeof report->first,
                 "%s[%" PRId64 ",%" PRId64 "] is %.9g, not %.9g, %.3g times the bound", array, at[0], at[1], got, value,
                 share);
    }
}

void hostile_refused(hostile_report *report, const attn_tape *tape)
{
    report->broken++;
    snprintf(report->first, sizeof report->first, "refused: %.400s", attn_context_error(attn_tape_context(tape)));
    attn_context_clear_error(attn_tape_context(tape));
}

float *hostile_floats(int64_t n)
{
    float *x = calloc((size_t)(n > 0 ? n : 1), sizeof *x);
    if (!x)
        abort();
    return x;
}

attn_tensor *hostile_tensor(attn_tape *tape, int rank, const int64_t *shape, const float *data)
{
    attn_tensor *x;
    if (attn_tensor_create(&x, attn_tape_context(tape), ATTN_F32, rank, shape) != ATTN_OK)
        abort();
    memcpy(attn_tensor_data(x), data, (size_t)attn_tensor_size(x) * sizeof *data);
    attn_tensor_set_requires_grad(x, true);
    return x;
}

bool hostile_run(attn_tape *tape, const hostile_case *c, hostile_report *report)
{
    *report = (hostile_report){0};
    return c->kind == HOSTILE_CONVOLUTION ? hostile_run_convolution(tape, c, report)
                                          : hostile_run_product(tape, c, report);
}
