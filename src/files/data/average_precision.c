/* SPDX-License-Identifier: MIT
 * Evaluates boxes like COCO.
 *
 * The detections and the objects of one category in one image form a group. In each group, detections are matched with
 * objects. This is done for all pairs of an IoU threshold and a size range at once: each pair has one bit of a mask.
 * The average precision of a category is then computed from its detections, ordered by falling score. */
#include "data/average_precision.h"

#include "base/context.h"
#include "base/integers.h"
#include "base/parallel.h"

#include <math.h>
#include <stdlib.h>

enum { THRESHOLDS = 10, RECALLS = 101, SIZES = 4, MOST = 100 };

/* The thresholds have the values of numpy.linspace(0.5, 0.95, 10), including the rounding error of the ninth value. */
static const double thresholds[THRESHOLDS] = {0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.8999999999999999, 0.95};
static const double least_area[SIZES] = {0, 0, 32 * 32, 96 * 96}, most_area[SIZES] = {1e10, 32 * 32, 96 * 96, 1e10};
/* limits on the number of detections per image; recall is computed for these limits and for MOST */
static const int cuts[] = {1, 10};

const attn__ap_measure attn__ap_measures[ATTN__AP_MEASURES] = {
    {"AP", false, 0, "all", MOST},        {"AP50", false, 0.5, "all", MOST},      {"AP75", false, 0.75, "all", MOST},
    {"APsmall", false, 0, "small", MOST}, {"APmedium", false, 0, "medium", MOST}, {"APlarge", false, 0, "large", MOST},
    {"AR1", true, 0, "all", 1},           {"AR10", true, 0, "all", 10},           {"AR100", true, 0, "all", MOST},
    {"ARsmall", true, 0, "small", MOST},  {"ARmedium", true, 0, "medium", MOST},  {"ARlarge", true, 0, "large", MOST},
};

/* A detection. Detections are sorted by category, then by image, then by falling score. */
typedef struct found {
    double score;
    /* masks with one bit for each pair of a size range and a threshold; the index of the bit is size * THRESHOLDS +
     * threshold */
    uint64_t matched, ignored;
    int64_t index; /* index of the detection in the caller's array */
    int64_t place; /* index of the detection among all sorted detections */
    /* index of the detection in its group; detections with rank MOST or more are not counted */
    int64_t rank;
} found;

typedef struct group {
    int64_t begin, end;     /* range of the group's detections in `all` */
    int64_t first, objects; /* first: index of the group's first object in `order`; objects: number of objects */
} group;

typedef struct category_result {
    double precision[SIZES][THRESHOLDS]; /* mean precision over the recall levels */
    double recall[SIZES][THRESHOLDS], cut_recall[2][THRESHOLDS];
    int64_t objects[SIZES];
} category_result;

typedef struct candidate {
    int64_t object; /* index of the object within its group */
    double iou;
} candidate;

/* The scratch memory of one thread. Its arrays have room for the group with the most objects. */
typedef struct scratch {
    candidate *candidates;
    uint64_t *taken;  /* for each object: mask of the size and threshold pairs for which it is already matched */
    uint8_t *ignored; /* for each object: a mask with one bit for each size range in which it is ignored */
} scratch;

typedef struct evaluation {
    attn_context *context;
    const attn__box_set *set;
    const attn__detection *detections;
    int64_t n, ngroups;
    found *all;
    int64_t *order;                   /* indices of the set's objects, sorted by category and image */
    int64_t *found_ends, *order_ends; /* for each category: the end of its range in `all`, and in `order` */
    group *groups;
    scratch *scratches;
    category_result *results;
    double *precisions; /* scratch array with one element per object of the set */
} evaluation;

/* ------------------------------------------------------------------------------------------- the groups */

static attn_status check(const evaluation *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        const attn__detection *d = e->detections + i;
        const attn__box *b = &d->box;
        if (d->image < 0 || d->image >= e->set->nimages)
            return attn__fail(
                e->context, ATTN_ERROR_ARGUMENT,
                "detection %lld: its image is %lld; it must be at least 0 and less than %lld, the number of images",
                (long long)i, (long long)d->image, (long long)e->set->nimages);
        if (d->category < 0 || d->category >= e->set->ncategories)
            return attn__fail(e->context, ATTN_ERROR_ARGUMENT,
                              "detection %lld: its category is %lld; it must be at least 0 and less than %lld, the "
                              "number of categories",
                              (long long)i, (long long)d->category, (long long)e->set->ncategories);
        if (isnan(d->score))
            return attn__fail(e->context, ATTN_ERROR_ARGUMENT, "detection %lld: its score is not a number",
                              (long long)i);
        if (!isfinite(b->x) || !isfinite(b->y) || !isfinite(b->width) || !isfinite(b->height))
            return attn__fail(e->context, ATTN_ERROR_ARGUMENT, "detection %lld: its box is not finite", (long long)i);
    }
    return ATTN_OK;
}

