/* SPDX-License-Identifier: MIT
 *
 * images.h - labelled images of one size as training data: sets, the files of MNIST and CIFAR, parts, augmentation
 * and batches.
 *
 * Readers take (data, size, name), so the bytes may come from any source; attn_file_read of io.h reads them from a
 * file, plain or gzip. Any number of threads may read an object at once, except attn_image_batches (one thread). */
#ifndef ATTN_DATA_IMAGES_H
#define ATTN_DATA_IMAGES_H

#include "attn/attn.h"

/* ---------------------------------------------------------------------------------------------- sets */

/* A set of images of one size with eight bits per sample. Each image has the number of its class. */
typedef struct attn_image_set attn_image_set;

typedef struct attn_image_shape {
    int64_t width, height, channels; /* number of channels: 1 for grey, 3 for red, green, blue */
    int64_t frames;                  /* number of frames of a video; 0 or 1: the image is a picture */
} attn_image_shape;
static inline int64_t attn__image_numbers(attn_image_shape s)
{
    return (s.frames > 1 ? s.frames : 1) * s.width * s.height * s.channels;
}

/* ATTN_ERROR_ARGUMENT: a side is not in 1 to 4096, the number of channels is neither 1 nor 3, or there are more than
 * 4096 frames. */
attn_status attn_image_set_create(attn_image_set **set, attn_context *context, attn_image_shape shape);
void attn_image_set_destroy(attn_image_set *set); /* NULL is allowed */
/* Adds an image: copies pixels[((frame * height + y) * width + x) * channels + c]. `key` decides to which part of a
 * split the image belongs. It must always be the same for the same image, such as its index in a file or a hash of its
 * name. ATTN_ERROR_ARGUMENT: the label is negative. */
attn_status attn_image_set_add(attn_image_set *set, const unsigned char *pixels, int32_t label, uint64_t key);

/* A picture has 1 frame. */
attn_image_shape attn_image_set_shape(const attn_image_set *set);
int64_t attn_image_set_size(const attn_image_set *set);
int64_t attn_image_set_classes(const attn_image_set *set); /* returns the largest label + 1, or 0 for an empty set */
/* Returns the pixels of image i, row by row with interleaved channels. The set owns the pixels. */
const unsigned char *attn_image_set_pixels(const attn_image_set *set, int64_t i); /* 0 <= i < size */
/* Returns the class of image i, 0 <= i < size. */
int32_t attn_image_set_label(const attn_image_set *set, int64_t i);
/* Computes mean and standard deviation of each channel over all pixels, with samples scaled to 0 to 1. `mean` and `std`
 * are [channels]. If a deviation is 0, 1 is returned instead. An empty set has mean 0 and deviation 1. */
void attn_image_set_statistics(const attn_image_set *set, float *mean, float *std);
/* Returns a checksum of all pixels and labels in their order. It serves to tell sets apart. */
uint64_t attn_image_set_fingerprint(const attn_image_set *set);

/* Splits a set into parts by a hash of the seed and each image's key. The part to which an image belongs does not
 * depend on the other images. If the pointer to a part is NULL, this part is not made. Parts keep the order and borrow
 * the pixels: destroy them before `all`, and add nothing to them. A part may be empty. ATTN_ERROR_ARGUMENT: shares are
 * negative or sum to 1 or more. */
attn_status attn_image_set_split(attn_image_set **train, attn_image_set **valid, attn_image_set **test,
                                 const attn_image_set *all, uint64_t seed, double valid_share, double test_share);

/* --------------------------------------------------------------------------------------------- files */

/* The bytes of a file, and the name of the file for messages. */
typedef struct attn_named_bytes {
    const void *data;
    size_t size;
    const char *name;
} attn_named_bytes;

/* A parsed file in the IDX format of MNIST (yann.lecun.com/exdb/mnist). The file has two zero bytes, a type, a rank,
 * sizes as big-endian 32-bit numbers, then the elements. Only unsigned bytes (type 8) of rank 1 to 4 are read. */
