/* SPDX-License-Identifier: MIT
 *
 * solve_flash.c - the solver of flash attention's forward pass: what it accepts, its cost, its plan.
 */
#include "attend/solve/flash.h"

#include "attend/block/rows.h"
#include "base/integers.h"

#include <stdio.h>
#include <string.h>

static const char *refuse_usual(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    if (canonical->backward)
        return "forward only";
    if (p->dtype != ATTN_F32 && p->dtype != ATTN_BF16)
        return "f32 and bf16 only";
    if (p->score != ATTN_SCORE_DOT)
        return "dot-product scores only";
    if (p->normalization != ATTN_NORMALIZATION_SOFTMAX)
        return "softmax only";
    if (p->nwindows)
        return "keys have a window";
    if (canonical->key.size > INT32_MAX)
        return "more than 2^31 keys";
    return NULL;
}

const char *attn__flash_refuse(const attn__canonical *canonical)
{
    const char *why = refuse_usual(canonical);
    return !why && canonical->problem.nrelatives ? "has relative tables" : why;
}

static const char *refuse(const attn__canonical *canonical)
{
    if (canonical->contract.size > ATTN__FLASH_CHANNELS || canonical->value.size > ATTN__FLASH_CHANNELS)
        return "head size above 512";
    const char *why = refuse_usual(canonical);
    return why ? why : attn__table_panels_refuse(canonical);
}

/* Rows of whole cache lines, not a power of two apart so large that they share sets of the cache. */
static int64_t panel_width(int64_t channels)
{
    int64_t width = attn__round_up(channels, 16);
    return width % 256 == 0 ? width + 16 : width;
}

/* Blocks as large as leave q, o and the panels in the second cache; the score tile in the first.  Queries are
 * spread evenly over their blocks.  Threads have no say: neither bits nor blocks depend on them. */
static void choose_blocks(attn__flash *f, const attn__canonical *canonical)
{
    int64_t lanes = f->tile->lanes, row = (f->channels + f->values) * (int64_t)sizeof(float);
    int64_t l2 = (int64_t)canonical->caches.l2, queries = canonical->query.size, keys = canonical->key.size;
    /* Blocks end where the order of sums does: of packed sequences none depends on the others' lengths. */
    bool fixed = canonical->extras & (ATTN__BATCH_INVARIANT | ATTN__PACKED);
    f->key_block =
        keys < 256 && !f->pairs && !fixed ? 96 : 128; /* with only two blocks, all rows would be prefetched at once */
    while (f->key_block > 32 && f->key_block * row > l2 / 4)
        f->key_block /= 2;
    if (keys > 0 && !fixed)
        f->key_block = attn__round_up(
            (keys + (keys + f->key_block - 1) / f->key_block - 1) / ((keys + f->key_block - 1) / f->key_block), 8);
    int64_t most = l2 / 2 / row, wide = lanes * f->tile->vectors;
    most = most > 768 ? 768 : most < wide ? wide : most / wide * wide;
    int64_t blocks = queries > 0 ? (queries + most - 1) / most : 1;
    f->query_block = attn__round_up((queries + blocks - 1) / blocks, lanes);
    if (f->query_block < lanes)
        f->query_block = lanes;
    f->query_blocks = queries > 0 ? (queries + f->query_block - 1) / f->query_block : 0;
    f->subtiles = (f->query_block + wide - 1) / wide + 1;
}

/* The fewest queries whose products gain more than splitting into bf16 terms costs, as measured. */
static int64_t least_queries(const attn__flash *f, const attn__canonical *canonical)
{
    enum { ONE_PART = 32, THREE = 96, THREE_OF_SLIM = 192, USUAL = 64 };
    if (canonical->problem.dtype == ATTN_BF16)
        return ONE_PART;
    return f->channels < USUAL ? THREE_OF_SLIM : THREE;
}

