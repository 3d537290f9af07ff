/* SPDX-License-Identifier: MIT
 *
 * Applies names files. They map the tensors of a checkpoint to a model's own names.
 */
#include "io/names/names.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor that a rule has made of a tensor of the checkpoint. */
typedef struct made {
    char *target;
    attn__array array;
    const attn__rule *rule;
    /* the rule's last operation if several tensors make one target (join, add or same); NULL: this tensor is the whole
     * target */
    const attn__operation *join;
} made;

typedef struct work {
    const attn_name_map *names;
    attn__findings *findings;
    made *items;
    int64_t n;
    int64_t steps; /* how many steps pattern matching may still take */
    bool keep;
    const char *average; /* prefix of the averaged weights, if only these are used; NULL: all tensors are used */
    int64_t passed;      /* number of skipped tensors that hold data of a training, not weights */
} work;

/* Maximum number of steps of pattern matching. Matching takes linear time, but a million names and 4096 rules would
 * still take minutes. */
static const int64_t STEPS = (int64_t)1 << 34;

static attn_status fail(const work *w, int line, const char *format, ...)
{
    char what[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return attn__fail(w->names->context, ATTN_ERROR_FORMAT, "%s: %s: line %d: %s", w->findings->arrays.file,
                      w->names->file, line, what);
}

/* ---------------------------------------------------------------------------------------------- making */

static attn_status add_made(work *w, const made *item)
{
    attn_context *context = w->names->context;
    made *items = attn__grow(context, w->items, w->n, sizeof *items);
    if (!items)
        return ATTN_ERROR_MEMORY;
    w->items = items;
    w->items[w->n] = *item;
    w->items[w->n].target = attn__strdup(context, item->target);
    return w->items[w->n].target ? (w->n++, ATTN_OK) : ATTN_ERROR_MEMORY;
}

static attn_status use_rule(work *w, const attn__rule *rule, const attn__array *array, const char *name,
                            const attn__span *groups)
{
    char target[ATTN__NAME_MOST + 1];
    made item = {.target = target, .array = *array, .rule = rule, .join = attn__rule_gathers(rule)};
    const char *wrong = attn__rule_target(rule, name, groups, target);
    if (wrong)
        return fail(w, rule->line, "the rule cannot make a name from \"%.200s\": %s", array->name, wrong);
    attn_status status = attn__rule_operate(rule, w->findings, &item.array);
    return status == ATTN_OK ? add_made(w, &item) : status;
}

/* *known becomes true if a pattern matches. *taken becomes true if a matching rule makes a target. */
static attn_status use_rules(work *w, const attn__array *array, const char *name, bool *known, bool *taken)
{
    const attn_name_map *names = w->names;
    size_t size = strlen(name);
    attn_status status = ATTN_OK;
    for (int i = 0; i < names->n && status == ATTN_OK; i++) {
        attn__span groups[ATTN__GROUPS];
        w->steps -= attn__pattern_steps(names->rules[i].pattern, size);
        if (w->steps < 0)
            return fail(w, names->rules[i].line,
                        "the rules take too long for so many tensors: use fewer *, + and ? in the patterns");
        if (!attn__pattern_matches(names->rules[i].pattern, name, size, groups))
            continue;
        *known = true;
        *taken |= names->rules[i].target != NULL;
        if (names->rules[i].target)
            status = use_rule(w, &names->rules[i], array, name, groups);
    }
    return status;
}

/* Prefixes of averaged weights: of timm (--model-ema), and of the reference scripts of torchvision. Some trainings save
 * a moving average of the weights in addition to the weights. */
static const char *const averages[] = {"state_dict_ema.", "model_ema."};

static bool begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Chooses the averaged weights instead of the weights, if the checkpoint has averaged weights. timm does the same. */
static void choose_average(work *w)
{
    enum { MOST = 64 }; /* maximum number of names to try per prefix, which is enough to decide */
    const attn__arrays *arrays = &w->findings->arrays;
    for (size_t i = 0; i < sizeof averages / sizeof *averages && !w->average; i++)
        for (int64_t k = 0, tried = 0; k < arrays->n && tried < MOST && !w->average; k++) {
            const char *name = arrays->items[k].name;
            if (!begins(name, averages[i]))
                continue;
            tried++;
            if (attn__names_know(w->names, name + strlen(averages[i]), true))
                w->average = averages[i];
        }
}

/* Returns whether a tensor is skipped, because it holds data of a training, or because averaged weights are used
 * instead. */
static bool stands_beside(const work *w, const char *name)
{
    static const char *const parts[] = {"optimizer.",  "optimizers.",   "optimizer_states.", "scaler.",
                                        "amp_scaler.", "lr_scheduler.", "lr_schedulers.",    "scheduler.",
                                        "callbacks.",  "loops."};
    const char *last = strrchr(name, '.');
    if (strcmp(last ? last + 1 : name, "n_averaged") == 0 || (w->average && !begins(name, w->average)))
        return true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (begins(name, parts[i]))
            return true;
    return false;
}

static attn_status keep_as_it_is(work *w, attn__array *array)
{
    static const attn__rule as_it_is = {.line = 0};
    return add_made(w, &(made){.target = array->name, .array = *array, .rule = &as_it_is});
}

static attn_status use_array(work *w, attn__array *array)
{
    bool known = false, taken = false, averaged = w->average && begins(array->name, w->average);
    const char *name = w->average && !averaged ? NULL : array->name + (averaged ? strlen(w->average) : 0);
    attn_status status = ATTN_OK;
    for (; name && !taken && status == ATTN_OK; name = attn__name_unwrapped(name))
        status = use_rules(w, array, name, &known, &taken);
    if (status != ATTN_OK || known)
        return status;
    if (w->keep)
        return keep_as_it_is(w, array);
    if (stands_beside(w, array->name)) {
        w->passed++;
        return ATTN_OK;
    }
    char shape[128];
    attn__array_shape_text(shape, array->rank, array->shape);
    return attn__fail(w->names->context, ATTN_ERROR_UNSUPPORTED, "%s: no rule of %s matches \"%.200s\" %s",
                      w->findings->arrays.file, w->names->file, array->name, shape);
}

static attn_status tell_passed(const work *w)
{
    int length = w->average ? (int)strlen(w->average) - 1 : 0;
    if (w->average)
        return attn__findings_note(w->findings,
                                   "%s: the moving average of the weights (%.*s) is used, as timm does; %" PRId64
                                   " other tensors were skipped",
                                   w->findings->arrays.file, length, w->average, w->passed);
    return w->passed ? attn__findings_note(w->findings,
                                           "%s: %" PRId64 " tensors of the optimizer and the training were skipped",
                                           w->findings->arrays.file, w->passed)
                     : ATTN_OK;
}

/* ----------------------------------------------------------------------------------------- joins and sums */

static int by_target(const void *a, const void *b)
{
    const made *x = a, *y = b;
    int names = strcmp(x->target, y->target);
    int64_t i = x->join ? x->join->a : -1, k = y->join ? y->join->a : -1;
    return names ? names : i != k ? (i > k) - (i < k) : strcmp(x->array.origin, y->array.origin);
}

static attn_status check_slices(const work *w, const made *first, int64_t n)
{
    const attn__operation *join = first->join;
    if (join->kind == ATTN__JOIN && join->axis >= first->array.rank)
        return fail(w, first->rule->line, "the rule joins along axis %d, but the slices of \"%.200s\" have %d axes",
                    join->axis, first->target, first->array.rank);
    for (int64_t i = 0; i < n; i++) {
        const made *slice = &first[i];
        int64_t shape[ATTN_MAX_RANK];
        memcpy(shape, slice->array.shape, sizeof shape);
        if (join->kind == ATTN__JOIN && slice->array.rank == first->array.rank)
            shape[join->axis] = first->array.shape[join->axis];
        if (slice->join->kind != join->kind || slice->join->b != join->b || slice->join->axis != join->axis)
            return fail(w, slice->rule->line,
                        "the rules of the slices of \"%.200s\" differ in join or add, in the number of slices or in "
                        "the axis",
                        first->target);
        if (slice->array.rank != first->array.rank ||
            (first->array.rank > 0 &&
             memcmp(shape, first->array.shape, (size_t)first->array.rank * sizeof *shape) != 0)) {
            char a[128], b[128];
            attn__array_shape_text(a, first->array.rank, first->array.shape);
            attn__array_shape_text(b, slice->array.rank, slice->array.shape);
            return fail(w, slice->rule->line, "slices of \"%.200s\" with the shapes %s and %s do not fit together",
                        first->target, a, b);
        }
        if (slice->join->a != i)
            return fail(w, slice->rule->line,
                        slice->join->a < i ? "slice %" PRId64 " of \"%.200s\" is given twice"
                                           : "slice %" PRId64 " of \"%.200s\" is missing",
                        slice->join->a < i ? slice->join->a : i, first->target);
    }
    return n == join->b ? ATTN_OK
                        : fail(w, first->rule->line, "slice %" PRId64 " of \"%.200s\" is missing", n, first->target);
}

/* Copies the elements of the slice to new memory of `dense` in row-major order, as reals of the target's type. */
static attn_status make_dense(const work *w, const attn__array *slice, attn__array *dense)
{
    attn_dtype dtype = dense->element == ATTN__F64 ? ATTN_F64 : ATTN_F32;
    attn_status status = attn__findings_reals(w->findings, dense);
    return status == ATTN_OK ? attn__array_copy(&w->findings->arrays, slice, dtype, (void *)(uintptr_t)dense->data)
                             : status;
}

/* A slice is copied in runs of contiguous elements. A run spans the joined axis and all axes after it. */
static attn_status copy_slices(const work *w, const made *first, int64_t n, attn__array *whole)
{
    const int axis = first->join->axis;
    size_t size = attn__element_size(whole->element), inner = size, place = 0;
    for (int i = axis; i < whole->rank; i++)
        inner *= (size_t)whole->shape[i];
    uint8_t *out = (uint8_t *)(uintptr_t)whole->data;
    for (int64_t s = 0; s < n; s++) {
        const attn__array *slice = &first[s].array;
        attn__array dense = *slice;
        dense.element = whole->element;
        attn_status status = make_dense(w, slice, &dense);
        if (status != ATTN_OK)
            return status;
        size_t bytes = size, count = (size_t)attn__array_count(slice);
        for (int i = axis; i < slice->rank; i++)
            bytes *= (size_t)slice->shape[i];
        for (size_t row = 0; bytes && row < count * size / bytes; row++)
            memcpy(out + row * inner + place, dense.data + row * bytes, bytes);
        place += bytes;
    }
    return ATTN_OK;
}

/* Adds up the slices in the order of their indices, in the target's type. */
static attn_status add_slices(const work *w, const made *first, int64_t n, attn__array *whole)
{
    int64_t count = attn__array_count(whole);
    for (int64_t s = 0; s < n; s++) {
        attn__array dense = first[s].array;
        dense.element = whole->element;
        attn_status status = make_dense(w, &first[s].array, &dense);
        if (status != ATTN_OK)
            return status;
        double *sum64 = (double *)(uintptr_t)whole->data;
        float *sum32 = (float *)(uintptr_t)whole->data;
        const double *part64 = (const void *)dense.data;
        const float *part32 = (const void *)dense.data;
        for (int64_t i = 0; i < count && whole->element == ATTN__F64; i++)
            sum64[i] = s > 0 ? sum64[i] + part64[i] : part64[i];
        for (int64_t i = 0; i < count && whole->element != ATTN__F64; i++)
            sum32[i] = s > 0 ? sum32[i] + part32[i] : part32[i];
    }
    return ATTN_OK;
}

static attn_status join(const work *w, made *first, int64_t n)
{
    attn__array whole = first->array;
    attn_status status = check_slices(w, first, n);
    if (status != ATTN_OK)
        return status;
    for (int64_t i = 1; i < n; i++)
        whole.element = first[i].array.element == ATTN__F64 ? ATTN__F64 : whole.element;
    bool adds = first->join->kind == ATTN__ADD;
    for (int64_t i = 1; i < n && !adds; i++)
        whole.shape[first->join->axis] += first[i].array.shape[first->join->axis];
    status = attn__findings_reals(w->findings, &whole);
    if (status == ATTN_OK)
        status = adds ? add_slices(w, first, n, &whole) : copy_slices(w, first, n, &whole);
    if (status == ATTN_OK)
        first->array = whole;
    return status;
}

static attn_status fail_twice(const work *w, const made *first)
{
    return attn__fail(w->names->context, ATTN_ERROR_FORMAT,
                      "%s: %s: \"%.150s\" is filled twice: by \"%.150s\" (line %d) and \"%.150s\" (line %d)",
                      w->findings->arrays.file, w->names->file, first->target, first[0].array.origin,
                      first[0].rule->line, first[1].array.origin, first[1].rule->line);
}

static attn__array row_of(const attn__array *array, int64_t i)
{
    attn__array row = *array;
    if (row.rank == 0)
        return row;
    row.data += (size_t)(i * row.stride[0]) * attn__element_size(row.element);
    row.shape[0] = 1;
    return row;
}

/* Two NaNs count as equal. The arrays are compared row by row. */
static attn_status are_same(const work *w, const attn__array *a, const attn__array *b, bool *same)
{
    attn_context *context = w->names->context;
    int64_t rows = a->rank > 0 ? a->shape[0] : 1;
    *same = a->rank == b->rank && (a->rank == 0 || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0);
    if (!*same || attn__array_count(a) == 0)
        return ATTN_OK;
    size_t size = attn__size_mul((size_t)(attn__array_count(a) / rows), sizeof(double));
    char *numbers = attn__alloc(context, attn__size_mul(size, 2));
    attn_status status = numbers ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < rows && *same && status == ATTN_OK; i++) {
        attn__array x = row_of(a, i), y = row_of(b, i);
        status = attn__array_copy(&w->findings->arrays, &x, ATTN_F64, numbers);
        if (status == ATTN_OK)
            status = attn__array_copy(&w->findings->arrays, &y, ATTN_F64, numbers + size);
        *same = memcmp(numbers, numbers + size, size) == 0;
    }
    attn__free(context, numbers);
    return status;
}

