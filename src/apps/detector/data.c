/* SPDX-License-Identifier: MIT
 *
 * Makes batches of pictures with boxes.
 */
#include "apps/detector/data.h"

#include "apps/detector/augment.h"
#include "apps/detector/boxes_files.h"
#include "apps/images/source.h"
#include "base/context.h"
#include "base/hash.h"
#include "base/integers.h"
#include "dist/ranks.h"
#include "io/directory.h"

#include <math.h>
#include <string.h>

/* Random streams of the seed. There is one for dividing the data, one for the order of an epoch, and one for
 * augmenting a picture. */
enum { STREAM_PARTS = 0x6276, STREAM_ORDER = 0x626f, STREAM_AUGMENT = 0x6261 };

/* Maximum number of strips in a window. A window of s strips has s * s batches. */
enum { STRIPS = 8 };

/* ------------------------------------------------------------------------------------------------ dividing */

static attn_status add_image(attn__box_set *to, const attn__box_set *from, int64_t index)
{
    const attn__boxed_image *image = &from->images[index];
    attn_status status = attn__box_set_add_image(to, image->id, image->width, image->height, image->file);
    for (int64_t i = image->first; i < image->first + image->objects && status == ATTN_OK; i++) {
        attn__object object = from->objects[i];
        object.image = image->id;
        object.category = from->categories[object.category].id;
        status = attn__box_set_add_object(to, &object);
    }
    return status;
}

/* Makes a set of the n pictures listed in `order`. It has all categories of `set`. */
static attn_status make_part(attn__box_set **part, const attn__box_set *set, const int64_t *order, int64_t n)
{
    attn_status status = attn__box_set_create(part, set->context);
    for (int64_t i = 0; i < set->ncategories && status == ATTN_OK; i++)
        status = attn__box_set_add_category(*part, set->categories[i].id, set->categories[i].name);
    for (int64_t i = 0; i < n && status == ATTN_OK; i++)
        status = add_image(*part, set, order[i]);
    return status == ATTN_OK ? attn__box_set_finish(*part, "the validation part") : status;
}

static attn_status count_up(attn__boxed_part *part, attn_context *context)
{
    part->n = part->set->nimages;
    part->order = attn__alloc(context, attn__size_mul((size_t)part->n + 1, sizeof *part->order));
    for (int64_t i = 0; part->order && i < part->n; i++)
        part->order[i] = i;
    return part->order ? ATTN_OK : ATTN_ERROR_MEMORY;
}

/* Moves a random share of the pictures from the training part to the validation part. If `valid` is above 0 and
 * there are at least two pictures, neither part is empty. */
static attn_status divide(attn__boxed_data *data, double valid)
{
    attn__boxed_part *train = &data->train;
    attn__rng rng = {.seed = data->seed, .stream = STREAM_PARTS};
    int64_t n = llround(valid * (double)train->n);
    n = valid > 0 && n < 1 ? 1 : n;
    n = n >= train->n ? train->n - 1 : n;
    if (n < 1)
        return ATTN_OK;
    attn__rng_shuffle(&rng, train->order, train->n);
    train->n -= n;
    return make_part(&data->valid_set, data->set, train->order + train->n, n);
}

/* Checks that a class of both sets has one name. The sets are joined by ids, so that other names are other classes. */
static attn_status check_classes(const attn__boxed_data *data, const char *path)
{
    const attn__box_set *set = data->set, *valid = data->valid_set;
    for (int64_t i = 0; i < valid->ncategories; i++) {
        const attn__category *its = &valid->categories[i];
        int64_t at = attn__box_set_category(set, its->id);
        if (at >= 0 && strcmp(set->categories[at].name, its->name) != 0)
            return attn__fail(data->context, ATTN_ERROR_FORMAT,
                              "%s: class %lld is named \"%.60s\", but the training data name it \"%.60s\"", path,
                              (long long)its->id, its->name, set->categories[at].name);
    }
    return ATTN_OK;
}

static char *path_in(attn_context *context, const char *folder, const char *file)
{
    return file[0] == '/' ? attn__strdup(context, file) : attn__join(context, folder, file);
}

