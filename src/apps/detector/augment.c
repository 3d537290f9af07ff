/* SPDX-License-Identifier: MIT
 * Augments a picture and its boxes for training. */
#include "apps/detector/augment.h"

#include "base/context.h"
#include "io/images/image.h"

#include <math.h>

attn__augmentation attn__augment_none(const attn__picture_view *view, int64_t width, int64_t height)
{
    attn__augmentation a = {0};
    attn__view_size(view, width, height, &a.width, &a.height);
    return a;
}

/* Returns size * of / 800, but at least 1. Lengths in DETR's code are for a short side of 800 pixels, so they are
 * scaled by the actual size. */
static int64_t share(int64_t size, int64_t of)
{
    int64_t n = (size * of + 400) / 800;
    return n < 1 ? 1 : n;
}

/* Draws a random length from `least` to `most`. Both limits are reduced to `side` if they are larger than `side`. */
static int64_t draw_side(attn__rng *rng, int64_t least, int64_t most, int64_t side)
{
    most = most < side ? most : side;
    least = least < most ? least : most;
    return least + (int64_t)attn__rng_below(rng, (uint64_t)(most - least + 1));
}

static void draw_cut(attn__augmentation *a, int64_t size, int64_t width, int64_t height, attn__rng *rng)
{
    static const int64_t sizes[] = {400, 500, 600};
    const attn__picture_view first = {.size = share(size, sizes[attn__rng_below(rng, 3)])};
    attn__view_size(&first, width, height, &a->first_width, &a->first_height);
    a->crop = true;
    a->cut_width = draw_side(rng, share(size, 384), share(size, 600), a->first_width);
    a->cut_height = draw_side(rng, share(size, 384), share(size, 600), a->first_height);
    a->x = (int64_t)attn__rng_below(rng, (uint64_t)(a->first_width - a->cut_width + 1));
    a->y = (int64_t)attn__rng_below(rng, (uint64_t)(a->first_height - a->cut_height + 1));
}

attn__augmentation attn__augment_draw(const attn__picture_view *view, bool flip, bool crop, int64_t width,
                                      int64_t height, attn__rng *rng)
{
    attn__augmentation a = {0};
    attn__picture_view last = *view;
    int64_t size = view->size > 0 ? view->size : width < height ? width : height;
    a.flip = flip && attn__rng_below(rng, 2) == 1;
    if (crop && attn__rng_below(rng, 2) == 1)
        draw_cut(&a, size, width, height, rng);
    if (crop)
        last.size = share(size, 480 + 32 * (int64_t)attn__rng_below(rng, 11));
    attn__view_size(&last, a.crop ? a.cut_width : width, a.crop ? a.cut_height : height, &a.width, &a.height);
    return a;
}

/* Converts the range [low, high) of a box along one axis to fractions of the cropped picture, and clips it. Returns
 * false if nothing of the range is inside. */
static bool cut_span(double *low, double *high, double length, double resized, double begin, double cut)
{
    *low = fmin(fmax(*low * resized / length - begin, 0), cut) / cut;
    *high = fmin(fmax(*high * resized / length - begin, 0), cut) / cut;
    return *high > *low;
}

bool attn__augment_box(const attn__augmentation *a, int64_t width, int64_t height, const attn__box *box, double to[4])
{
    attn__box clipped = *box;
    double w = (double)width, h = (double)height;
    if (!attn__box_clip(&clipped, width, height))
        return false;
    double left = clipped.x, right = left + clipped.width, top = clipped.y, bottom = top + clipped.height;
    bool across = cut_span(&left, &right, w, a->crop ? (double)a->first_width : w, (double)a->x,
                           a->crop ? (double)a->cut_width : w);
    bool down = cut_span(&top, &bottom, h, a->crop ? (double)a->first_height : h, (double)a->y,
                         a->crop ? (double)a->cut_height : h);
    to[0] = a->flip ? 1 - (left + right) / 2 : (left + right) / 2;
    to[1] = (top + bottom) / 2;
    to[2] = right - left;
    to[3] = bottom - top;
    return across && down;
}

static attn_status cut(const attn__augmentation *a, attn_context *context, const attn_image *image, attn_image *to)
{
    attn_image resized = {0};
    attn_status status =
        attn_image_resize(&resized, context, image, a->first_width, a->first_height, ATTN_IMAGE_FILTER_BILINEAR);
    if (status == ATTN_OK)
        status = attn_image_crop(to, context, &resized, a->x, a->y, a->cut_width, a->cut_height);
    attn_image_free(context, &resized);
    return status;
}

attn_status attn__augment_image(const attn__augmentation *a, attn_context *context, const attn_image *image,
                                attn_image *to)
{
    enum { MIRRORED = 2 }; /* the number of the mirrored orientation in EXIF */
    attn_image part = {0};
    attn__raster mirrored = {0};
    *to = (attn_image){0};
    attn_status status = a->crop ? cut(a, context, image, &part) : ATTN_OK;
    if (status == ATTN_OK)
        status =
            attn_image_resize(to, context, a->crop ? &part : image, a->width, a->height, ATTN_IMAGE_FILTER_BILINEAR);
    if (status == ATTN_OK && a->flip) {
        mirrored = (attn__raster){to->width, to->height, to->channels, to->pixels};
        status = attn__raster_orient(&mirrored, context, MIRRORED);
        to->pixels = mirrored.pixels;
    }
    attn_image_free(context, &part);
    return status;
}
