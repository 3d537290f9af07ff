/* SPDX-License-Identifier: MIT
 *
 * Compiles the loops of spatial_tmpl.h for float and for double.
 */
#include "tensor/spatial.h"

#include "base/context.h"
#include "base/parallel.h"
#include "kernels/channel_norm/channel_norm.h"

#include <string.h>

/* Returns the index of the first element along an axis that a window covers. This is 0 if the window begins before the
 * input. */
static int64_t first_inside(const attn__window_grid *g, int axis, int64_t window)
{
    int64_t at = window * g->stride[axis] - g->padding[axis];
    return at < 0 ? 0 : at;
}

static void first_of_windows(const attn__window_grid *g, int32_t *index)
{
    for (int64_t z = 0; z < g->out[0]; z++)
        for (int64_t y = 0; y < g->out[1]; y++)
            for (int64_t x = 0; x < g->out[2]; x++)
                *index++ = (int32_t)((first_inside(g, 0, z) * g->in[1] + first_inside(g, 1, y)) * g->in[2] +
                                     first_inside(g, 2, x));
}

#define REAL       float
#define NAME(name) name##_float
#include "tensor/spatial_tmpl.h"
#undef REAL
#undef NAME

#define REAL       double
#define NAME(name) name##_double
#include "tensor/spatial_tmpl.h"

const attn__spatial_loops *attn__spatial_loops_for(bool is_double)
{
    return is_double ? &loops_double : &loops_float;
}

typedef struct sum_job {
    const attn__batch_norm_args *args;
    const attn__channel_norm_kernel *kernel; /* the f32 kernel; NULL for f64 */
} sum_job;

static double sum_of_plane(const sum_job *job, int64_t plane)
{
    /* with fewer elements in a plane than this, a call of the kernel takes longer than the loop */
    enum { FEW = 16 };
    int64_t n = job->args->plane, first = plane * n;
    const float *x = job->args->dy;
    const double *wide = job->args->dy;
    double sum = 0;
    if (job->kernel && n >= FEW)
        return job->kernel->sum(x + first, n);
    for (int64_t i = 0; i < n; i++)
        sum += job->kernel ? (double)x[first + i] : wide[first + i];
    return sum;
}

static void sum_some(void *user, int64_t begin, int64_t end)
{
    const sum_job *job = user;
    const attn__batch_norm_args *a = job->args;
    for (int64_t c = begin; c < end; c++) {
        double sum = 0;
        for (int64_t b = 0; b < a->batch; b++)
            sum += sum_of_plane(job, b * a->channels + c);
        if (job->kernel)
            ((float *)a->dbias)[c] = (float)sum + (a->add_bias ? ((float *)a->dbias)[c] : 0);
        else
            ((double *)a->dbias)[c] = sum + (a->add_bias ? ((double *)a->dbias)[c] : 0);
    }
}

void attn__sum_channels(const attn_context *context, attn_dtype dtype, const attn__batch_norm_args *args)
{
    sum_job job = {args, dtype == ATTN_F64 ? NULL : attn__channel_norm_for(context->isa)};
    attn__parallel_range(context->threads, args->channels, 1, sum_some, &job);
}