/* Reads the sizes of pictures whose annotations do not have them. */
static attn_status measure_images(const attn__boxed_data *data, attn__box_set *set, const char *folder)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < set->nimages && status == ATTN_OK; i++) {
        attn__boxed_image *image = &set->images[i];
        if (image->width > 0 && image->height > 0)
            continue;
        if (!image->file || !folder)
            continue; /* reading the picture reports it */
        attn_image whole = {0};
        char *path = path_in(data->context, folder, image->file);
        status = path ? attn_image_read(&whole, data->context, path, NULL) : ATTN_ERROR_MEMORY;
        if (status == ATTN_OK) {
            image->width = whole.width;
            image->height = whole.height;
        }
        attn_image_free(data->context, &whole);
        attn__free(data->context, path);
    }
    return status;
}

attn_status attn__boxed_data_read(attn__boxed_data *data, attn_context *context, const char *path,
                                  const attn_config *settings)
{
    const char *valid = attn_config_text(settings, "valid_data", NULL),
               *images = attn_config_text(settings, "images", NULL);
    data->context = context;
    data->seed = (uint64_t)attn_config_int(settings, "seed", 1);
    data->epoch = -1;
    bool divided = false, own = false;
    attn_status status = attn__boxes_read(&data->set, context, path, "train", &divided);
    if (status == ATTN_OK && divided && !valid)
        status = attn__boxes_have_part(&own, context, path, "val");
    if (status != ATTN_OK)
        return status;
    if (own)
        valid = path;
    data->train = (attn__boxed_part){.set = data->set, .folder = images ? images : data->set->folder};
    if (data->set->nimages < 1 || data->set->ncategories < 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "%s: the annotations have %lld pictures and %lld categories; at least one of each is needed",
                          path, (long long)data->set->nimages, (long long)data->set->ncategories);
    status = count_up(&data->train, context);
    if (status == ATTN_OK)
        status = valid ? attn__boxes_read(&data->valid_set, context, valid, "val", NULL)
                       : divide(data, attn_config_real(settings, "valid", 0));
    if (status == ATTN_OK && valid)
        status = check_classes(data, valid);
    data->left_out = data->set->left_out + (data->valid_set ? data->valid_set->left_out : 0);
    if (status == ATTN_OK)
        status = measure_images(data, data->set, data->train.folder);
    if (status != ATTN_OK || !data->valid_set)
        return status;
    data->valid = (attn__boxed_part){.set = data->valid_set, .folder = valid ? data->valid_set->folder : NULL};
    data->valid.folder = valid ? data->valid.folder : data->train.folder;
    status = measure_images(data, data->valid_set, data->valid.folder);
    return status == ATTN_OK ? count_up(&data->valid, context) : status;
}

void attn__boxed_data_free(attn__boxed_data *data)
{
    attn__box_set_destroy(data->set);
    attn__box_set_destroy(data->valid_set);
    attn__free(data->context, data->train.order);
    attn__free(data->context, data->valid.order);
    attn__free(data->context, data->base);
    attn__free(data->context, data->batches);
    attn__free(data->context, data->window);
    attn__free(data->context, data->begin);
    attn__free(data->context, data->labels);
    attn__free(data->context, data->boxes);
}

static uint64_t mix(uint64_t hash, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return attn__mix64(hash ^ bits);
}

static uint64_t hash_set(uint64_t hash, const attn__box_set *set)
{
    for (int64_t i = 0; i < set->nimages; i++) {
        const attn__boxed_image *image = &set->images[i];
        hash = mix(mix(mix(hash, (double)image->id), (double)image->width), (double)image->height);
        hash = image->file ? attn__hash_text(hash, image->file) : hash;
    }
    for (int64_t i = 0; i < set->nobjects; i++) {
        const attn__object *o = &set->objects[i];
        hash = mix(mix(mix(mix(hash, o->box.x), o->box.y), o->box.width), o->box.height);
        hash = mix(mix(hash, (double)o->category), o->crowd);
    }
    for (int64_t i = 0; i < set->ncategories; i++)
        hash = attn__hash_text(mix(hash, (double)set->categories[i].id), set->categories[i].name);
    return hash;
}

uint64_t attn__boxed_data_fingerprint(const attn__boxed_data *data)
{
    uint64_t hash = hash_set(ATTN__HASH_BEGIN, data->set);
    return attn__mix64(data->valid_set ? hash_set(hash, data->valid_set) : hash);
}

