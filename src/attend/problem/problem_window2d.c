/* SPDX-License-Identifier: MIT
 * A window over an image as a table of dimensions. */
#include "attn/attn.h"

static bool is_sound(const attn_window2d *w)
{
    int64_t elements = 1;
    const int64_t sizes[] = {w->batch, w->height, w->width, w->heads, w->dim, w->window_y, w->window_x};
    for (int i = 0; i < 7; i++)
        if (sizes[i] < 0 || __builtin_mul_overflow(elements, sizes[i] ? sizes[i] : 1, &elements))
            return false;
    return w->step >= 0 && w->dilation >= 0 && (unsigned)w->border <= ATTN_BORDER_SHIFT;
}

attn_status attn_problem_window2d(attn_problem *problem, const attn_window2d *w)
{
    *problem = (attn_problem){0};
    if (!is_sound(w))
        return ATTN_ERROR_ARGUMENT;
    int64_t step = w->step ? w->step : 1, dilation = w->dilation ? w->dilation : 1;
    int64_t ny = w->height / step + (w->height % step != 0), nx = w->width / step + (w->width % step != 0);
    int64_t token = w->heads * w->dim, taps = w->window_y * w->window_x;
    int64_t row = w->width * token, q_row = nx * token, image = w->height * row, q_image = ny * q_row;
    const attn_dim dims[] = {
        {.role = ATTN_ROLE_BATCH,
         .n = w->batch,
         .q = q_image,
         .k = image,
         .v = image,
         .o = q_image,
         .lse = w->heads * ny * nx,
         .weights = w->heads * ny * nx * taps},
        {.role = ATTN_ROLE_BATCH,
         .n = w->heads,
         .q = w->dim,
         .k = w->dim,
         .v = w->dim,
         .o = w->dim,
         .lse = ny * nx,
         .weights = ny * nx * taps},
        {.role = ATTN_ROLE_QUERY, .n = ny, .q = q_row, .o = q_row, .lse = nx, .weights = nx * taps},
        {.role = ATTN_ROLE_QUERY, .n = nx, .q = token, .o = token, .lse = 1, .weights = taps},
        {.role = ATTN_ROLE_KEY, .n = w->window_y, .k = row, .v = row, .weights = w->window_x},
        {.role = ATTN_ROLE_KEY, .n = w->window_x, .k = token, .v = token, .weights = 1},
        {.role = ATTN_ROLE_CONTRACT, .n = w->dim, .q = 1, .k = 1},
        {.role = ATTN_ROLE_VALUE, .n = w->dim, .v = 1, .o = 1},
    };
    problem->ndims = (int)(sizeof dims / sizeof *dims);
    for (int i = 0; i < problem->ndims; i++)
        problem->dims[i] = dims[i];
    problem->nwindows = 2;
    problem->windows[0] = (attn_window){.query_dim = 2,
                                        .key_dim = 4,
                                        .size = w->height,
                                        .step = step,
                                        .dilation = dilation,
                                        .offset = -(w->window_y / 2) * dilation,
                                        .border = w->border};
    problem->windows[1] = (attn_window){.query_dim = 3,
                                        .key_dim = 5,
                                        .size = w->width,
                                        .step = step,
                                        .dilation = dilation,
                                        .offset = -(w->window_x / 2) * dilation,
                                        .border = w->border};
    return ATTN_OK;
}
