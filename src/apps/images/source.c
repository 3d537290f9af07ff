/* SPDX-License-Identifier: MIT
 *
 * Determines which kind of data a folder contains. Also contains functions that the readers of all kinds share.
 */
#include "apps/images/source.h"

#include "base/context.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

attn_status attn__class_add(attn__image_source *source, const char *name, size_t length)
{
    attn_context *c = source->context;
    char **longer = attn__grow(c, source->classes, source->nclasses, sizeof *longer);
    if (!longer)
        return ATTN_ERROR_MEMORY;
    source->classes = longer;
    char *copy = attn__alloc_zero(c, length + 1);
    longer[source->nclasses++] = copy;
    if (copy)
        memcpy(copy, name, length);
    return copy ? ATTN_OK : ATTN_ERROR_MEMORY;
}

/* --------------------------------------------------------------------------------------------- images */

static attn_status refuse_shape(attn__image_source *source, const attn_image_shape *image,
                                const attn_image_shape *shape, const char *name, const char *first)
{
    if (image->frames != shape->frames)
        return attn__fail(source->context, ATTN_ERROR_FORMAT,
                          "%s has %lld frames, but %s has %lld; all videos must have the same number", name,
                          (long long)image->frames, first, (long long)shape->frames);
    if (image->channels != shape->channels)
        return attn__fail(source->context, ATTN_ERROR_FORMAT, "%s is %s, but %s is %s; --channels 1 or 3 converts all",
                          name, image->channels == 1 ? "grey" : "in colour", first,
                          shape->channels == 1 ? "grey" : "in colour");
    return attn__fail(source->context, ATTN_ERROR_FORMAT,
                      "%s has %lld x %lld pixels, but %s has %lld x %lld; --size resizes all", name,
                      (long long)image->width, (long long)image->height, first, (long long)shape->width,
                      (long long)shape->height);
}

/* Appends a frame to `pixels`, converted to the requested size. The first frame decides the shape, and allocates the
 * memory for all frames. */
static attn_status put_frame(attn__image_source *source, const attn__image_wish *wish, const attn_image *image,
                             int64_t frame, attn_image *shape, unsigned char **pixels, int64_t frames)
{
    attn_image fitted = {0};
    const attn_image *use = image;
    attn_status status = ATTN_OK;
    bool sized = wish->shape.width == image->width && wish->shape.height == image->height && !wish->fitting.side;
    if (wish->shape.width > 0 && !sized) {
        status =
            attn__image_fit(&fitted, source->context, image, wish->shape.width, wish->shape.height, &wish->fitting);
        use = &fitted;
    }
    size_t size = (size_t)use->width * (size_t)use->height * (size_t)use->channels;
    if (status == ATTN_OK && frame == 0) {
        *shape = *use;
        *pixels = attn__alloc(source->context, attn__size_mul(size, (size_t)frames));
        status = *pixels ? ATTN_OK : ATTN_ERROR_MEMORY;
    }
    if (status == ATTN_OK)
        memcpy(*pixels + (size_t)frame * size, use->pixels, size);
    attn_image_free(source->context, &fitted);
    return status;
}

static attn_status add_pixels(attn__image_source *source, attn_image_set **set, attn_image_shape own,
                              const unsigned char *pixels, int32_t label, uint64_t key, const char *name,
                              const char *first)
{
    attn_status status = *set ? ATTN_OK : attn_image_set_create(set, source->context, own);
    if (status != ATTN_OK)
        return status;
    attn_image_shape shape = attn_image_set_shape(*set);
    bool alike = shape.width == own.width && shape.height == own.height && shape.channels == own.channels &&
                 shape.frames == own.frames;
    return alike ? attn_image_set_add(*set, pixels, label, key) : refuse_shape(source, &own, &shape, name, first);
}