/* Tiles are filled up with zeros. */
bool attn__flash_amx_pays(const attn__flash *f, const attn__canonical *canonical)
{
    if (!attn__bf16x3_for(canonical->isa) || f->channels == 0 || canonical->key.size == 0 ||
        canonical->query.size < least_queries(f, canonical))
        return false;
    enum { SIDE = ATTN__BF16X3_SIDE, DEPTH = ATTN__BF16X3_DEPTH };
    int64_t queries = attn__round_up(canonical->query.size, SIDE);
    double plain = (double)queries * (double)canonical->key.size * (double)(f->channels + f->values);
    double whole =
        (double)queries * (double)(attn__round_up(canonical->key.size, SIDE) * attn__round_up(f->channels, DEPTH) +
                                   attn__round_up(canonical->key.size, DEPTH) * attn__round_up(f->values, SIDE));
    return whole <= 1.5 * plain;
}

void attn__flash_use_amx(attn__flash *f, const attn__canonical *canonical)
{
    f->parts = attn__bf16x3_for(canonical->isa);
    f->pairs = NULL;
    f->nparts = canonical->problem.dtype == ATTN_BF16 ? 1 : ATTN__BF16X3_F32;
    f->vectors = 2;
}

enum { MANY = 8 }; /* heads, which are work for all threads */

/* As above for panels of bf16 terms, which cost more to pack: more queries share them, unless there are few heads.
 * Subtiles are as wide as two AMX tiles. */
static void choose_parts(attn__flash *f, const attn__canonical *canonical)
{
    attn__flash_use_amx(f, canonical);
    f->held = attn__round_up(f->values, ATTN__BF16X3_SIDE);
    int64_t part = f->nparts * (int64_t)sizeof(uint16_t), l2 = (int64_t)canonical->caches.l2;
    int64_t lanes = f->tile->lanes, wide = lanes * f->vectors, queries = canonical->query.size,
            keys = canonical->key.size;
    enum { ONE_BLOCK = 256 }; /* keeps all sums of the values in AMX tiles */
    int64_t most = keys <= ONE_BLOCK && f->nparts > 1 ? ONE_BLOCK : 128;
    while (most > 32 && most * (f->channels + f->values) * part > l2 / 4)
        most /= 2;
    int64_t blocks = (keys + most - 1) / most;
    f->key_block = attn__round_up((keys + blocks - 1) / blocks, ATTN__BF16X3_DEPTH);
    most = l2 * 5 / 8 / (f->channels * part + f->values * (int64_t)sizeof(float));
    most = attn__most(wide, attn__least(most, canonical->batch.size < MANY ? 512 : 1024) / wide * wide);
    blocks = (queries + most - 1) / most;
    f->query_block = attn__round_up((queries + blocks - 1) / blocks, lanes);
    f->query_blocks = (queries + f->query_block - 1) / f->query_block;
    f->subtiles = (f->query_block + wide - 1) / wide + 1;
}

/* The key axes that bands and lengths refer to, each once. */
static void find_limits(attn__flash *f, const attn__canonical *canonical)
{
    for (int i = 0; i < canonical->problem.nbands + (canonical->has_lens ? 1 : 0); i++) {
        int axis = i < canonical->problem.nbands ? canonical->problem.bands[i].key_dim : canonical->problem.lens_dim,
            known = 0;
        while (known < f->nlimits && f->limit_axis[known] != axis)
            known++;
        f->limit_axis[known] = axis;
        f->nlimits += known == f->nlimits;
    }
    f->skips = canonical->key.n == 1 && canonical->problem.mask_fill == 0.0;
}

/* NULL where the channels are adjacent, else their offsets, written to the next free part of the tables. */
static const int64_t *channel_table(const attn__group *group, size_t stride, int64_t **next)
{
    if (attn__offsets_adjacent(group, stride))
        return NULL;
    int64_t *table = *next;
    attn__offsets_fill(group, stride, 0, group->size, table);
    *next += group->size;
    return table;
}

