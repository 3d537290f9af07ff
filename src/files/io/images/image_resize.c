/* SPDX-License-Identifier: MIT
 *
 * Resizes images with a separable filter, which becomes wider the more the image shrinks. Intermediate results have 8
 * bits, and weights have 22 fractional bits, as in Pillow. Most vision models were trained on pictures that Pillow
 * resized, so a model gets the same pixels as in its training. */
#include "io/images/image.h"

#include <math.h>
#include <string.h>

/* Number of fractional bits of a weight. A sum of products must fit in 32 bits. 8 bits are for the sample, and 2 bits
 * are needed because weights can be outside of 0 to 1. */
enum { FRACTION = 22, HALF = 1 << (FRACTION - 1) };

/* For each position of the result: the positions of the source from which it is computed, and their weights. */
typedef struct taps {
    int64_t n, most; /* n: number of positions of the result; most: maximum number of weights of a position */
    int64_t *first, *count;
    double *shares;   /* [n][most]: weights of each position, which sum to 1 */
    int32_t *weights; /* the same weights as integers, which sum to 1 << FRACTION */
} taps;

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Returns the value at x of the cubic filter with a = -0.5 (Keys 1981, "Cubic convolution interpolation for digital
 * image processing"). */
static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* Computes the weights of position i of the result. Their sum is 1, so that a picture of one colour keeps its colour,
 * even at the border. */
static void weigh(const taps *t, int64_t i, double centre, double widening, double (*filter)(double))
{
    double *shares = t->shares + i * t->most, sum = 0;
    for (int64_t k = 0; k < t->count[i]; k++) {
        shares[k] = filter(((double)(t->first[i] + k) - centre + 0.5) / widening);
        sum += shares[k];
    }
    for (int64_t k = 0; k < t->count[i]; k++) {
        shares[k] /= sum;
        t->weights[i * t->most + k] = (int32_t)lround(shares[k] * (1 << FRACTION));
    }
}

static attn_status make_taps(taps *t, attn_context *context, int64_t from, int64_t to, attn_image_filter kind)
{
    double scale = (double)from / (double)to, widening = scale > 1 ? scale : 1;
    double reach = (kind == ATTN_IMAGE_FILTER_BICUBIC ? 2 : 1) * widening;
    *t = (taps){.n = to, .most = 2 * (int64_t)ceil(reach) + 1};
    t->first = attn__alloc(context, attn__size_mul((size_t)to, sizeof *t->first));
    t->count = attn__alloc(context, attn__size_mul((size_t)to, sizeof *t->count));
    t->shares = attn__alloc(context, attn__size_mul(attn__size_mul((size_t)to, (size_t)t->most), sizeof *t->shares));
    t->weights = attn__alloc(context, attn__size_mul(attn__size_mul((size_t)to, (size_t)t->most), sizeof *t->weights));
    if (!t->first || !t->count || !t->shares || !t->weights)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < to; i++) {
        double centre = ((double)i + 0.5) * scale;
        int64_t first = (int64_t)(centre - reach + 0.5), end = (int64_t)(centre + reach + 0.5);
        first = centre - reach + 0.5 < 0 ? 0 : first;
        end = end < from ? end : from;
        t->first[i] = first;
        t->count[i] = end - first;
        weigh(t, i, centre, widening, kind == ATTN_IMAGE_FILTER_BICUBIC ? cubic : triangle);
    }
    return ATTN_OK;
}

static void free_taps(taps *t, attn_context *context)
{
    attn__free(context, t->first);
    attn__free(context, t->count);
    attn__free(context, t->shares);
    attn__free(context, t->weights);
}

enum { COLUMNS = 1024 }; /* samples of a row whose sums are computed together */

