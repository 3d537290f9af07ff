/* SPDX-License-Identifier: MIT
 *
 * Implements convolutions in which each output channel reads one input channel.
 *
 * An input plane is padded with zeros and packed: elements whose positions have the same remainder modulo the stride (a
 * phase) become adjacent. Along each axis, cell c of phase p is position c * stride + p of the padded plane. Tap k of
 * output o then reads cell o + k / stride of phase k mod stride. The distance from an output to the cell of tap k is
 * the same for all outputs, so the kernel (kernels/depthwise) can process a whole plane as one row of elements. Outputs
 * are stored as cells, too. Some of these cells are past the end of a line; they are computed but not used.
 */
#include "tensor/depthwise.h"

#include "base/arena.h"
#include "base/context.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "kernels/depthwise/depthwise.h"

#include <math.h>
#include <string.h>

typedef struct layout {
    int64_t phases[3], cells[3];
    /* number of taps of a window; number of elements of one phase; number of elements of all phases */
    int64_t taps, phase_size, all;
    int64_t length; /* number of cells from the first output to the last */
    int64_t reach;  /* maximum distance, in cells, from an output to the cell of a tap */
    /* number of elements of one plane of dy, which is stored as cells with zeros before and after */
    int64_t spread;
} layout;

typedef struct job {
    const attn__depthwise *conv;
    const attn__depthwise_kernel *kernel;
    layout at;
    int64_t *offset; /* offset of each tap in a packed plane of x */
    /* Tables for the gradient of x, ordered by phase. back[i] is an offset in dy, and of_back[i] is the index in the
     * group of the weight that belongs to it. */
    int64_t *back, *of_back;
    int64_t *taps_of;
    char *scratch;
    size_t each;
    bool *finite;
} job;

typedef struct memory {
    /* x: packed plane of x or dx; cells: outputs of one phase; dy: packed plane of dy for each output channel of a
     * group */
    float *x, *cells, *dy;
    float *weight; /* weights of a group, in the order of `back` */
    double *sums;
} memory;

static layout layout_of(const attn__depthwise *conv)
{
    const attn__window_grid *g = &conv->grid;
    layout l = {.taps = attn__volume(g->kernel), .phase_size = 1, .all = 1};
    for (int a = 0; a < 3; a++) {
        int64_t farthest = (g->kernel[a] - 1) / g->stride[a];
        l.phases[a] = attn__min(g->stride[a], g->kernel[a]);
        l.cells[a] = g->out[a] + farthest;
        l.length = l.length * l.cells[a] + g->out[a] - 1;
        l.reach = l.reach * l.cells[a] + farthest;
        l.phase_size *= l.cells[a];
        l.all *= l.phases[a];
    }
    l.length++;
    l.all *= l.phase_size;
    l.spread = l.reach + l.phase_size + ATTN__DEPTHWISE_BLOCK;
    return l;
}

static int64_t weights_of(const job *j)
{
    return j->at.taps * j->conv->out_channels;
}

static size_t divide(const job *j, char *base, memory *m)
{
    attn__arena arena = {base, 0};
    m->x = attn__arena_take(&arena, j->at.all + ATTN__DEPTHWISE_BLOCK, sizeof(float));
    m->cells = attn__arena_take(&arena, j->at.phase_size + ATTN__DEPTHWISE_BLOCK, sizeof(float));
    m->dy = attn__arena_take(&arena, j->at.spread * j->conv->out_channels, sizeof(float));
    m->weight = attn__arena_take(&arena, weights_of(j), sizeof(float));
    m->sums = attn__arena_take(&arena, weights_of(j), sizeof(double));
    return arena.used;
}

/* Computes the phase that tap k reads, and the distance in cells from an output to the cell of tap k. */
static void place_tap(const job *j, int64_t k, int64_t *phase, int64_t *distance)
{
    const attn__window_grid *g = &j->conv->grid;
    int64_t index[3] = {k / (g->kernel[1] * g->kernel[2]), k / g->kernel[2] % g->kernel[1], k % g->kernel[2]};
    *phase = *distance = 0;
    for (int a = 0; a < 3; a++) {
        *phase = *phase * j->at.phases[a] + index[a] % g->stride[a];
        *distance = *distance * j->at.cells[a] + index[a] / g->stride[a];
    }
}

static int64_t phases_of(const job *j)
{
    return j->at.phases[0] * j->at.phases[1] * j->at.phases[2];
}

static void place_taps(job *j)
{
    int64_t n = 0, of, distance;
    for (int64_t phase = 0; phase < phases_of(j); phase++) {
        j->taps_of[phase] = 0;
        for (int64_t k = 0; k < j->at.taps; k++) {
            place_tap(j, k, &of, &distance);
            j->offset[k] = of * j->at.phase_size + distance;
            j->taps_of[phase] += of == phase;
            for (int64_t o = 0; o < j->conv->out_channels && of == phase; o++, n++) {
                j->back[n] = o * j->at.spread + j->at.reach - distance;
                j->of_back[n] = o * j->at.taps + k;
            }
        }
    }
}