typedef struct attn_idx {
    int rank;
    int64_t dims[4];
    const unsigned char *elements; /* address of the elements inside the file's bytes */
    int64_t n;                     /* number of elements: the product of the sizes */
} attn_idx;
/* ATTN_ERROR_FORMAT: the file is not IDX, is truncated, or has too many bytes; the message gives the file's name and
 * the byte. ATTN_ERROR_UNSUPPORTED: another type or rank. */
attn_status attn_idx_parse(attn_idx *idx, attn_context *context, const attn_named_bytes *file);

/* Creates a set of images [n,h,w] or [n,h,w,c] and labels [n], with keys from 0. Labels must be less than `classes`. If
 * `classes` is 0, all labels are accepted. ATTN_ERROR_FORMAT: the files do not belong together, or a label is out of
 * range; the message gives the byte of the label. */
attn_status attn_image_set_of_idx(attn_image_set **set, attn_context *context, const attn_named_bytes *images,
                                  const attn_named_bytes *labels, int64_t classes);

/* Adds the records of CIFAR-10's binary version (cs.toronto.edu/~kriz/cifar.html) to a set of 32 x 32 x 3 images. A
 * record is a label, then 1024 bytes each of red, green and blue. The key of a record is the size of the set before it
 * is added. The errors are those for IDX files. */
attn_status attn_image_set_add_cifar(attn_image_set *set, attn_context *context, const attn_named_bytes *file,
                                     int64_t classes);

/* ------------------------------------------------------------------------------------------- batches */

/* A field that is zero has its default. */
typedef struct attn_image_batches_options {
    int64_t size; /* number of images in a batch; 0: 64 */
    uint64_t seed;
    bool in_order; /* not shuffled */
    /* The fields flip and shift set the augmentation. The random values depend only on (seed, epoch, index). */
    bool flip; /* true: the image is mirrored left to right with probability 1/2 */
    /* maximum shift of the image in pixels, in each direction; the free border is black. This is the same as a
     * random crop after padding. */
    int64_t shift;
    /* mean and standard deviation of each channel: x = (sample / 255 - mean) / std; std 0 counts as 1 */
    float mean[3], std[3];
} attn_image_batches_options;

/* A batch of images. Its memory belongs to the attn_image_batches. The next batch overwrites it. */
typedef struct attn_image_batch {
    int64_t size;           /* B */
    const float *x;         /* [B,frames,channels,height,width] */
    const int32_t *labels;  /* [B] */
    const int64_t *indices; /* [B]: for each image of the batch, its index in the set */
    /* Used if the batch is sharded: `whole` is the number of images of the whole batch, and these images begin at
     * index `first` of it. If the batch is not sharded, `first` is 0 and `whole` is B. */
    int64_t first, whole;
    /* true: the image is only a placeholder, because the batch has fewer images than there are processes. The image
     * belongs to another process and must not be counted. */
    bool stands_in;
} attn_image_batch;

typedef struct attn_image_batches attn_image_batches;

/* The order of an epoch depends only on (seed, epoch), so saving (epoch, position) is enough to resume. `set` must
 * outlive the batches and not grow. The next batch is initially batch 0 of epoch 0. May return ATTN_ERROR_ARGUMENT and
 * ATTN_ERROR_MEMORY. */
attn_status attn_image_batches_create(attn_image_batches **batches, attn_context *context, const attn_image_set *set,
                                      const attn_image_batches_options *options);
void attn_image_batches_destroy(attn_image_batches *batches); /* NULL is allowed */
/* A position at or past attn_image_batches_count means the end of the epoch, and a negative position means its
 * beginning. */
void attn_image_batches_seek(attn_image_batches *batches, int64_t epoch, int64_t position);
/* Returns false at the end of the epoch. The last batch may be smaller than the others. */
bool attn_image_batches_next(attn_image_batches *batches, attn_image_batch *batch);
/* Makes later calls of attn_image_batches_next return only this process's share of each batch (ranks.h). */
void attn_image_batches_shard(attn_image_batches *batches);
bool attn_image_batches_sharded(const attn_image_batches *batches);
int64_t attn_image_batches_count(const attn_image_batches *batches); /* returns the number of batches in an epoch */

#endif