/* Converts counts to positions: ends[k] becomes the position at which range k begins. The function `put` later
 * advances ends[k] until it is the end of range k. */
static void begin_places(int64_t *ends, int64_t n)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t count = ends[k];
        ends[k] = sum;
        sum += count;
    }
}

/* Sorts the detections by category and image. Detections of the same category and image keep their order. */
static attn_status order_detections(evaluation *e)
{
    const attn__detection *d = e->detections;
    int64_t *ends = attn__alloc_zero(e->context, attn__size_mul((size_t)e->set->nimages, sizeof *ends));
    int64_t *by_image = attn__alloc(e->context, attn__size_mul((size_t)e->n, sizeof *by_image));
    if (ends && by_image) {
        for (int64_t i = 0; i < e->n; i++) {
            ends[d[i].image]++;
            e->found_ends[d[i].category]++;
        }
        begin_places(ends, e->set->nimages);
        begin_places(e->found_ends, e->set->ncategories);
        for (int64_t i = 0; i < e->n; i++)
            by_image[ends[d[i].image]++] = i;
        for (int64_t i = 0; i < e->n; i++) {
            int64_t index = by_image[i];
            e->all[e->found_ends[d[index].category]++] = (found){.score = d[index].score, .index = index};
        }
    }
    attn_status status = ends && by_image ? ATTN_OK : ATTN_ERROR_MEMORY;
    attn__free(e->context, by_image);
    attn__free(e->context, ends);
    return status;
}

static void order_objects(evaluation *e)
{
    const attn__object *objects = e->set->objects;
    for (int64_t i = 0; i < e->set->nobjects; i++)
        e->order_ends[objects[i].category]++;
    begin_places(e->order_ends, e->set->ncategories);
    for (int64_t i = 0; i < e->set->nobjects; i++)
        e->order[e->order_ends[objects[i].category]++] = i;
}

/* Groups without detections are not needed: their objects are only counted. */
static void make_groups(evaluation *e)
{
    const attn__object *objects = e->set->objects;
    int64_t at = 0, object = 0;
    for (int64_t k = 0; k < e->set->ncategories; k++) {
        while (at < e->found_ends[k]) {
            int64_t image = e->detections[e->all[at].index].image;
            group g = {.begin = at};
            while (at < e->found_ends[k] && e->detections[e->all[at].index].image == image)
                at++;
            while (object < e->order_ends[k] && objects[e->order[object]].image < image)
                object++;
            g.first = object;
            while (object < e->order_ends[k] && objects[e->order[object]].image == image)
                object++;
            g.end = at;
            g.objects = object - g.first;
            e->groups[e->ngroups++] = g;
        }
        object = e->order_ends[k];
    }
}

/* -------------------------------------------------------------------------------------------- matching */

static double intersection_over_union(const attn__box *d, const attn__object *object)
{
    const attn__box *g = &object->box;
    double w = fmin(d->width + d->x, g->width + g->x) - fmax(d->x, g->x);
    double h = fmin(d->height + d->y, g->height + g->y) - fmax(d->y, g->y);
    if (w <= 0 || h <= 0)
        return 0;
    double i = w * h, area = d->width * d->height;
    return i / (object->crowd ? area : area + g->width * g->height - i);
}

static bool outside(double area, int size)
{
    return area < least_area[size] || area > most_area[size];
}