static size_t divide_shared(job *j, char *base)
{
    attn__arena arena = {base, 0};
    j->offset = attn__arena_take(&arena, j->at.taps, sizeof(int64_t));
    j->back = attn__arena_take(&arena, weights_of(j), sizeof(int64_t));
    j->of_back = attn__arena_take(&arena, weights_of(j), sizeof(int64_t));
    j->taps_of = attn__arena_take(&arena, phases_of(j), sizeof(int64_t));
    return arena.used;
}

/* Runs work(job, item, thread) for each item, and gives each thread scratch memory. Returns false if there is no
 * memory. */
static bool run(attn_tape *tape, const attn__depthwise *conv, int64_t items, void (*work)(void *, int64_t, int),
                bool *finite)
{
    int threads = (int)attn__min(tape->context->threads, attn__max(items, 1));
    job j = {.conv = conv, .kernel = attn__depthwise_for(tape->context->isa), .at = layout_of(conv), .finite = finite};
    memory unused;
    size_t shared = divide_shared(&j, NULL);
    j.each = divide(&j, NULL, &unused);
    attn__hold scratch = attn__scratch(tape, attn__size_add(shared, attn__size_mul(j.each, (size_t)threads)));
    if (!scratch.data)
        return false;
    (void)divide_shared(&j, scratch.data);
    place_taps(&j);
    j.scratch = (char *)scratch.data + shared;
    attn__parallel_items(threads, items, work, &j);
    attn__scratch_release(scratch);
    return true;
}

/* ------------------------------------------------------------------------------------------------- packing */

/* Copies one line of cells from `plane`. If `back` is true, adds the line of cells to `plane` instead. `plane` is NULL
 * for lines of the padding. */
static void move_line(const attn__window_grid *g, int64_t phase, int64_t cells, float *line, float *plane, bool back)
{
    int64_t step = g->stride[2], shift = phase - g->padding[2];
    int64_t first = attn__min(attn__max(attn__ceil_div(-shift, step), 0), cells);
    int64_t end = attn__max(attn__min(attn__ceil_div(g->in[2] - shift, step), cells), first);
    if (!plane)
        first = end = cells;
    for (int64_t c = first; c < end && back; c++)
        plane[c * step + shift] += line[c];
    if (back)
        return;
    memset(line, 0, (size_t)first * sizeof *line);
    if (step == 1 && end > first)
        memcpy(line + first, plane + first + shift, (size_t)(end - first) * sizeof *line);
    for (int64_t c = first; c < end && step > 1; c++)
        line[c] = plane[c * step + shift];
    memset(line + end, 0, (size_t)(cells - end) * sizeof *line);
}

/* Copies the cells of one phase from the plane. If `back` is true, adds the cells to the plane instead. */
static void move_phase(const job *j, const int64_t phase[3], float *plane, float *cells, bool back)
{
    const attn__window_grid *g = &j->conv->grid;
    const layout *l = &j->at;
    for (int64_t cz = 0; cz < l->cells[0]; cz++)
        for (int64_t cy = 0; cy < l->cells[1]; cy++, cells += l->cells[2]) {
            int64_t z = cz * g->stride[0] + phase[0] - g->padding[0];
            int64_t y = cy * g->stride[1] + phase[1] - g->padding[1];
            bool inside = z >= 0 && z < g->in[0] && y >= 0 && y < g->in[1];
            move_line(g, phase[2], l->cells[2], cells, inside ? plane + (z * g->in[1] + y) * g->in[2] : NULL, back);
        }
}

/* Copies the cells of all phases from the plane. If `back` is true, adds the cells to the plane instead. */
static void move(const job *j, float *plane, float *cells, bool back)
{
    for (int64_t p = 0; p < phases_of(j); p++, cells += j->at.phase_size) {
        const int64_t *phases = j->at.phases;
        int64_t phase[3] = {p / phases[2] / phases[1], p / phases[2] % phases[1], p % phases[2]};
        move_phase(j, phase, plane, cells, back);
    }
}

/* Returns the index of the cell in which the first output of a line is stored. */
static int64_t cell_of_line(const job *j, int64_t line)
{
    return (line / j->conv->grid.out[1] * j->at.cells[1] + line % j->conv->grid.out[1]) * j->at.cells[2];
}

