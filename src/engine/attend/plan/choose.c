/* SPDX-License-Identifier: MIT
 *
 * choose.c - holds the table of solvers and chooses one: by name, by an earlier measurement, by timing all solvers on
 * scratch arrays of the problem's shape, or by rule.  It also writes a text that describes the choice and why other
 * solvers were not chosen.  The context's wisdom stores a signature of each measured problem and its fastest solver.
 */
#include "attend/plan/plan.h"

#include "attend/block/rows.h"
#include "attend/problem/arrays.h"
#include "attend/scores/score.h"
#include "base/clock.h"
#include "base/integers.h"
#include "base/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- the solvers */

#define X(name) extern const attn__solver attn__solver_##name;
#include "attend/plan/solvers.inc"
#undef X

static const attn__solver *const solvers[] = {
#define X(name) &attn__solver_##name,
#include "attend/plan/solvers.inc"
#undef X
};

enum { SOLVERS = sizeof solvers / sizeof *solvers };
_Static_assert(SOLVERS > 1, "the table is made from solvers.inc, which is included twice");

const char *attn_solver_name(int i)
{
    return i >= 0 && i < SOLVERS ? solvers[i]->name : NULL;
}

static bool is_empty(const attn__canonical *canonical)
{
    bool empty = false;
    for (attn_role role = ATTN_ROLE_BATCH; role <= ATTN_ROLE_VALUE; role++)
        empty = empty || attn__group_of(canonical, role)->size == 0;
    return empty;
}