int64_t attn__boxed_data_steps(const attn__boxed_data *data)
{
    return attn__ceil_div(data->train.n, data->batch);
}

/* -------------------------------------------------------------------------------------------------- objects */

/* Returns the model's class for a category with this id. Returns -1 if the model does not have this class. */
static int64_t class_of(const attn__boxed_data *data, int64_t id)
{
    for (int64_t i = 0; i < data->classes.n; i++)
        if (data->classes.ids[i] == id)
            return i;
    return -1;
}

/* Finds the objects of a picture that are used for training, and returns their number. `labels` and `boxes` may be
 * NULL. */
static int64_t objects_of(const attn__boxed_data *data, const attn__box_set *set, int64_t index,
                          const attn__augmentation *a, int32_t *labels, double *boxes)
{
    const attn__boxed_image *image = &set->images[index];
    int64_t n = 0;
    for (int64_t i = image->first; i < image->first + image->objects; i++) {
        const attn__object *object = &set->objects[i];
        int64_t class = class_of(data, set->categories[object->category].id);
        double box[4];
        if (object->crowd || class < 0 || !attn__augment_box(a, image->width, image->height, &object->box, box))
            continue;
        if (labels)
            labels[n] = (int32_t) class;
        if (boxes)
            memcpy(boxes + 4 * n, box, sizeof box);
        n++;
    }
    return n;
}

/* -------------------------------------------------------------------------------------------------- pictures */

/* The caller frees the path. If there is no path, sets an error and returns NULL. */
static char *path_of(const attn__boxed_data *data, const attn__boxed_part *part, int64_t index)
{
    const attn__boxed_image *image = &part->set->images[index];
    if (image->file && part->folder)
        return path_in(data->context, part->folder, image->file);
    attn__fail(data->context, ATTN_ERROR_FORMAT, "the picture of id %lld has no %s", (long long)image->id,
               image->file ? "folder; give the folder by the setting \"images\"" : "file_name");
    return NULL;
}

static attn_status read_image(const attn__boxed_data *data, const attn__boxed_part *part, int64_t index,
                              attn_image *image)
{
    const attn__boxed_image *its = &part->set->images[index];
    char *path = path_of(data, part, index);
    attn_status status = path ? attn_image_read(image, data->context, path, &(attn_image_options){.channels = 3})
                              : attn__result_status(data->context, path);
    if (status == ATTN_OK && (image->width != its->width || image->height != its->height))
        status = attn__fail(data->context, ATTN_ERROR_FORMAT,
                            "%s: the picture has %lld x %lld pixels, but its annotations say %lld x %lld", path,
                            (long long)image->width, (long long)image->height, (long long)its->width,
                            (long long)its->height);
    attn__free(data->context, path);
    return status;
}

/* Reads and augments the pictures of a batch. plans[i] is the augmentation of picture i of the batch. */
static attn_status read_batch(attn__boxed_data *data, const attn__boxed_part *part, attn_tape *tape,
                              const attn__augmentation *plans, attn__boxed_batch *batch)
{
    int64_t n = batch->targets.images;
    attn_image *images = attn__alloc_zero(data->context, attn__size_mul((size_t)n, sizeof *images));
    attn_status status = images ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        attn_image whole = {0};
        status = read_image(data, part, batch->images[i], &whole);
        if (status == ATTN_OK)
            status = attn__augment_image(&plans[i], data->context, &whole, &images[i]);
        attn_image_free(data->context, &whole);
    }
    if (status == ATTN_OK) {
        batch->x = attn__view_batch(&data->view, tape, images, n, batch->sides, &batch->mask);
        status = attn__result_status(data->context, batch->x);
    }
    for (int64_t i = 0; images && i < n; i++)
        attn_image_free(data->context, &images[i]);
    attn__free(data->context, images);
    return status;
}

static attn__augmentation plan_of(const attn__boxed_data *data, const attn__boxed_part *part, int64_t index,
                                  bool augment)
{
    const attn__boxed_image *image = &part->set->images[index];
    attn__rng rng = {.seed = attn__mix64(data->seed ^ attn__mix64((uint64_t)data->epoch + STREAM_AUGMENT)),
                     .stream = (uint64_t)index};
    return augment ? attn__augment_draw(&data->view, data->flip, data->crop, image->width, image->height, &rng)
                   : attn__augment_none(&data->view, image->width, image->height);
}