static int compare_in_group(const void *left, const void *right)
{
    const found *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Returns the object with the highest overlap with the detection. Objects that are already matched are skipped,
 * except crowds. If `ignored` is true, only ignored objects are candidates, otherwise only the others. If two
 * overlaps are equal, the later candidate is chosen. */
static int64_t best_of(const evaluation *e, const group *g, const scratch *s, int64_t ncandidates, int size,
                       int threshold, bool ignored)
{
    uint64_t bit = 1ull << (size * THRESHOLDS + threshold);
    double most = thresholds[threshold];
    int64_t best = -1;
    for (int64_t c = 0; c < ncandidates; c++) {
        int64_t object = s->candidates[c].object;
        if ((s->ignored[object] >> size & 1) != ignored || s->candidates[c].iou < most)
            continue;
        if ((s->taken[object] & bit) && !e->set->objects[e->order[g->first + object]].crowd)
            continue;
        most = s->candidates[c].iou;
        best = object;
    }
    return best;
}

static void match(const evaluation *e, const group *g, const scratch *s, found *f)
{
    const attn__box *box = &e->detections[f->index].box;
    int64_t n = 0;
    for (int64_t object = 0; object < g->objects; object++) {
        double iou = intersection_over_union(box, e->set->objects + e->order[g->first + object]);
        if (!(iou < thresholds[0]))
            s->candidates[n++] = (candidate){object, iou};
    }
    for (int size = 0; size < SIZES; size++) {
        bool is_outside = outside(box->width * box->height, size);
        for (int t = 0; t < THRESHOLDS; t++) {
            uint64_t bit = 1ull << (size * THRESHOLDS + t);
            int64_t best = n > 0 ? best_of(e, g, s, n, size, t, false) : -1;
            if (best < 0 && n > 0)
                best = best_of(e, g, s, n, size, t, true);
            bool counts = best >= 0 && e->set->objects[e->order[g->first + best]].id != 0;
            f->matched |= counts ? bit : 0;
            f->ignored |= (best >= 0 && (s->ignored[best] >> size & 1)) || (!counts && is_outside) ? bit : 0;
            if (best >= 0)
                s->taken[best] |= bit;
        }
    }
}

static uint8_t ignored_sizes(const attn__object *object)
{
    unsigned sizes = 0;
    for (int size = 0; size < SIZES; size++)
        sizes |= (unsigned)(object->crowd || outside(object->area, size)) << size;
    return (uint8_t)sizes;
}

enum { GROUPS_AT_ONCE = 128 };

static void match_groups(void *user, int64_t item, int thread)
{
    const evaluation *e = user;
    const scratch *s = e->scratches + thread;
    int64_t end = attn__min((item + 1) * GROUPS_AT_ONCE, e->ngroups);
    for (int64_t i = item * GROUPS_AT_ONCE; i < end; i++) {
        const group *g = e->groups + i;
        qsort(e->all + g->begin, (size_t)(g->end - g->begin), sizeof *e->all, compare_in_group);
        for (int64_t object = 0; object < g->objects; object++) {
            s->taken[object] = 0;
            s->ignored[object] = ignored_sizes(e->set->objects + e->order[g->first + object]);
        }
        for (int64_t k = g->begin; k < g->end; k++) {
            e->all[k].rank = k - g->begin;
            e->all[k].place = k;
            if (k - g->begin < MOST)
                match(e, g, s, e->all + k);
        }
    }
}

/* ------------------------------------------------------------------------------------------ a category */

static int compare_in_category(const void *left, const void *right)
{
    const found *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Returns the mean, over the recall levels, of the highest precision at this recall or a higher one. precisions[i]
 * is the precision when i + 1 of the `objects` objects are found. n is the number of found objects. */
static double mean_precision(double *precisions, int64_t n, int64_t objects)
{
    double sum = 0;
    int64_t at = 0;
    for (int64_t i = n - 1; i > 0; i--)
        precisions[i - 1] = fmax(precisions[i - 1], precisions[i]);
    for (int r = 0; r < RECALLS; r++) {
        while (at < n && (double)(at + 1) / (double)objects < r * 0.01)
            at++;
        sum += at < n ? precisions[at] : 0;
    }
    return sum / RECALLS;
}

static void measure(const found *all, int64_t n, int size, int threshold, double *precisions, category_result *result)
{
    int bit = size * THRESHOLDS + threshold;
    int64_t hits = 0, misses = 0, cut_hits[2] = {0};
    for (int64_t i = 0; i < n; i++) {
        if (all[i].ignored >> bit & 1)
            continue;
        if (!(all[i].matched >> bit & 1)) {
            misses++;
            continue;
        }
        hits++;
        precisions[hits - 1] = (double)hits / ((double)(hits + misses) + 0x1p-52);
        for (int c = 0; c < 2; c++)
            cut_hits[c] += all[i].rank < cuts[c];
    }
    double objects = (double)result->objects[size];
    result->recall[size][threshold] = (double)hits / objects;
    for (int c = 0; c < 2 && size == 0; c++)
        result->cut_recall[c][threshold] = (double)cut_hits[c] / objects;
    result->precision[size][threshold] = mean_precision(precisions, hits, result->objects[size]);
}

static void measure_category(void *user, int64_t category, int thread)
{
    evaluation *e = user;
    (void)thread;
    category_result *result = e->results + category;
    int64_t first = category > 0 ? e->order_ends[category - 1] : 0, end = e->order_ends[category];
    for (int64_t i = first; i < end; i++) {
        unsigned ignored = ignored_sizes(e->set->objects + e->order[i]);
        for (int size = 0; size < SIZES; size++)
            result->objects[size] += !(ignored >> size & 1);
    }
    int64_t begin = category > 0 ? e->found_ends[category - 1] : 0, n = 0;
    /* the array is compacted in place, because the detections that are removed are not needed again */
    found *sorted = e->all + begin;
    for (int64_t i = begin; i < e->found_ends[category]; i++)
        if (e->all[i].rank < MOST)
            sorted[n++] = e->all[i];
    qsort(sorted, (size_t)n, sizeof *sorted, compare_in_category);
    for (int size = 0; size < SIZES; size++)
        for (int t = 0; t < THRESHOLDS && result->objects[size] > 0; t++)
            measure(sorted, n, size, t, e->precisions + first, result);
}

/* -------------------------------------------------------------------------------------------- the means */

static int size_of(const attn__ap_measure *m)
{
    return m->area[0] == 's' ? 1 : m->area[0] == 'm' ? 2 : m->area[0] == 'l' ? 3 : 0;
}

/* Returns -1 if the category has no objects in the size range. */
static double measure_of(const category_result *r, const attn__ap_measure *m)
{
    int size = size_of(m), n = 0;
    const double *values = m->recall && m->detections < MOST ? r->cut_recall[m->detections > 1]
                           : m->recall                       ? r->recall[size]
                                                             : r->precision[size];
    double sum = 0;
    for (int t = 0; t < THRESHOLDS; t++) {
        bool counts = m->iou <= 0 || thresholds[t] == m->iou;
        sum += counts ? values[t] : 0;
        n += counts;
    }
    return r->objects[size] > 0 ? sum / n : -1;
}

static void average(const evaluation *e, double measures[ATTN__AP_MEASURES], double *by_category)
{
    for (int i = 0; i < ATTN__AP_MEASURES; i++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t k = 0; k < e->set->ncategories; k++) {
            double value = measure_of(e->results + k, attn__ap_measures + i);
            sum += value >= 0 ? value : 0;
            n += value >= 0;
        }
        measures[i] = n > 0 ? sum / (double)n : -1;
    }
    for (int64_t k = 0; by_category && k < e->set->ncategories; k++)
        by_category[k] = measure_of(e->results + k, attn__ap_measures + ATTN__AP);
}

/* --------------------------------------------------------------------------------------------- in whole */

static void *alloc_items(const evaluation *e, int64_t n, size_t size)
{
    return attn__alloc_zero(e->context, attn__size_mul((size_t)n, size));
}

static attn_status prepare(evaluation *e)
{
    e->all = alloc_items(e, e->n, sizeof *e->all);
    e->groups = alloc_items(e, e->n, sizeof *e->groups);
    e->order = alloc_items(e, e->set->nobjects, sizeof *e->order);
    e->precisions = alloc_items(e, e->set->nobjects, sizeof *e->precisions);
    e->found_ends = alloc_items(e, e->set->ncategories, sizeof *e->found_ends);
    e->order_ends = alloc_items(e, e->set->ncategories, sizeof *e->order_ends);
    e->results = alloc_items(e, e->set->ncategories, sizeof *e->results);
    e->scratches = alloc_items(e, e->context->threads, sizeof *e->scratches);
    bool made = e->all && e->groups && e->order && e->precisions && e->found_ends && e->order_ends && e->results &&
                e->scratches;
    return made ? order_detections(e) : ATTN_ERROR_MEMORY;
}

static attn_status make_scratches(evaluation *e)
{
    int64_t most = 0;
    for (int64_t i = 0; i < e->ngroups; i++)
        most = attn__max(most, e->groups[i].objects);
    for (int i = 0; i < e->context->threads; i++) {
        scratch *s = e->scratches + i;
        s->candidates = alloc_items(e, most, sizeof *s->candidates);
        s->taken = alloc_items(e, most, sizeof *s->taken);
        s->ignored = alloc_items(e, most, sizeof *s->ignored);
        if (!s->candidates || !s->taken || !s->ignored)
            return ATTN_ERROR_MEMORY;
    }
    return ATTN_OK;
}

static void release(evaluation *e)
{
    for (int i = 0; e->scratches && i < e->context->threads; i++) {
        attn__free(e->context, e->scratches[i].candidates);
        attn__free(e->context, e->scratches[i].taken);
        attn__free(e->context, e->scratches[i].ignored);
    }
    void *const memory[] = {e->all,        e->groups,     e->order,   e->precisions,
                            e->found_ends, e->order_ends, e->results, e->scratches};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        attn__free(e->context, memory[i]);
}

attn_status attn__average_precision(attn_context *context, const attn__box_set *set, const attn__detection *detections,
                                    int64_t n, double measures[ATTN__AP_MEASURES], double *by_category)
{
    evaluation e = {.context = context, .set = set, .detections = detections, .n = n};
    attn_status status = check(&e);
    if (status == ATTN_OK)
        status = prepare(&e);
    if (status == ATTN_OK) {
        order_objects(&e);
        make_groups(&e);
        status = make_scratches(&e);
    }
    if (status == ATTN_OK) {
        int64_t items = attn__ceil_div(e.ngroups, GROUPS_AT_ONCE);
        attn__parallel_items(context->threads, items, match_groups, &e);
        attn__parallel_items(context->threads, set->ncategories, measure_category, &e);
        average(&e, measures, by_category);
    }
    release(&e);
    return status;
}