static const char *extra_refusal(unsigned unknown)
{
    static const struct {
        unsigned bit;
        const char *why;
    } reasons[] = {{ATTN__PACKED, "does not support packed sequences"},
                   {ATTN__SOFTCAP, "does not support a softcap"},
                   {ATTN__SINKS, "does not support sinks"},
                   {ATTN__DLSE, "does not support a gradient of the log-sum-exp"},
                   {ATTN__BIAS_MEETS, "does not support pairs that share an element of the bias"},
                   {ATTN__BLOCKS, "does not support a mask of blocks"},
                   {ATTN__TOP_K, "does not support top_k or hardmax"},
                   {ATTN__BF16_KEYS, "does not support keys and values of another type than the queries"},
                   {ATTN__BATCH_INVARIANT, "its results are not batch-invariant"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (unknown & reasons[i].bit)
            return reasons[i].why;
    return NULL;
}

/* Solvers store ranges of keys as 32-bit integers. */
static bool has_too_many_keys(const attn__canonical *canonical)
{
    bool fits = canonical->key.size < INT32_MAX;
    for (int i = 0; i < canonical->key.n; i++)
        fits = fits && canonical->key.axis[i].dim.n < INT32_MAX;
    return !fits;
}

/* Returns why the solver cannot run the problem, or NULL if it can. Only the last solver runs problems without elements
 * or with too many keys, so that no other solver needs code for them.  An empty problem may have outputs with elements,
 * which become 0. */
static const char *refusal_of(const attn__solver *solver, const attn__canonical *canonical)
{
    bool last = solver == solvers[SOLVERS - 1];
    if (!last && is_empty(canonical))
        return "does not support a dim of length 0";
    if (!last && has_too_many_keys(canonical))
        return "does not support 2^31 - 1 keys or more";
    const char *unknown = extra_refusal(canonical->extras & ~solver->extras);
    return unknown ? unknown : solver->refuse ? solver->refuse(canonical) : NULL;
}

/* Returns the solver's estimated time for the problem, in the unit of attn__solver.cost. */
static double solver_cost(const attn__solver *solver, const attn__canonical *canonical)
{
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    if (solver->cost)
        return solver->cost(canonical);
    return pairs * (double)(canonical->contract.size + canonical->value.size);
}

static const attn__solver *solver_by_name(const char *name)
{
    for (int i = 0; i < SOLVERS; i++)
        if (strcmp(solvers[i]->name, name) == 0)
            return solvers[i];
    return NULL;
}

static const attn__solver *cheapest(const attn__canonical *canonical)
{
    const attn__solver *best = NULL;
    double least = 0;
    for (int i = 0; i < SOLVERS; i++) {
        if (refusal_of(solvers[i], canonical))
            continue;
        double cost = solver_cost(solvers[i], canonical);
        if (!best || cost < least) {
            best = solvers[i];
            least = cost;
        }
    }
    return best;
}

/* ---------------------------------------------------------------------------------------------- wisdom */

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
    if (p->top_k)
        mix(hash, p->top_k);
}

/* Hashes every property of a problem that a solver's speed may depend on. */
static uint64_t signature_of(const attn__canonical *canonical)
{
    uint64_t hash = 1;
    mix_features(&hash, &canonical->problem);
    for (attn_role role = ATTN_ROLE_BATCH; role <= ATTN_ROLE_VALUE; role++)
        mix_group(&hash, attn__group_of(canonical, role));
    mix(&hash, canonical->extras & ATTN__BATCH_INVARIANT);
    mix(&hash, canonical->threads);
    mix(&hash, (int64_t)canonical->isa);
    return hash;
}

typedef struct lesson {
    uint64_t signature;
    const attn__solver *solver;
} lesson;

/* The lessons in the order in which they were noted, and a hash table with linear probing. A slot is 0 or the number of a
 * lesson plus 1. The signature's bits are mixed already, so its low bits are the first slot. At least half of the slots
 * are 0. */
typedef struct wisdom {
    size_t n, nslots; /* nslots: 0 or a power of 2 */
    lesson *lessons;
    size_t *slots;
} wisdom;

/* The header contains the version of the signatures. Signatures of an older version would never match. */
static const char header[] = "attn-wisdom 2\n";

static void release(attn_context *context, void *memory)
{
    wisdom *w = memory;
    attn__free(context, w->lessons);
    attn__free(context, w->slots);
    attn__free(context, w);
}

/* Returns the slot of the signature's lesson, or the empty slot for it. There must be slots. */
static size_t *slot_of(const wisdom *w, uint64_t signature)
{
    size_t at = (size_t)signature & (w->nslots - 1);
    while (w->slots[at] && w->lessons[w->slots[at] - 1].signature != signature)
        at = (at + 1) & (w->nslots - 1);
    return &w->slots[at];
}

static lesson *lesson_of(const wisdom *w, uint64_t signature)
{
    size_t number = w && w->nslots ? *slot_of(w, signature) : 0;
    return number ? &w->lessons[number - 1] : NULL;
}

/* Makes room for one more lesson in the hash table. */
static bool make_slots(attn_context *context, wisdom *w)
{
    enum { FEWEST = 16 };
    size_t nslots = w->nslots ? 2 * w->nslots : FEWEST;
    if (2 * (w->n + 1) <= w->nslots)
        return true;
    size_t *slots = attn__alloc_zero(context, attn__size_mul(nslots, sizeof *slots));
    if (!slots)
        return false;
    attn__free(context, w->slots);
    w->slots = slots;
    w->nslots = nslots;
    for (size_t i = 0; i < w->n; i++)
        *slot_of(w, w->lessons[i].signature) = i + 1;
    return true;
}

static wisdom *wisdom_of(attn_context *context)
{
    if (!context->wisdom) {
        context->wisdom = attn__alloc_zero(context, sizeof(wisdom));
        context->release_wisdom = context->wisdom ? release : NULL;
    }
    return context->wisdom;
}

static attn_status wisdom_note(attn_context *context, uint64_t signature, const attn__solver *solver)
{
    wisdom *w = wisdom_of(context);
    lesson *known = lesson_of(w, signature);
    if (known) {
        known->solver = solver;
        return ATTN_OK;
    }
    lesson *grown = w ? attn__grow(context, w->lessons, (int64_t)w->n, sizeof *grown) : NULL;
    if (!grown)
        return ATTN_ERROR_MEMORY;
    w->lessons = grown;
    if (!make_slots(context, w))
        return ATTN_ERROR_MEMORY;
    w->lessons[w->n] = (lesson){signature, solver};
    *slot_of(w, signature) = ++w->n;
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

/* Reads one line, "signature solver". It is an error if this build lacks the solver, because the line is then
 * useless. */
static attn_status read_line(attn_context *context, const char *line, size_t length, int number)
{
    char copy[96], name[64];
    uint64_t signature;
    int end = 0;
    if (length < sizeof copy) {
        memcpy(copy, line, length);
        copy[length] = '\0';
        if (sscanf(copy, "%16" SCNx64 " %63s%n", &signature, name, &end) == 2 && (size_t)end == length) {
            const attn__solver *solver = solver_by_name(name);
            if (solver)
                return wisdom_note(context, signature, solver);
            return attn__fail(context, ATTN_ERROR_FORMAT, "wisdom line %d: there is no solver '%s'", number, name);
        }
    }
    return attn__fail(context, ATTN_ERROR_FORMAT,
                      "wisdom line %d is \"%.*s\"; expected 16 hexadecimal digits and the name of a solver", number,
                      (int)attn__min((int64_t)length, sizeof copy), line);
}

attn_status attn_wisdom_import(attn_context *context, const char *text)
{
    ATTN__CALL(context);
    size_t head = sizeof header - 1;
    if (strncmp(text, header, head) != 0)
        return attn__fail(context, ATTN_ERROR_FORMAT, "wisdom line 1 is \"%.*s\"; expected \"attn-wisdom 2\"",
                          (int)attn__min((int64_t)strcspn(text, "\n"), 60), text);
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

/* ------------------------------------------------------------------------------------------ measuring */

enum { MOST_RUNS = 5 };

typedef struct scratch {
    attn_context *context;
    void *blocks[ATTN_ARRAY_COUNT];
    int n;
    bool failed;
} scratch;

/* Allocates an array that covers the extent and fills it with small numbers. Returns the address of its offset 0. */
static void *make_array(scratch *s, attn_dtype dtype, const attn__extent *extent)
{
    size_t n = attn__extent_size(extent), size = attn_dtype_size(dtype);
    char *block = attn__alloc_zero(s->context, attn__size_mul(n ? n : 1, size));
    s->failed = s->failed || !block;
    s->blocks[s->n++] = block;
    if (!block)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        double x = (double)(i * 37 % 101) / 101 - 0.5;
        if (dtype == ATTN_U8)
            ((uint8_t *)block)[i] = 1;
        else if (dtype == ATTN_I32)
            ((int32_t *)(void *)block)[i] = INT32_MAX;
        else
            attn__store(dtype, block, (int64_t)i, x);
    }
    return n ? block - extent->low * (int64_t)size : block;
}

static void fill_offsets(int32_t *offsets, int64_t sequences, int64_t longest, int64_t positions)
{
    int64_t each = sequences && positions / sequences < longest ? positions / sequences : longest;
    for (int64_t i = 0; offsets && i <= sequences; i++)
        offsets[i] = (int32_t)(i * each < positions ? i * each : positions);
}

static void make_arrays(scratch *s, const attn__canonical *canonical, attn__execution *a)
{
    const attn_packed *p = &canonical->problem.packed;
    for (attn_array array = 0; array < ATTN_ARRAY_COUNT; array++) {
        attn__array_use use;
        if (attn__arrays_find(canonical, array, &use))
            attn__arrays_set(&a->at, array, make_array(s, use.dtype, &use.extent));
    }
    if (!(canonical->extras & ATTN__PACKED) || s->failed)
        return;
    int64_t sequences = canonical->batch.axis[p->batch_dim].dim.n;
    fill_offsets(attn__arrays_get(&a->at, ATTN_ARRAY_Q_OFFSETS), sequences, canonical->query.axis[p->query_dim].dim.n,
                 p->queries);
    fill_offsets(attn__arrays_get(&a->at, ATTN_ARRAY_K_OFFSETS), sequences, canonical->key.axis[p->key_dim].dim.n,
                 p->keys);
}

/* Runs the solver a few times and returns the minimum time in seconds. A slow solver gets fewer runs. Returns a
 * negative number if the solver cannot be planned. */
static double time_solver(attn_context *context, const attn__solver *solver, const attn__canonical *canonical,
                          const attn__execution *arrays)
{
    attn__recipe recipe = {0};
    double least = -1, spent = 0;
    void *workspace = NULL;
    if (!solver->plan || solver->plan(context, canonical, &recipe) == ATTN_OK)
        workspace = attn__alloc(context, recipe.workspace);
    for (int run = 0; workspace && run < MOST_RUNS && spent < 0.5; run++) {
        double begin = attn__now();
        solver->apply(canonical, &recipe, arrays, workspace);
        double took = attn__seconds_since(begin);
        spent += took;
        if (least < 0 || took < least)
            least = took;
    }
    attn__free(context, workspace);
    attn__free(context, recipe.data);
    return least;
}

static const attn__solver *time_solvers(attn_context *context, const attn__canonical *canonical,
                                        const attn__execution *arrays)
{
    const attn__solver *best = NULL;
    double least = 0;
    for (int i = 0; i < SOLVERS; i++) {
        bool last = i == SOLVERS - 1;
        if (refusal_of(solvers[i], canonical) || (last && best)) /* skips the reference solver if another solver ran */
            continue;
        double took = time_solver(context, solvers[i], canonical, arrays);
        if (took >= 0 && (!best || took < least)) {
            best = solvers[i];
            least = took;
        }
    }
    return best;
}

/* Returns the fastest solver that accepts the problem, timed on scratch arrays. Returns NULL if memory runs out. */
static const attn__solver *fastest(attn_context *context, const attn__canonical *canonical)
{
    scratch s = {.context = context};
    attn__execution arrays = {0};
    make_arrays(&s, canonical, &arrays);
    bool clean = attn__call_status(context) == ATTN_OK;
    const attn__solver *best = s.failed ? NULL : time_solvers(context, canonical, &arrays);
    if (best && clean) /* clears errors of solvers without enough memory, which were skipped */
        attn__call_forget(context);
    for (int i = 0; i < s.n; i++)
        attn__free(context, s.blocks[i]);
    return best;
}

/* --------------------------------------------------------------------------------------------- choice */

static attn_status refuse_name(attn_context *context, const char *name)
{
    char known[400];
    int used = 0;
    for (int i = 0; i < SOLVERS && used < (int)sizeof known; i++)
        used += snprintf(known + used, sizeof known - (size_t)used, "%s%s", i ? ", " : "", solvers[i]->name);
    return attn__fail(context, ATTN_ERROR_ARGUMENT, "there is no solver '%.60s'; the solvers are: %s", name, known);
}

static attn_status choose_by_name(attn_plan *plan, const char *name)
{
    plan->solver = solver_by_name(name);
    plan->how = "asked for";
    if (!plan->solver)
        return refuse_name(plan->context, name);
    const char *refusal = refusal_of(plan->solver, &plan->canonical);
    if (refusal)
        return attn__fail(plan->context, ATTN_ERROR_UNSUPPORTED, "solver %s: %s", name, refusal);
    return ATTN_OK;
}

static attn_status choose_measured(attn_plan *plan, uint64_t signature)
{
    plan->solver = fastest(plan->context, &plan->canonical);
    plan->how = "measured";
    return plan->solver ? wisdom_note(plan->context, signature, plan->solver) : ATTN_ERROR_MEMORY;
}

static attn_status choose(attn_plan *plan, const attn_plan_options *options)
{
    if (options->solver)
        return choose_by_name(plan, options->solver);
    uint64_t signature = signature_of(&plan->canonical);
    const lesson *known = lesson_of(plan->context->wisdom, signature);
    plan->solver = known ? known->solver : NULL;
    plan->how = "remembered";
    if (known && !refusal_of(plan->solver, &plan->canonical))
        return ATTN_OK;
    if (options->effort == ATTN_MEASURE)
        return choose_measured(plan, signature);
    plan->solver = cheapest(&plan->canonical);
    plan->how = "by rule";
    return plan->solver ? ATTN_OK : attn__fail(plan->context, ATTN_ERROR_INTERNAL, "no solver supports the problem");
}

/* Estimates the work of a problem in multiply-adds. Moving one number counts as `each` multiply-adds. */
static double work_of(const attn_plan *plan)
{
    const double each = 16;
    const attn__canonical *t = &plan->canonical;
    double rows = (double)t->batch.size * (double)(t->query.size + t->key.size);
    return solver_cost(plan->solver, t) + each * rows * (double)(t->contract.size + t->value.size);
}

/* Limits the number of threads, because waking a thread takes as long as about `worth` multiply-adds.  A solver that
 * the caller named gets exactly the requested number of threads. */
static void spare_threads(attn_plan *plan, const attn_plan_options *options)
{
    const double worth = 2e6;
    double most = work_of(plan) / worth;
    if (!options->solver && most < plan->canonical.threads)
        plan->canonical.threads = most > 1 ? (int)most : 1;
}

attn_status attn__choose_solver(attn_plan *plan, const attn_plan_options *options)
{
    attn_status status = choose(plan, options);
    if (status == ATTN_OK)
        spare_threads(plan, options);
    return status;
}

/* ------------------------------------------------------------------------------------------------ words */

/* A text buffer. `length` is the length of the whole text, even if the buffer holds only its first part. */
typedef struct writer {
    char *text;
    size_t size, length;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    size_t room = w->length < w->size ? w->size - w->length : 0;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(room ? w->text + w->length : NULL, room, format, arguments);
    va_end(arguments);
    w->length += n > 0 ? (size_t)n : 0;
}

static void put_groups(writer *w, const attn__canonical *canonical)
{
    static const char *const names[] = {"", "batch", "query", "key", "contract", "value"};
    for (attn_role role = ATTN_ROLE_BATCH; role <= ATTN_ROLE_VALUE; role++) {
        const attn__group *group = attn__group_of(canonical, role);
        put(w, " %s ", names[role]);
        for (int i = 0; i < group->n; i++)
            put(w, "%s%lld", i ? "x" : "", (long long)group->axis[i].dim.n);
    }
}

static void put_features(writer *w, const attn__canonical *canonical)
{
    static const char *const normalizations[] = {
        "", ", 1/N", ", kernel sum", ", hardmax", ", scores as weights", ", sigmoid"};
    const attn_problem *p = &canonical->problem;
    bool plain = p->score == ATTN_SCORE_DOT; /* dot products are not mentioned, since they are the default */
    put(w, "%s%s%s%s%s%s%s%s%s%s%s%s%s", plain ? "" : ", ", plain ? "" : attn__score_of(p)->name,
        normalizations[p->normalization], canonical->has_bias ? ", bias" : "",
        p->flags & ATTN_WITH_BIAS_INDEX ? " by an index" : "", canonical->has_mask ? ", mask" : "",
        canonical->has_lens ? ", lens" : "", canonical->has_blocks ? ", blocks" : "",
        canonical->has_dropout ? ", dropout" : "", canonical->extras & ATTN__PACKED ? ", packed" : "",
        canonical->extras & ATTN__SOFTCAP ? ", softcap" : "", p->flags & ATTN_WITH_SINKS ? ", sinks" : "",
        canonical->extras & ATTN__DLSE ? ", dlse" : "");
    if (p->top_k && p->normalization == ATTN_NORMALIZATION_SOFTMAX)
        put(w, ", top %lld", (long long)p->top_k);
    const struct {
        const char *name;
        int n;
    } counted[] = {{"band", p->nbands}, {"window", p->nwindows}, {"table", p->nrelatives}, {"pick", p->npicks}};
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        if (counted[i].n)
            put(w, ", %d %s%s", counted[i].n, counted[i].name, counted[i].n > 1 ? "s" : "");
}

size_t attn_plan_describe(const attn_plan *plan, bool verbose, char *text, size_t size)
{
    const attn__canonical *canonical = &plan->canonical;
    writer w = {text, size, 0};
    put(&w, "%s %s", canonical->backward ? "backward" : "forward", attn_dtype_name(canonical->problem.dtype));
    put_groups(&w, canonical);
    put_features(&w, canonical);
    put(&w, ": %s (%s)%s%s, %d thread%s, %zu bytes of workspace", plan->solver->name, plan->how,
        plan->recipe.text[0] ? ", " : "", plan->recipe.text, canonical->threads, canonical->threads == 1 ? "" : "s",
        plan->workspace_size);
    for (int i = 0; verbose && i < SOLVERS; i++) {
        if (solvers[i] == plan->solver)
            continue;
        const char *refusal = refusal_of(solvers[i], canonical);
        if (refusal)
            put(&w, "\n  not %s: %s", solvers[i]->name, refusal);
        else
            put(&w, "\n  not %s: cost %.3g against %.3g", solvers[i]->name, solver_cost(solvers[i], canonical),
                solver_cost(plan->solver, canonical));
    }
    return w.length;
}