/* Makes the batch of the pictures [begin, begin + whole) in the order of the part. This process gets only its share,
 * batch->share. */
static attn_status make_batch(attn__boxed_data *data, const attn__boxed_part *part, attn_tape *tape, int64_t begin,
                              bool augment, attn__boxed_batch *batch)
{
    attn_shard s = batch->share;
    int64_t size = s.count > 0 ? s.count : 1, first = s.count > 0 ? s.first : 0, n = 0;
    attn__augmentation *plans = attn__alloc(data->context, attn__size_mul((size_t)size, sizeof *plans));
    if (!plans)
        return ATTN_ERROR_MEMORY;
    batch->images = part->order + begin + first;
    for (int64_t i = 0; i < s.whole; i++) {
        int64_t index = part->order[begin + i];
        attn__augmentation plan = plan_of(data, part, index, augment);
        bool own = i >= first && i < first + size;
        int64_t found =
            objects_of(data, part->set, index, &plan, own ? data->labels + n : NULL, own ? data->boxes + 4 * n : NULL);
        batch->objects += found;
        batch->sides[0] = plan.height > batch->sides[0] ? plan.height : batch->sides[0];
        batch->sides[1] = plan.width > batch->sides[1] ? plan.width : batch->sides[1];
        if (!own)
            continue;
        plans[i - first] = plan;
        data->begin[i - first] = n;
        n += found;
    }
    data->begin[size] = n;
    batch->targets = (attn__targets){size, data->begin, data->labels, data->boxes};
    attn_status status = read_batch(data, part, tape, plans, batch);
    attn__free(data->context, plans);
    return status;
}

/* --------------------------------------------------------------------------------------------------- steps */

/* Returns the height of a picture of the training part after this epoch's augmentation. */
static int64_t height_of(const void *user, int64_t index)
{
    const attn__boxed_data *data = user;
    return plan_of(data, &data->train, index, true).height;
}

static int64_t width_of(const void *user, int64_t index)
{
    const attn__boxed_data *data = user;
    return plan_of(data, &data->train, index, true).width;
}

/* Returns the number of strips in a window of an epoch with `full` full batches. A window is long enough that the
 * pictures of a batch have similar sizes. A window of several batches has at most a quarter of all batches, so that a
 * batch contains different pictures in each epoch. */
static int64_t strips_of(int64_t full)
{
    int64_t strips = 1;
    while (strips < STRIPS && 4 * (strips + 1) * (strips + 1) <= full)
        strips++;
    return strips;
}

/* Sorts the pictures of a window by height, divides them into strips, and sorts each strip by width. */
static void sort_window(const attn__boxed_data *data, int64_t *pictures, int64_t n, int64_t strip)
{
    attn__order_by_key(pictures, n, height_of, data, data->window);
    for (int64_t i = 0; i < n; i += strip)
        attn__order_by_key(pictures + i, attn__min(strip, n - i), width_of, data, data->window);
}

/* The order depends only on the seed and the epoch, so a training can continue at any epoch. If the last batch is not
 * full, its pictures are not sorted, and it stays the last one. */
static void order_epoch(attn__boxed_data *data, int64_t epoch)
{
    attn__rng rng = {.seed = data->seed, .stream = attn__mix64(STREAM_ORDER ^ attn__mix64((uint64_t)epoch))};
    int64_t n = data->train.n, full = n / data->batch, strips = strips_of(full), window = strips * strips * data->batch;
    data->epoch = epoch;
    memcpy(data->train.order, data->base, (size_t)n * sizeof *data->base);
    attn__rng_shuffle(&rng, data->train.order, n);
    for (int64_t i = 0; i < full * data->batch; i += window)
        sort_window(data, data->train.order + i, attn__min(window, full * data->batch - i), strips * data->batch);
    for (int64_t i = 0; i < attn__boxed_data_steps(data); i++)
        data->batches[i] = i;
    attn__rng_shuffle(&rng, data->batches, full);
}

