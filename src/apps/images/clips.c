/* SPDX-License-Identifier: MIT
 *
 * Reads videos. They are stored as one folder of frames for each video, or as one array that contains all videos.
 */
#include "apps/images/source.h"

#include "base/context.h"
#include "base/rng.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void attn__clip_free(attn__clip *clip)
{
    for (int64_t i = 0; i < clip->n; i++)
        attn_image_free(clip->context, &clip->frames[i]);
    attn__free(clip->context, clip->frames);
    attn__free(clip->context, clip->passed_first);
    *clip = (attn__clip){.context = clip->context};
}

static attn_image *add_frame(attn__clip *clip)
{
    attn_image *longer = attn__grow(clip->context, clip->frames, clip->n, sizeof *longer);
    if (!longer)
        return NULL;
    clip->frames = longer;
    longer[clip->n] = (attn_image){0};
    return &longer[clip->n++];
}

static attn_status check_count(const attn__clip *clip, const char *name, const char *of)
{
    if (clip->n > 1)
        return ATTN_OK;
    return attn__fail(clip->context, ATTN_ERROR_FORMAT, "%s: found %lld %s; a video needs 2 or more", name,
                      (long long)clip->n, clip->n == 1 ? "frame" : of);
}

/* ------------------------------------------------------------------------------------------------ folders */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Compares file names for sorting. Digits are compared as numbers, so that frame2.png comes before frame10.png. */
static int in_order(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    while (*x && *y) {
        if (is_digit(*x) && is_digit(*y)) {
            x += strspn(x, "0");
            y += strspn(y, "0");
            size_t m = strspn(x, "0123456789"), n = strspn(y, "0123456789");
            int order = m != n ? (m < n ? -1 : 1) : strncmp(x, y, n);
            if (order != 0)
                return order;
            x += m;
            y += n;
        } else if (*x != *y) {
            return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
        } else {
            x++;
            y++;
        }
    }
    return *x || *y ? (*x ? 1 : -1) : strcmp(*(char *const *)a, *(char *const *)b);
}

static attn_status check_alike(const attn__clip *clip, const char *folder, const char *name)
{
    const attn_image *first = &clip->frames[0], *last = &clip->frames[clip->n - 1];
    if (last->channels != first->channels)
        return attn__fail(clip->context, ATTN_ERROR_FORMAT,
                          "%s/%s is %s, but the first frame is %s; --channels 1 or 3 converts all", folder, name,
                          last->channels == 1 ? "grey" : "in colour", first->channels == 1 ? "grey" : "in colour");
    if (last->width != first->width || last->height != first->height)
        return attn__fail(clip->context, ATTN_ERROR_FORMAT,
                          "%s/%s has %lld x %lld pixels, but the first frame has %lld x %lld; --size resizes all",
                          folder, name, (long long)last->width, (long long)last->height, (long long)first->width,
                          (long long)first->height);
    return ATTN_OK;
}

static attn_status read_frame(attn__clip *clip, const char *folder, const char *name, int channels, bool sized)
{
    char *path = attn__join(clip->context, folder, name);
    attn_image *frame = path ? add_frame(clip) : NULL;
    attn_status status = frame
                             ? attn_image_read(frame, clip->context, path, &(attn_image_options){.channels = channels})
                             : ATTN_ERROR_MEMORY;
    attn__free(clip->context, path);
    return status == ATTN_OK && !sized ? check_alike(clip, folder, name) : status;
}

attn_status attn__clip_of_folder(attn__clip *clip, attn_context *context, const char *folder, int channels, bool sized)
{
    attn_entries names;
    *clip = (attn__clip){.context = context};
    attn_status status = attn__directory_read(&names, context, folder, false);
    if (status == ATTN_OK && names.n > 0)
        qsort(names.names, (size_t)names.n, sizeof *names.names, in_order);
    for (int64_t i = 0; i < names.n && status == ATTN_OK; i++) {
        const char *name = names.names[i];
        if (attn__is_image_name(name)) {
            status = read_frame(clip, folder, name, channels, sized);
        } else if (clip->passed++ == 0) {
            clip->passed_first = attn__strdup(context, name);
            status = clip->passed_first ? ATTN_OK : ATTN_ERROR_MEMORY;
        }
    }
    attn_entries_free(context, &names);
    return status == ATTN_OK ? check_count(clip, folder, "pictures") : status;
}

/* ------------------------------------------------------------------------------------------------- arrays */

bool attn__is_array(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".npy") == 0;
}

static attn_status refuse_type(const attn__clip *clip, const char *name, const attn_tensor *array)
{
    return attn__fail(clip->context, ATTN_ERROR_FORMAT,
                      "%s: the numbers are of type %s; expected bytes (u1) or real numbers", name,
                      attn_dtype_name(attn_tensor_dtype(array)));
}

static attn_status read_sample(const attn__clip *clip, const char *name, const attn_tensor *array, int64_t i,
                               unsigned char *sample)
{
    const void *data = attn_tensor_data(array);
    attn_dtype dtype = attn_tensor_dtype(array);
    if (dtype == ATTN_U8 || dtype == ATTN_BOOL) {
        unsigned char byte = ((const unsigned char *)data)[i];
        *sample = dtype == ATTN_U8 ? byte : byte ? 255 : 0;
        return ATTN_OK;
    }
    double value = dtype == ATTN_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
    if (!(value >= 0 && value <= 1))
        return attn__fail(clip->context, ATTN_ERROR_FORMAT,
                          "%s: number %lld is %g; real numbers must be from 0 to 1, and bytes (u1) from 0 to 255", name,
                          (long long)i, value);
    *sample = (unsigned char)lrint(255 * value);
    return ATTN_OK;
}