attn_status attn__image_source_add(attn__image_source *source, attn_image_set **set, const attn__image_wish *wish,
                                   const attn__clip *clip, int32_t label, uint64_t key, const char *name,
                                   const char *first)
{
    attn_image one = {0};
    unsigned char *pixels = NULL;
    attn_status status = ATTN_OK;
    if (wish->shape.frames > 0 && wish->shape.frames != clip->n)
        return attn__fail(source->context, ATTN_ERROR_FORMAT,
                          wish->shape.frames > 1
                              ? "%s has %lld frames, but the model draws videos of %lld"
                              : "%s has %lld frames; expected %lld, because the model draws pictures",
                          name, (long long)clip->n, (long long)wish->shape.frames);
    for (int64_t i = 0; i < clip->n && status == ATTN_OK; i++)
        status = put_frame(source, wish, &clip->frames[i], i, &one, &pixels, clip->n);
    attn_image_shape own = {one.width, one.height, one.channels, clip->n};
    if (status == ATTN_OK)
        status = add_pixels(source, set, own, pixels, label, key, name, first);
    attn__free(source->context, pixels);
    return status;
}

/* -------------------------------------------------------------------------------------------- reading */

/* Checks that there are images for training, and that the images for testing have the same form. */
static attn_status check_parts(const attn__image_source *s, const char *path)
{
    if (!s->train || attn_image_set_size(s->train) == 0)
        return attn__fail(s->context, ATTN_ERROR_FORMAT, "%s: the data have no images to train on", path);
    attn_image_shape a = attn_image_set_shape(s->train);
    if (!s->test)
        return ATTN_OK;
    attn_image_shape b = attn_image_set_shape(s->test);
    if (a.frames != b.frames)
        return attn__fail(s->context, ATTN_ERROR_FORMAT,
                          "%s: the videos for training have %lld frames, but the videos for testing have %lld", path,
                          (long long)a.frames, (long long)b.frames);
    if (a.width != b.width || a.height != b.height)
        return attn__fail(s->context, ATTN_ERROR_FORMAT,
                          "%s: the images for training have %lld x %lld pixels, but the images for testing have %lld x "
                          "%lld",
                          path, (long long)a.width, (long long)a.height, (long long)b.width, (long long)b.height);
    if (a.channels != b.channels)
        return attn__fail(s->context, ATTN_ERROR_FORMAT,
                          "%s: the images for training have %lld channels, but the images for testing have %lld", path,
                          (long long)a.channels, (long long)b.channels);
    return ATTN_OK;
}

static attn_status check_classes(const attn__image_source *s, const attn__image_wish *wish, const char *path)
{
    if (wish->nclasses > 0 && s->nclasses != wish->nclasses)
        return attn__fail(s->context, ATTN_ERROR_FORMAT, "%s: the data have %lld classes, but the classifier has %lld",
                          path, (long long)s->nclasses, (long long)wish->nclasses);
    for (int64_t i = 0; !wish->unlabelled && i < s->nclasses; i++) {
        if (attn__utf8_first_invalid(s->classes[i], strlen(s->classes[i])) != SIZE_MAX)
            return attn__fail(s->context, ATTN_ERROR_FORMAT,
                              "%s: class %lld is \"%.80s\", which is not UTF-8 and cannot be written to config.json",
                              path, (long long)i, s->classes[i]);
    }
    for (int64_t i = 0; wish->classes && i < s->nclasses; i++) {
        if (strcmp(s->classes[i], wish->classes[i]) != 0)
            return attn__fail(s->context, ATTN_ERROR_FORMAT,
                              "%s: class %lld is \"%.80s\", but the classifier calls it \"%.80s\"", path, (long long)i,
                              s->classes[i], wish->classes[i]);
    }
    return ATTN_OK;
}

/* Reads a folder that contains any supported kind of data. If videos are requested, only attn__read_folders can read
 * them. */
