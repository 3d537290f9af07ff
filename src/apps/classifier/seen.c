/* SPDX-License-Identifier: MIT
 *
 * Computes statistics of the training pictures. They show whether a new picture differs from all training pictures.
 */
#include "apps/classifier/classifier.h"

#include "base/context.h"

#include <math.h>
#include <stdio.h>

static const char *const names[ATTN__SEEN] = {"border", "brightness", "contrast"};

/* Computes three statistics of a picture: the mean of the outermost pixels, the mean of all pixels and the standard
 * deviation of all pixels. 0 is black and 1 is white. */
static void measure(attn_image_shape shape, const unsigned char *pixels, double found[ATTN__SEEN])
{
    double sum = 0, squares = 0, edge = 0;
    int64_t edges = 0, line = shape.width * shape.channels, n = shape.height * line;
    for (int64_t i = 0; i < n; i++) {
        int64_t y = i / line, x = i % line / shape.channels;
        double v = pixels[i] / 255.0;
        sum += v;
        squares += v * v;
        if (y == 0 || y == shape.height - 1 || x == 0 || x == shape.width - 1) {
            edge += v;
            edges++;
        }
    }
    double mean = sum / (double)n;
    found[0] = edge / (double)edges;
    found[1] = mean;
    found[2] = sqrt(fmax(0, squares / (double)n - mean * mean));
}

void attn__classifier_see(attn__seen *seen, const attn_image_set *set)
{
    for (int s = 0; s < ATTN__SEEN; s++)
        seen->min[s] = 1, seen->max[s] = 0;
    for (int64_t i = 0; i < attn_image_set_size(set); i++) {
        double found[ATTN__SEEN];
        measure(attn_image_set_shape(set), attn_image_set_pixels(set, i), found);
        for (int s = 0; s < ATTN__SEEN; s++) {
            seen->min[s] = fmin(seen->min[s], found[s]);
            seen->max[s] = fmax(seen->max[s], found[s]);
        }
    }
    seen->known = attn_image_set_size(set) > 0;
}

attn_status attn__seen_write(attn_config *config, const attn__seen *seen)
{
    attn_status status = ATTN_OK;
    for (int s = 0; seen->known && s < ATTN__SEEN && status == ATTN_OK; s++) {
        char key[40];
        snprintf(key, sizeof key, "seen.%s.min", names[s]);
        status = attn_config_set_real(config, key, seen->min[s]);
        snprintf(key, sizeof key, "seen.%s.max", names[s]);
        if (status == ATTN_OK)
            status = attn_config_set_real(config, key, seen->max[s]);
    }
    return status;
}

/* Reads the statistics from a config. Configs of older classifiers, or of classifiers from other programs, do not
 * have them. */
void attn__seen_read(attn__seen *seen, const attn_config *config)
{
    seen->known = true;
    for (int s = 0; s < ATTN__SEEN; s++) {
        char key[40];
        snprintf(key, sizeof key, "seen.%s.min", names[s]);
        seen->min[s] = attn_config_real(config, key, NAN);
        snprintf(key, sizeof key, "seen.%s.max", names[s]);
        seen->max[s] = attn_config_real(config, key, NAN);
        seen->known &= seen->min[s] <= seen->max[s];
    }
}

/* Returns the index of the first statistic whose value is outside the range of the training pictures. Returns -1 if
 * there is none. */
static int outside(const attn__seen *seen, const double found[ATTN__SEEN])
{
    const double slack = 0.02; /* tolerance of the range, because resizing smooths pictures a little */
    for (int s = 0; s < ATTN__SEEN; s++)
        if (found[s] < seen->min[s] - slack || found[s] > seen->max[s] + slack)
            return s;
    return -1;
}

attn_status attn_classifier_compare(const attn_classifier *c, const attn_image *image, attn_likeness *likeness)
{
    ATTN__CALL(c->context);
    attn_image fitted = {0};
    double found[ATTN__SEEN];
    *likeness = (attn_likeness){0};
    if (!c->seen.known)
        return ATTN_OK;
    attn_status status = attn__classifier_fit(c, image, &fitted);
    if (status == ATTN_OK) {
        measure(c->shape, fitted.pixels, found);
        int s = outside(&c->seen, found);
        double negative[ATTN__SEEN] = {1 - found[0], 1 - found[1], found[2]};
        if (s >= 0)
            *likeness =
                (attn_likeness){names[s], found[s], c->seen.min[s], c->seen.max[s], outside(&c->seen, negative) < 0};
    }
    attn_image_free(c->context, &fitted);
    return status;
}
