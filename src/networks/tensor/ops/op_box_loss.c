/* SPDX-License-Identifier: MIT
 * Computes two distances between boxes and their targets: L1, and generalized intersection over union (Rezatofighi et
 * al. 2019, arXiv:1902.09630). A minimum or maximum of two equal sides passes half of its derivative to each, as in
 * PyTorch. */
#include "tensor/number.h"
#include "tensor/op.h"
#include "tensor/parts.h"

#include <math.h>
#include <string.h>

enum { SAVED_BOXES, SAVED_TARGET, SAVED_COUNT };

typedef struct box_detail {
    double l1, giou;
} box_detail;

typedef struct span {
    double low, high, target_low, target_high;
    /* common: length of the intersection; cover: length of the smallest interval that contains both */
    double common, cover;
    double length;
} span;

static span span_of(double centre, double size, double target_centre, double target_size)
{
    span s = {.low = centre - size / 2,
              .high = centre + size / 2,
              .target_low = target_centre - target_size / 2,
              .target_high = target_centre + target_size / 2};
    s.common = fmin(s.high, s.target_high) - fmax(s.low, s.target_low);
    s.cover = fmax(s.high, s.target_high) - fmin(s.low, s.target_low);
    s.length = s.high - s.low;
    return s;
}

/* A box and its target: both axes, the loss 1 - GIoU, and the loss's derivatives with respect to areas. */
typedef struct pair {
    span axes[2];
    double loss, by_common, by_cover, by_area;
} pair;

static pair pair_of(const double *box, const double *target)
{
    pair p = {.axes = {span_of(box[0], box[2], target[0], target[2]), span_of(box[1], box[3], target[1], target[3])}};
    const span *x = &p.axes[0], *y = &p.axes[1];
    double target_area = (x->target_high - x->target_low) * (y->target_high - y->target_low);
    double common = fmax(x->common, 0) * fmax(y->common, 0), cover = x->cover * y->cover;
    double both = x->length * y->length + target_area - common;
    p.loss = 2 - common / both - both / cover;
    p.by_area = common / (both * both) - 1 / cover;
    p.by_common = -1 / both - p.by_area;
    p.by_cover = both / (cover * cover);
    return p;
}

/* Returns the derivative of max(a, b) with respect to a: 1 if a > b, 0 if a < b, one half if a = b. */
static double beyond(double a, double b)
{
    return a > b ? 1 : a < b ? 0 : 0.5;
}

/* Adds the loss's derivatives with respect to the box's centre and size along one axis. `s` is the span along this
 * axis, and `other` is the span along the other axis. */
static void add_axis(const pair *p, const span *s, const span *other, double scale, double *centre, double *size)
{
    double common = s->common >= 0 ? p->by_common * fmax(other->common, 0) : 0, cover = p->by_cover * other->cover;
    double area = p->by_area * other->length;
    double high = common * beyond(s->target_high, s->high) + cover * beyond(s->high, s->target_high) + area;
    double low = -common * beyond(s->low, s->target_low) - cover * beyond(s->target_low, s->low) - area;
    *centre += scale * (high + low);
    *size += scale * (high - low) / 2;
}

static void read_box(attn_dtype dtype, const void *data, int64_t i, double *box)
{
    for (int k = 0; k < 4; k++)
        box[k] = dtype == ATTN_F64 ? ((const double *)data)[4 * i + k] : (double)((const float *)data)[4 * i + k];
}

static void box_backward(attn_tape *tape, attn__node *node)
{
    attn_tensor *boxes = node->x[0];
    const box_detail *detail = node->detail;
    attn__hold share = attn__scratch(tape, attn__tensor_bytes(boxes));
    tape->failed |= !share.data;
    double upper = attn__number(node->y->grad, 0);
    for (int64_t i = 0; share.data && i < boxes->shape[0]; i++) {
        double box[4], target[4], gradient[4];
        read_box(boxes->dtype, node->saved[SAVED_BOXES].data, i, box);
        read_box(boxes->dtype, node->saved[SAVED_TARGET].data, i, target);
        for (int k = 0; k < 4; k++)
            gradient[k] = upper * detail->l1 * (box[k] > target[k] ? 1 : box[k] < target[k] ? -1 : 0);
        pair p = pair_of(box, target);
        for (int axis = 0; axis < 2; axis++)
            add_axis(&p, &p.axes[axis], &p.axes[1 - axis], upper * detail->giou, &gradient[axis], &gradient[2 + axis]);
        for (int k = 0; k < 4; k++)
            if (boxes->dtype == ATTN_F64)
                ((double *)share.data)[4 * i + k] = gradient[k];
            else
                ((float *)share.data)[4 * i + k] = (float)gradient[k];
    }
    attn__grad_give(tape, boxes, share);
}

static double distance(const attn_tensor *boxes, const attn_tensor *target, const box_detail *detail)
{
    double sum = 0;
    for (int64_t i = 0; i < boxes->shape[0]; i++) {
        double box[4], its[4];
        read_box(boxes->dtype, boxes->data, i, box);
        read_box(boxes->dtype, target->data, i, its);
        for (int k = 0; k < 4; k++)
            sum += detail->l1 * fabs(box[k] - its[k]);
        sum += detail->giou * pair_of(box, its).loss;
    }
    return sum;
}

static bool accepts(attn_tape *tape, const attn_tensor *boxes, const attn_tensor *target)
{
    if (!attn__op_accepts(tape, "box_loss", 2, boxes, target))
        return false;
    char tx[ATTN__SHAPE_TEXT], ty[ATTN__SHAPE_TEXT];
    if (boxes->rank != 2 || boxes->shape[1] != 4 || !attn__same_shape(boxes, target)) {
        attn__op_shape_error(tape, "box_loss: boxes %s, target %s; expected [N,4] for both",
                             attn__shape_text(boxes, tx), attn__shape_text(target, ty));
        return false;
    }
    for (int64_t i = 0; i < target->shape[0]; i++) {
        double box[4];
        read_box(target->dtype, target->data, i, box);
        if (!(box[2] > 0 && box[3] > 0)) {
            attn__fail(tape->context, ATTN_ERROR_ARGUMENT,
                       "box_loss: target box %lld is %g x %g; width and height must be above 0", (long long)i, box[2],
                       box[3]);
            return false;
        }
    }
    return true;
}

double attn__box_giou(const double *box, const double *target)
{
    return 1 - pair_of(box, target).loss;
}

attn_tensor *attn_box_loss(attn_tape *tape, attn_tensor *boxes, const attn_tensor *target, double l1, double giou)
{
    ATTN__TAPE_CALL(tape->context);
    attn__node *node;
    if (!accepts(tape, boxes, target))
        return NULL;
    attn_tensor *loss = attn__op_result(tape, boxes->dtype, 0, NULL);
    if (!loss || !attn__op_record(tape, &node, box_backward, loss, 1, &boxes, SAVED_COUNT, sizeof(box_detail)))
        return NULL;
    box_detail detail = {l1, giou};
    attn__set_number(loss, 0, distance(boxes, target, &detail));
    if (node) {
        *(box_detail *)node->detail = detail;
        attn__node_save(node, SAVED_BOXES, boxes);
        attn__node_save(node, SAVED_TARGET, target);
    }
    return loss;
}