static attn_status check_array(const attn__clip *clip, const attn_tensor *array, const char *name, int64_t number)
{
    char shape[ATTN__SHAPE_TEXT];
    int rank = attn_tensor_rank(array);
    attn_dtype dtype = attn_tensor_dtype(array);
    if (rank != 4 && rank != 5)
        return attn__fail(
            clip->context, ATTN_ERROR_FORMAT,
            "%s: the array has %d axes; expected 5 (videos, frames, channels, height, width), or 4 for one video", name,
            rank);
    if (dtype != ATTN_U8 && dtype != ATTN_BOOL && dtype != ATTN_F32 && dtype != ATTN_F64)
        return refuse_type(clip, name, array);
    int64_t channels = attn_tensor_length(array, rank - 3), videos = rank == 5 ? attn_tensor_length(array, 0) : 1;
    if (channels != 1 && channels != 3)
        return attn__fail(
            clip->context, ATTN_ERROR_FORMAT,
            "%s: the array has %lld channels on axis %d; expected 1 or 3 in (videos, frames, channels, height, width)",
            name, (long long)channels, rank - 3);
    if (attn_tensor_size(array) == 0)
        return attn__fail(clip->context, ATTN_ERROR_FORMAT, "%s: the array is empty: its shape is %s", name,
                          attn__shape_text(array, shape));
    if (number >= videos)
        return attn__fail(clip->context, ATTN_ERROR_ARGUMENT, "%s: video %lld is requested, but the array has %lld",
                          name, (long long)number + 1, (long long)videos);
    return ATTN_OK;
}

attn_status attn__clip_of_array(attn__clip *clip, attn_context *context, const attn_tensor *array, const char *name,
                                int64_t number)
{
    *clip = (attn__clip){.context = context};
    attn_status status = check_array(clip, array, name, number);
    if (status != ATTN_OK)
        return status;
    int rank = attn_tensor_rank(array);
    int64_t frames = attn_tensor_length(array, rank - 4), channels = attn_tensor_length(array, rank - 3);
    int64_t height = attn_tensor_length(array, rank - 2), width = attn_tensor_length(array, rank - 1);
    int64_t plane = height * width, at = number * frames * channels * plane;
    for (int64_t f = 0; f < frames && status == ATTN_OK; f++) {
        attn_image *frame = add_frame(clip);
        status = frame ? attn_image_alloc(frame, context, width, height, (int)channels) : ATTN_ERROR_MEMORY;
        for (int64_t i = 0; i < channels * plane && status == ATTN_OK; i++, at++)
            status = read_sample(clip, name, array, at, &frame->pixels[i % plane * channels + i / plane]);
    }
    return status == ATTN_OK ? check_count(clip, name, "frames") : status;
}

attn_status attn__clip_of_picture(attn__clip *clip, attn_context *context, const char *path)
{
    *clip = (attn__clip){.context = context};
    attn_image *frame = add_frame(clip);
    return frame ? attn_image_read(frame, context, path, NULL) : ATTN_ERROR_MEMORY;
}

attn_status attn__clip_read(attn__clip *clip, attn_context *context, const char *path, int64_t number)
{
    attn_tensor *array = NULL;
    *clip = (attn__clip){.context = context};
    if (!attn__is_array(path))
        return attn__clip_of_folder(clip, context, path, 0, false);
    attn_status status = attn_npy_read(&array, context, path);
    if (status == ATTN_OK)
        status = attn__clip_of_array(clip, context, array, path, number);
    attn_tensor_destroy(array);
    return status;
}

static attn_status convert(attn__clip *clip, int64_t channels)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < clip->n && status == ATTN_OK && channels > 0; i++) {
        attn_image other = {0};
        status = attn_image_convert(&other, clip->context, &clip->frames[i], (int)channels);
        attn_image_free(clip->context, &clip->frames[i]);
        clip->frames[i] = other;
    }
    return status;
}

attn_status attn__read_array(attn__image_source *s, const char *path, const attn__image_wish *wish)
{
    attn_tensor *array = NULL;
    attn_status status = attn_npy_read(&array, s->context, path);
    if (status == ATTN_OK && attn_tensor_rank(array) != 5)
        status = attn__fail(s->context, ATTN_ERROR_FORMAT,
                            "%s: the array has %d axes; expected 5 (videos, frames, channels, height, width)", path,
                            attn_tensor_rank(array));
    int64_t n = status == ATTN_OK ? attn_tensor_length(array, 0) : 0;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        attn__clip clip;
        status = attn__clip_of_array(&clip, s->context, array, path, i);
        if (status == ATTN_OK)
            status = convert(&clip, wish->shape.channels);
        if (status == ATTN_OK)
            status = attn__image_source_add(s, &s->train, wish, &clip, 0, attn__mix64((uint64_t)i), path, path);
        attn__clip_free(&clip);
    }
    attn_tensor_destroy(array);
    return status;
}