static unsigned char rounded(int64_t sum)
{
    sum = (sum + HALF) >> FRACTION;
    return (unsigned char)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* Resizes a line of samples to t->n samples. `step` is the distance between two neighbouring samples of the line, in
 * `from` and in `to`. */
static void filter_line(const taps *t, const unsigned char *from, unsigned char *to, size_t step)
{
    for (int64_t i = 0; i < t->n; i++) {
        const unsigned char *sample = from + (size_t)t->first[i] * step;
        const int32_t *weights = t->weights + i * t->most;
        int64_t sum = 0;
        for (int64_t k = 0; k < t->count[i]; k++)
            sum += (int64_t)sample[(size_t)k * step] * weights[k];
        to[(size_t)i * step] = rounded(sum);
    }
}

static void filter_rows(const taps *t, const attn_image *from, attn_image *to)
{
    size_t channels = (size_t)from->channels;
    for (int64_t y = 0; y < from->height; y++) {
        for (size_t c = 0; c < channels; c++)
            filter_line(t, from->pixels + (size_t)(y * from->width) * channels + c,
                        to->pixels + (size_t)(y * to->width) * channels + c, channels);
    }
}

/* Computes row i of the result, for `n` samples from sample `at` of the rows on. */
static void filter_column_part(const taps *t, int64_t i, const attn_image *from, attn_image *to, size_t at, size_t n)
{
    size_t stride = (size_t)from->width * (size_t)from->channels;
    const unsigned char *row = from->pixels + (size_t)t->first[i] * stride + at;
    const int32_t *weights = t->weights + i * t->most;
    unsigned char *out = to->pixels + (size_t)i * stride + at;
    int32_t sums[COLUMNS] = {0};
    for (int64_t k = 0; k < t->count[i]; k++, row += stride)
        for (size_t x = 0; x < n; x++)
            sums[x] += row[x] * weights[k];
    for (size_t x = 0; x < n; x++)
        out[x] = rounded(sums[x]);
}

static void filter_columns(const taps *t, const attn_image *from, attn_image *to)
{
    size_t stride = (size_t)from->width * (size_t)from->channels;
    for (int64_t i = 0; i < t->n; i++)
        for (size_t at = 0; at < stride; at += COLUMNS)
            filter_column_part(t, i, from, to, at, stride - at < COLUMNS ? stride - at : COLUMNS);
}

attn_status attn_image_resize(attn_image *to, attn_context *context, const attn_image *from, int64_t width,
                              int64_t height, attn_image_filter filter)
{
    ATTN__CALL(context);
    taps across = {0}, down = {0};
    attn_image between = {0};
    *to = (attn_image){0};
    attn_status status = attn__check_choice(context, "the filter of a picture", (int)filter, ATTN_IMAGE_FILTER_BICUBIC);
    if (status == ATTN_OK && (from->width < 1 || from->height < 1))
        status =
            attn__fail(context, ATTN_ERROR_ARGUMENT, "the picture has %lld x %lld pixels; each side must be at least 1",
                       (long long)from->width, (long long)from->height);
    if (status == ATTN_OK)
        status = attn_image_alloc(to, context, width, height, from->channels);
    if (status == ATTN_OK)
        status = attn_image_alloc(&between, context, width, from->height, from->channels);
    if (status == ATTN_OK)
        status = make_taps(&across, context, from->width, width, filter);
    if (status == ATTN_OK)
        status = make_taps(&down, context, from->height, height, filter);
    if (status == ATTN_OK) {
        filter_rows(&across, from, &between);
        filter_columns(&down, &between, to);
    } else {
        attn_image_free(context, to);
    }
    attn_image_free(context, &between);
    free_taps(&across, context);
    free_taps(&down, context);
    return status;
}

/* Resizes a list of lines to t->n lines. Each line has `size` floats. `step` is the distance from one line to the
 * next. */
static void filter_numbers(const taps *t, const float *from, float *to, int64_t step, int64_t size)
{
    for (int64_t i = 0; i < t->n; i++) {
        for (int64_t x = 0; x < size; x++) {
            double sum = 0;
            for (int64_t k = 0; k < t->count[i]; k++)
                sum += t->shares[i * t->most + k] * (double)from[(t->first[i] + k) * step + x];
            to[i * step + x] = (float)sum;
        }
    }
}

attn_status attn__resize_map(attn_context *context, const float *from, const int64_t from_size[2], float *to,
                             const int64_t to_size[2], int64_t channels)
{
    taps across = {0}, down = {0};
    int64_t rows = from_size[0], line = from_size[1] * channels, new_line = to_size[1] * channels;
    float *between = attn__alloc(context, attn__size_mul((size_t)(rows * new_line), sizeof *between));
    attn_status status =
        between ? make_taps(&across, context, from_size[1], to_size[1], ATTN_IMAGE_FILTER_BICUBIC) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = make_taps(&down, context, rows, to_size[0], ATTN_IMAGE_FILTER_BICUBIC);
    for (int64_t y = 0; y < rows && status == ATTN_OK; y++)
        filter_numbers(&across, from + y * line, between + y * new_line, channels, channels);
    if (status == ATTN_OK)
        filter_numbers(&down, between, to, new_line, new_line);
    attn__free(context, between);
    free_taps(&across, context);
    free_taps(&down, context);
    return status;
}

attn_status attn_image_crop(attn_image *to, attn_context *context, const attn_image *from, int64_t x, int64_t y,
                            int64_t width, int64_t height)
{
    ATTN__CALL(context);
    *to = (attn_image){0};
    if (x < 0 || y < 0 || width > from->width - x || height > from->height - y)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "a part of %lld x %lld pixels at (%lld, %lld) does not lie in the image of %lld x %lld",
                          (long long)width, (long long)height, (long long)x, (long long)y, (long long)from->width,
                          (long long)from->height);
    attn_status status = attn_image_alloc(to, context, width, height, from->channels);
    size_t channels = (size_t)from->channels;
    for (int64_t row = 0; status == ATTN_OK && row < height; row++)
        memcpy(to->pixels + (size_t)(row * width) * channels,
               from->pixels + (size_t)((y + row) * from->width + x) * channels, (size_t)width * channels);
    return status;
}

