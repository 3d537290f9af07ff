/* SPDX-License-Identifier: MIT
 * Wisdom: the context keeps the signature of each measured problem and the name of its fastest solver.  A signature is one
 * number for everything about a problem that a solver's speed may depend on. */
#include "attend/plan/plan.h"

#include "attend/problem/operand.h"
#include "base/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void mix(uint64_t *hash, int64_t x)
{
    *hash = attn__mix64(*hash ^ (uint64_t)x);
}

static void mix_group(uint64_t *hash, const attn__group *group)
{
    mix(hash, group->n);
    for (int i = 0; i < group->n; i++) {
        mix(hash, group->axis[i].dim.n);
        for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
            mix(hash, attn__stride(&group->axis[i].dim, op));
    }
}

static void mix_features(uint64_t *hash, const attn_problem *p)
{
    const int64_t plain[] = {p->dtype,       p->direction,  p->score,       p->normalization, p->flags,
                             p->nbands,      p->nwindows,   p->npicks,      p->nrelatives,    p->mask_fill != 0,
                             p->dropout > 0, p->accumulate, p->softcap != 0};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        mix(hash, plain[i]);
    for (int i = 0; i < p->nbands; i++)
        mix(hash, p->bands[i].lo), mix(hash, p->bands[i].hi);
    for (int i = 0; i < p->nwindows; i++) {
        const attn_window *w = &p->windows[i];
        mix(hash, w->size), mix(hash, w->step), mix(hash, w->dilation);
        mix(hash, w->offset), mix(hash, w->border);
    }
    if (p->flags & ATTN_WITH_PACKED)
        mix(hash, p->packed.queries), mix(hash, p->packed.keys), mix(hash, p->packed.align_ends);
    if (p->flags & ATTN_WITH_BLOCKS)
        mix(hash, p->blocks.queries), mix(hash, p->blocks.keys);
    for (int i = 0; i < p->nrelatives; i++)
        mix(hash, p->relatives[i].kind), mix(hash, p->relatives[i].rows);
}

uint64_t attn__canonical_signature(const attn__canonical *canonical)
{
    uint64_t hash = 1;
    mix_features(&hash, &canonical->problem);
    mix_group(&hash, &canonical->batch);
    mix_group(&hash, &canonical->query);
    mix_group(&hash, &canonical->key);
    mix_group(&hash, &canonical->contract);
    mix_group(&hash, &canonical->value);
    mix(&hash, canonical->extras & ATTN__BATCH_INVARIANT);
    mix(&hash, canonical->threads);
    mix(&hash, (int64_t)canonical->isa);
    return hash;
}

/* ---------------------------------------------------------------------------------------------- wisdom */

typedef struct lesson {
    uint64_t signature;
    const attn__solver *solver;
} lesson;

typedef struct wisdom {
    size_t n;
    lesson *lessons;
} wisdom;

/* The number counts what signatures are made of: those of an older library would never be met. */
static const char header[] = "attn-wisdom 2\n";

static void release(attn_context *context, void *memory)
{
    wisdom *w = memory;
    attn__free(context, w->lessons);
    attn__free(context, w);
}

static lesson *find(const wisdom *w, uint64_t signature)
{
    for (size_t i = 0; w && i < w->n; i++)
        if (w->lessons[i].signature == signature)
            return &w->lessons[i];
    return NULL;
}

const attn__solver *attn__wisdom_find(const attn_context *context, uint64_t signature)
{
    const lesson *known = find(context->wisdom, signature);
    return known ? known->solver : NULL;
}

static wisdom *wisdom_of(attn_context *context)
{
    if (!context->wisdom) {
        context->wisdom = attn__alloc_zero(context, sizeof(wisdom));
        context->release_wisdom = context->wisdom ? release : NULL;
    }
    return context->wisdom;
}

static bool reserve(attn_context *context, wisdom *w)
{
    lesson *grown = attn__grow(context, w->lessons, (int64_t)w->n, sizeof *grown);
    w->lessons = grown ? grown : w->lessons;
    return grown != NULL;
}

attn_status attn__wisdom_note(attn_context *context, uint64_t signature, const attn__solver *solver)
{
    wisdom *w = wisdom_of(context);
    lesson *known = find(w, signature);
    if (known) {
        known->solver = solver;
        return ATTN_OK;
    }
    if (!w || !reserve(context, w))
        return ATTN_ERROR_MEMORY;
    w->lessons[w->n++] = (lesson){signature, solver};
    return ATTN_OK;
}

size_t attn_wisdom_export(const attn_context *context, char *text, size_t size)
{
    const wisdom *w = context->wisdom;
    int n = snprintf(text, size, "%s", header);
    size_t length = n > 0 ? (size_t)n : 0;
    for (size_t i = 0; w && i < w->n; i++) {
        size_t room = length < size ? size - length : 0;
        n = snprintf(room ? text + length : NULL, room, "%016" PRIx64 " %s\n", w->lessons[i].signature,
                     w->lessons[i].solver->name);
        length += n > 0 ? (size_t)n : 0;
    }
    return length;
}

/* One line, "signature solver"; a solver that this build lacks is an error too, since the line says nothing. */
static attn_status read_line(attn_context *context, const char *line, size_t length, int number)
{
    char copy[96], name[64];
    uint64_t signature;
    int end = 0;
    if (length < sizeof copy) {
        memcpy(copy, line, length);
        copy[length] = '\0';
        if (sscanf(copy, "%16" SCNx64 " %63s%n", &signature, name, &end) == 2 && (size_t)end == length) {
            const attn__solver *solver = attn__solver_by_name(name);
            if (solver)
                return attn__wisdom_note(context, signature, solver);
            return attn__fail(context, ATTN_ERROR_FORMAT, "wisdom line %d: there is no solver '%s'", number, name);
        }
    }
    return attn__fail(context, ATTN_ERROR_FORMAT, "wisdom line %d is not a signature and a solver", number);
}

attn_status attn_wisdom_import(attn_context *context, const char *text)
{
    attn__call_begin(context);
    size_t head = sizeof header - 1;
    if (strncmp(text, header, head) != 0)
        return attn__fail(context, ATTN_ERROR_FORMAT, "wisdom line 1 is not 'attn-wisdom 2'");
    attn_status status = ATTN_OK;
    int number = 2;
    for (const char *line = text + head; status == ATTN_OK && *line; number++) {
        size_t length = strcspn(line, "\n");
        if (length)
            status = read_line(context, line, length, number);
        line += length + (line[length] == '\n');
    }
    return status;
}