/* Copies the planes of dy of one group to cells, with zeros before and after each plane. */
static void spread_gradients(const job *j, int64_t image, int64_t group, float *to)
{
    const attn__depthwise *conv = j->conv;
    int64_t width = conv->grid.out[2], lines = conv->grid.out[0] * conv->grid.out[1];
    const float *dy = conv->dy + (image * conv->groups + group) * conv->out_channels * lines * width;
    memset(to, 0, (size_t)(conv->out_channels * j->at.spread) * sizeof *to);
    for (int64_t o = 0; o < conv->out_channels; o++, to += j->at.spread)
        for (int64_t line = 0; line < lines; line++, dy += width)
            memcpy(to + j->at.reach + cell_of_line(j, line), dy, (size_t)width * sizeof *to);
}

static float *plane_of(const job *j, const float *x, int64_t plane)
{
    return (float *)(uintptr_t)x + plane * attn__volume(j->conv->grid.in);
}

/* ------------------------------------------------------------------------------------------------- forward */

static void forward_plane(void *user, int64_t plane, int thread)
{
    const job *j = user;
    const attn__depthwise *conv = j->conv;
    int64_t width = conv->grid.out[2], lines = conv->grid.out[0] * conv->grid.out[1];
    memory m;
    divide(j, j->scratch + (size_t)thread * j->each, &m);
    move(j, plane_of(j, conv->x, plane), m.x, false);
    for (int64_t o = 0; o < conv->out_channels; o++) {
        int64_t channel = plane % conv->groups * conv->out_channels + o;
        float *y = conv->y + (plane * conv->out_channels + o) * lines * width;
        j->kernel->correlate(m.x, j->offset, conv->w + channel * j->at.taps, j->at.taps, j->at.length, m.cells);
        for (int64_t line = 0; line < lines; line++)
            memcpy(y + line * width, m.cells + cell_of_line(j, line), (size_t)width * sizeof *y);
        conv->finish(conv->user, y, channel, 0, lines * width);
    }
}

bool attn__depthwise_forward(attn_tape *tape, const attn__depthwise *conv)
{
    return run(tape, conv, conv->batch * conv->groups, forward_plane, NULL);
}

/* ------------------------------------------------------------------------------------------------ backward */

static void input_plane(void *user, int64_t plane, int thread)
{
    const job *j = user;
    const attn__depthwise *conv = j->conv;
    float *dx = plane_of(j, conv->dx.data, plane);
    memory m;
    divide(j, j->scratch + (size_t)thread * j->each, &m);
    spread_gradients(j, plane / conv->groups, plane % conv->groups, m.dy);
    for (int64_t i = 0; i < weights_of(j); i++)
        m.weight[i] = conv->w[plane % conv->groups * weights_of(j) + j->of_back[i]];
    for (int64_t phase = 0, first = 0; phase < phases_of(j); phase++) {
        int64_t n = j->taps_of[phase] * conv->out_channels;
        /* The kernel writes whole blocks, so it may write past the end of this phase. This is harmless, because the
         * phase after it is written later. */
        j->kernel->correlate(m.dy, j->back + first, m.weight + first, n, j->at.phase_size,
                             m.x + phase * j->at.phase_size);
        first += n;
    }
    if (!conv->dx.add)
        memset(dx, 0, (size_t)attn__volume(conv->grid.in) * sizeof *dx);
    move(j, dx, m.x, true);
}

bool attn__depthwise_input_gradient(attn_tape *tape, const attn__depthwise *conv)
{
    return run(tape, conv, conv->batch * conv->groups, input_plane, NULL);
}

static void weights_of_group(void *user, int64_t group, int thread)
{
    const job *j = user;
    const attn__depthwise *conv = j->conv;
    int64_t taps = j->at.taps, all = taps * conv->out_channels;
    float *dw = (float *)conv->dw.data + group * all;
    memory m;
    divide(j, j->scratch + (size_t)thread * j->each, &m);
    memset(m.sums, 0, (size_t)all * sizeof *m.sums);
    /* the kernel reads these elements past the end of the plane; they are multiplied by dy = 0, so they must be
     * finite */
    memset(m.x + j->at.all, 0, ATTN__DEPTHWISE_BLOCK * sizeof *m.x);
    for (int64_t image = 0; image < conv->batch; image++) {
        move(j, plane_of(j, conv->x, image * conv->groups + group), m.x, false);
        spread_gradients(j, image, group, m.dy);
        for (int64_t o = 0; o < conv->out_channels; o++)
            j->kernel->dots(m.x, j->offset, m.dy + o * j->at.spread + j->at.reach, taps, j->at.length,
                            m.sums + o * taps);
    }
    for (int64_t i = 0; i < all; i++)
        j->finite[group] = j->finite[group] && isfinite(m.sums[i]);
    for (int64_t i = 0; i < all && j->finite[group]; i++)
        dw[i] = (float)m.sums[i] + (conv->dw.add ? dw[i] : 0.0f);
}

bool attn__depthwise_weight_gradient(attn_tape *tape, const attn__depthwise *conv, bool *finite)
{
    for (int64_t g = 0; g < conv->groups; g++)
        finite[g] = true;
    return run(tape, conv, conv->groups, weights_of_group, finite);
}