attn_status attn__image_fit(attn_image *to, attn_context *context, const attn_image *from, int64_t width,
                            int64_t height, const attn__image_fitting *fitting)
{
    int64_t wide = fitting->side ? fitting->side : width, high = fitting->side ? fitting->side : height;
    *to = (attn_image){0};
    const bool small = width < 1 || height < 1;
    if (from->width < 1 || from->height < 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "the picture has %lld x %lld pixels; each side must be at least 1", (long long)from->width,
                          (long long)from->height);
    if (small || wide > ATTN__IMAGE_SIDE || high > ATTN__IMAGE_SIDE)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "a picture cannot be fitted to %lld x %lld pixels; each side must be 1 to %d",
                          (long long)(small ? width : wide), (long long)(small ? height : high), (int)ATTN__IMAGE_SIDE);
    if (wide < width || high < height)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "a picture is to be scaled to a side of %lld pixels, which is too small for the %lld x %lld "
                          "pixels that are to be cut out",
                          (long long)fitting->side, (long long)width, (long long)height);
    /* true: the width becomes `wide`, and the height at least `high`; false: the height becomes `high`, and the width
     * at least `wide` */
    bool by_width = wide * from->height >= high * from->width;
    int64_t w = by_width || fitting->squash ? wide : from->width * high / from->height;
    int64_t h = by_width && !fitting->squash ? from->height * wide / from->width : high;
    attn_image whole = {0};
    w = w > wide ? w : wide;
    h = h > high ? h : high;
    attn_status status = attn_image_resize(&whole, context, from, w, h, fitting->filter);
    if (status == ATTN_OK)
        status = attn_image_crop(to, context, &whole, (w - width) / 2, (h - height) / 2, width, height);
    attn_image_free(context, &whole);
    return status;
}

attn_status attn_image_fit(attn_image *to, attn_context *context, const attn_image *from, int64_t width, int64_t height,
                           attn_image_filter filter)
{
    ATTN__CALL(context);
    return attn__image_fit(to, context, from, width, height, &(attn__image_fitting){.filter = filter});
}