void attn__flash_describe(attn__flash *f, const attn__canonical *canonical)
{
    f->tile = attn__gemm_tile_for(canonical->isa);
    f->lanes = attn__online_softmax_for(canonical->isa);
    f->channels = canonical->contract.size;
    f->values = canonical->value.size;
    f->held = f->values;
    f->vectors = f->tile->vectors;
    find_limits(f, canonical);
}

/* Steps that see whole blocks of the mask or nothing, if their size allows it; at most as large as they are. */
static void fit_blocks(attn__flash *f, int64_t block, int64_t step)
{
    enum { LEAST = 32 };
    int64_t parts = attn__pieces(block, f->key_block), fit = block % parts == 0 ? block / parts : 0;
    if (block < LEAST)
        fit = attn__round_up(LEAST, block);
    if (fit > 0 && fit <= f->key_block && fit % step == 0)
        f->key_block = fit;
}

static void fill_flash(attn__flash *f, const attn__canonical *canonical)
{
    attn__flash_describe(f, canonical);
    f->ldk = panel_width(f->channels);
    f->ldv = panel_width(f->values);
    int64_t *next = f->tables;
    f->q_channel = channel_table(&canonical->contract, ATTN__STRIDE(dim.q), &next);
    f->k_channel = channel_table(&canonical->contract, ATTN__STRIDE(dim.k), &next);
    f->v_channel = channel_table(&canonical->value, ATTN__STRIDE(dim.v), &next);
    f->o_channel = channel_table(&canonical->value, ATTN__STRIDE(dim.o), &next);
    bool tables = canonical->problem.nrelatives; /* whose products are in f32, on vectors */
    bool adjacent = !f->k_channel && !f->v_channel;
    if (canonical->problem.dtype == ATTN_BF16 && adjacent && !tables && attn__cpu_has(ATTN__CPU_BF16_DOT))
        f->pairs = attn__gemm_tile_bf16_for(canonical->isa);
    f->channel_pairs = (f->channels + 1) / 2;
    f->ld_pairs = panel_width(f->channel_pairs);
    if (!f->q_channel && !f->k_channel && !f->v_channel && !tables && attn__flash_amx_pays(f, canonical))
        choose_parts(f, canonical);
    else
        choose_blocks(f, canonical);
    if (canonical->has_blocks)
        fit_blocks(f, canonical->problem.blocks.keys, f->parts ? ATTN__BF16X3_DEPTH : 8);
    attn__flash_tables_choose(f, canonical);
    for (int i = 0; i < f->ntables; i++) {
        f->table[i].panel.channel = next;
        next = attn__table_channel_offsets(canonical, i, next);
    }
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    size_t channels = (size_t)canonical->contract.size + (size_t)canonical->value.size;
    size_t tables = (2 + (size_t)canonical->problem.nrelatives) * channels * sizeof(int64_t);
    attn__flash *f = attn__alloc_zero(context, sizeof *f + tables);
    if (!f)
        return ATTN_ERROR_MEMORY;
    fill_flash(f, canonical);
    recipe->data = f;
    attn__flash_scratch unused;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, attn__flash_divide(f, canonical, NULL, &unused));
    if (f->parts)
        snprintf(recipe->text, sizeof recipe->text, "%s, %d bf16 term%s, blocks of %d queries x %d keys",
                 attn__isa_text(f->parts->isa), f->nparts, f->nparts == 1 ? "" : "s", (int)f->query_block,
                 (int)f->key_block);
    else
        snprintf(recipe->text, sizeof recipe->text, "%s%s tile %dx%d, blocks of %d queries x %d keys",
                 attn__isa_text(f->tile->isa), f->pairs ? " bf16 pairs" : "", f->tile->rows,
                 f->tile->lanes * f->tile->vectors, (int)f->query_block, (int)f->key_block);
    return ATTN_OK;
}

const attn__solver attn__solver_flash = {.name = "flash",
                                         .refuse = refuse,
                                         .plan = plan,
                                         .apply = attn__flash_forward,
                                         .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__SINKS | ATTN__BLOCKS |
                                                   ATTN__BATCH_INVARIANT};