attn_status attn__boxed_data_train(attn__boxed_data *data, attn_tape *tape, int64_t epoch, int64_t step,
                                   attn__boxed_batch *batch)
{
    if (epoch != data->epoch)
        order_epoch(data, epoch);
    int64_t begin = data->batches[step] * data->batch, whole = attn__min(data->batch, data->train.n - begin);
    *batch = (attn__boxed_batch){.share = {.whole = whole}};
    batch->share.count = attn__ranks_share(data->context, whole, &batch->share.first);
    return make_batch(data, &data->train, tape, begin, true, batch);
}

attn_status attn__boxed_data_valid(attn__boxed_data *data, attn_tape *tape, int64_t index, attn__boxed_batch *batch)
{
    *batch = (attn__boxed_batch){.share = {.count = 1, .whole = 1}};
    return make_batch(data, &data->valid, tape, index, false, batch);
}

/* ------------------------------------------------------------------------------------------------- beginning */

/* Reads the size of a picture from the picture's file, if the annotations do not give the size. */
static attn_status complete_size(const attn__boxed_data *data, attn__boxed_image *its, const char *path)
{
    attn_image image = {0};
    attn_status status =
        its->width > 0 && its->height > 0 ? ATTN_OK : attn_image_read(&image, data->context, path, NULL);
    its->width = image.width > 0 ? image.width : its->width;
    its->height = image.height > 0 ? image.height : its->height;
    attn_image_free(data->context, &image);
    return status;
}

/* Returns the number of a picture's objects that are used for training. Adds the number of its other objects to
 * data->left_out. */
static int64_t count_objects(attn__boxed_data *data, const attn__boxed_part *part, int64_t index)
{
    const attn__boxed_image *image = &part->set->images[index];
    const attn__augmentation none = attn__augment_none(&data->view, image->width, image->height);
    int64_t n = objects_of(data, part->set, index, &none, NULL, NULL);
    data->left_out += image->objects - n;
    return n;
}

static attn_status check_image(attn__boxed_data *data, const attn__boxed_part *part, int64_t index)
{
    attn__boxed_image *image = &part->set->images[index];
    char *path = path_of(data, part, index);
    attn_status status = attn__result_status(data->context, path);
    if (status == ATTN_OK && !attn_file_exists(path))
        status =
            attn__fail(data->context, ATTN_ERROR_NOT_FOUND,
                       "%s: there is no such file; give the folder of the pictures by the setting \"images\"", path);
    if (status == ATTN_OK)
        status = complete_size(data, image, path);
    int64_t n = status == ATTN_OK ? count_objects(data, part, index) : 0;
    if (status == ATTN_OK && n > data->queries)
        status = attn__fail(data->context, ATTN_ERROR_ARGUMENT,
                            "%s: the picture has %lld objects, but the model has %lld queries, each for one object",
                            image->file, (long long)n, (long long)data->queries);
    attn__free(data->context, path);
    return status;
}

attn_status attn__boxed_data_begin(attn__boxed_data *data)
{
    const attn__boxed_part *parts[] = {&data->train, &data->valid};
    attn_status status = ATTN_OK;
    for (int p = 0; p < 2; p++)
        for (int64_t i = 0; i < parts[p]->n && status == ATTN_OK; i++)
            status = check_image(data, parts[p], parts[p]->order[i]);
    if (status != ATTN_OK)
        return status;
    size_t most = attn__size_mul((size_t)data->batch, (size_t)data->queries);
    size_t bytes = attn__size_mul((size_t)data->train.n, sizeof *data->base);
    data->base = attn__alloc(data->context, bytes);
    data->batches =
        attn__alloc(data->context, attn__size_mul((size_t)attn__boxed_data_steps(data), sizeof *data->batches));
    data->window = attn__alloc(data->context, attn__size_mul((size_t)data->train.n, sizeof *data->window));
    data->begin = attn__alloc(data->context, attn__size_mul((size_t)data->batch + 1, sizeof *data->begin));
    data->labels = attn__alloc(data->context, attn__size_mul(most, sizeof *data->labels));
    data->boxes = attn__alloc(data->context, attn__size_mul(most, 4 * sizeof *data->boxes));
    if (!data->base || !data->batches || !data->window || !data->begin || !data->labels || !data->boxes)
        return ATTN_ERROR_MEMORY;
    memcpy(data->base, data->train.order, bytes);
    return ATTN_OK;
}