/* Checks that tensors are equal if they make one target by the operation "same". */
static attn_status check_same(const work *w, const made *first, int64_t n)
{
    bool same = true;
    attn_status status = ATTN_OK;
    for (int64_t i = 1; i < n && status == ATTN_OK && same; i++) {
        if (!first[i].join || first[i].join->kind != ATTN__SAME)
            return fail_twice(w, first + i - 1);
        status = are_same(w, &first[0].array, &first[i].array, &same);
        if (status == ATTN_OK && !same)
            status = attn__fail(
                w->names->context, ATTN_ERROR_FORMAT,
                "%s: \"%.150s\" and \"%.150s\" are one tensor of the model, but their numbers differ; leave one of "
                "the two out (%s: lines %d and %d)",
                w->findings->arrays.file, first[0].array.origin, first[i].array.origin, w->names->file,
                first[0].rule->line, first[i].rule->line);
    }
    return status;
}

/* Moves the tensors that the rules have made, sorted by target, to `arrays`. */
static attn_status collect(work *w, attn__arrays *arrays)
{
    attn_status status = ATTN_OK;
    if (w->n > 0)
        qsort(w->items, (size_t)w->n, sizeof *w->items, by_target);
    for (int64_t i = 0, end; i < w->n && status == ATTN_OK; i = end) {
        made *first = &w->items[i];
        for (end = i + 1; end < w->n && strcmp(w->items[end].target, first->target) == 0; end++) {
        }
        if (first->join && first->join->kind == ATTN__SAME)
            status = check_same(w, first, end - i);
        else if (first->join)
            status = join(w, first, end - i);
        else if (end - i > 1)
            status = fail_twice(w, first);
        if (status != ATTN_OK)
            break;
        first->array.name = first->target;
        first->target = NULL;
        status = attn__arrays_add(arrays, &first->array);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------ whole */

/* Stores a copy of the array's name in array->origin. The name itself is freed before the array. */
static attn_status keep_name(work *w, attn__array *array)
{
    size_t size = strlen(array->name) + 1;
    char *kept = attn__findings_memory(w->findings, size);
    if (!kept)
        return ATTN_ERROR_MEMORY;
    memcpy(kept, array->name, size);
    array->origin = kept;
    return ATTN_OK;
}

attn_status attn__names_apply(const attn_name_map *names, attn__findings *findings, bool keep)
{
    work w = {.names = names, .findings = findings, .keep = keep, .steps = STEPS};
    attn__arrays arrays = {.context = names->context, .file = findings->arrays.file};
    attn_status status = ATTN_OK;
    choose_average(&w);
    for (int64_t i = 0; i < findings->arrays.n && status == ATTN_OK; i++) {
        status = keep_name(&w, &findings->arrays.items[i]);
        if (status == ATTN_OK)
            status = use_array(&w, &findings->arrays.items[i]);
    }
    if (status == ATTN_OK)
        status = tell_passed(&w);
    if (status == ATTN_OK)
        status = collect(&w, &arrays);
    for (int64_t i = 0; i < w.n; i++)
        attn__free(names->context, w.items[i].target);
    attn__free(names->context, w.items);
    if (status == ATTN_OK) {
        arrays.backing = findings->arrays.backing;
        attn__arrays_clear(&findings->arrays);
        findings->arrays = arrays;
    } else {
        attn__arrays_clear(&arrays);
    }
    return status;
}