static attn_status read_folder(attn__image_source *source, const char *path, const attn__image_wish *wish)
{
    static attn_status (*const kinds[])(attn__image_source *, const char *, const attn_entries *,
                                        const attn__image_wish *,
                                        bool *) = {attn__read_idx, attn__read_cifar, attn__read_folders};
    attn_entries names;
    bool found = false;
    attn_status status = attn__directory_read(&names, source->context, path, false);
    for (size_t i = wish->videos ? 2 : 0; status == ATTN_OK && !found && i < sizeof kinds / sizeof *kinds; i++)
        status = kinds[i](source, path, &names, wish, &found);
    if (status == ATTN_OK && !found)
        status = attn__fail(
            source->context, ATTN_ERROR_FORMAT,
            wish->videos
                ? "%s: there are no videos; expected folders of pictures, VIDEO/, or train/VIDEO/ and test/VIDEO/"
                : "%s: there are no images: neither IDX files (train-images..., train-labels...), nor CIFAR's *.bin, "
                  "nor folders of images, one for each class",
            path);
    attn_entries_free(source->context, &names);
    return status;
}

attn_status attn__image_source_read(attn__image_source *source, attn_context *context, const char *path,
                                    const attn__image_wish *wish)
{
    *source = (attn__image_source){.context = context};
    attn_status status = wish->unlabelled && attn__is_array(path) ? attn__read_array(source, path, wish)
                                                                  : read_folder(source, path, wish);
    if (status == ATTN_OK)
        status = check_parts(source, path);
    if (status == ATTN_OK)
        status = check_classes(source, wish, path);
    if (status != ATTN_OK)
        attn__image_source_free(source);
    return status;
}

void attn__image_source_free(attn__image_source *s)
{
    attn_image_set_destroy(s->train);
    attn_image_set_destroy(s->test);
    attn_entries classes = {s->nclasses, s->classes};
    if (s->context) {
        attn_entries_free(s->context, &classes);
        attn__free(s->context, s->passed_first);
    }
    *s = (attn__image_source){0};
}

/* Dive into Deep Learning trains on all pictures and validates on the test pictures. */
static bool validates_on_test(const attn_config *settings)
{
    return strcmp(attn_config_text(settings, "compat", "none"), "d2l") == 0 &&
           attn_config_real(settings, "valid", 0) == 0;
}

attn_status attn__image_source_split(const attn__image_source *source, const attn_config *settings,
                                     attn_image_set **train, attn_image_set **valid, attn_image_set **test)
{
    uint64_t seed = (uint64_t)attn_config_int(settings, "seed", 1);
    double valid_share = attn_config_real(settings, "valid", 0), test_share = attn_config_real(settings, "test", 0);
    bool on_test = valid && validates_on_test(settings);
    double own_share = source->test ? 0 : test_share;
    if (on_test)
        *valid = NULL;
    attn_status status =
        attn_image_set_split(train, on_test ? NULL : valid, test, source->train, seed, valid_share, own_share);
    if (status == ATTN_OK && test && source->test) {
        attn_image_set_destroy(*test);
        *test = NULL;
        status = attn_image_set_split(test, NULL, NULL, source->test, seed, 0, 0);
    }
    if (status == ATTN_OK && on_test)
        status = source->test ? attn_image_set_split(valid, NULL, NULL, source->test, seed, 0, 0)
                              : attn_image_set_split(NULL, NULL, valid, source->train, seed, valid_share, own_share);
    return status;
}

attn_status attn__image_source_whole(const attn__image_source *source, attn_image_set **whole)
{
    const attn_image_set *parts[] = {source->train, source->test};
    if (!source->test)
        return attn_image_set_split(whole, NULL, NULL, source->train, 0, 0, 0);
    attn_status status = attn_image_set_create(whole, source->context, attn_image_set_shape(source->train));
    for (int p = 0; p < 2; p++) {
        for (int64_t i = 0; status == ATTN_OK && i < attn_image_set_size(parts[p]); i++)
            status = attn_image_set_add(*whole, attn_image_set_pixels(parts[p], i), attn_image_set_label(parts[p], i),
                                        (uint64_t)i);
    }
    return status;
}
