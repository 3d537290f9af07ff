/* SPDX-License-Identifier: MIT
 * The forms of the problem grammar through the functions that fill usual problems. */
#include "attend/problem/grammar.h"

#include "base/context.h"

static attn_status fill_heads(attn_problem *problem, const attn__phrase *s)
{
    int64_t queries = attn__phrase_letter(s, 'q', 1), heads = attn__phrase_letter(s, 'h', 1);
    int64_t keys = attn__phrase_letter(s, 'k', queries);
    return attn_problem_heads(
        problem, &(attn_heads){
                     .batch = attn__phrase_letter(s, 'b', 1),
                     .heads = heads,
                     .queries = queries,
                     .keys = keys,
                     .dim = attn__phrase_letter(s, 'd', 1),
                     .kv_heads = attn__phrase_letter(s, 'g', heads),
                     .dim_value = attn__phrase_letter(s, 'v', 0),
                     .layout = attn__phrase_has(s, ATTN__FEATURE_BHTD) ? ATTN_LAYOUT_BHTD : ATTN_LAYOUT_BTHD,
                     .packed = attn__phrase_has(s, ATTN__FEATURE_PACKED),
                     .packed_queries = s->packed,
                     .packed_keys = queries ? (int64_t)((double)s->packed / (double)queries * (double)keys) : s->packed,
                 });
}

static attn_status fill_axis(attn_problem *problem, const attn__phrase *s)
{
    bool first = attn__phrase_has(s, ATTN__FEATURE_FIRST);
    attn_axis axis = {.rank = s->nlengths + 1, .heads = attn__phrase_letter(s, 'h', 1)};
    for (int i = 0; i < s->nlengths; i++)
        axis.shape[i + first] = s->lengths[i];
    axis.channel_axis = first ? 0 : s->nlengths;
    axis.shape[axis.channel_axis] = attn__phrase_letter(s, 'c', 1);
    int64_t along = s->nlengths - 1;
    if (attn__phrase_has(s, ATTN__FEATURE_COL))
        along = 0;
    if (attn__phrase_has(s, ATTN__FEATURE_AXIS))
        along = s->axis < s->nlengths ? s->axis : axis.rank; /* the last is no axis: refused */
    axis.axis = (int)along + first;
    return attn_problem_axis(problem, &axis);
}

static attn_status fill_tied(attn_problem *problem, const attn__phrase *s)
{
    return attn_problem_tied_rows(problem, s->lengths[0], s->lengths[1], attn__phrase_letter(s, 'b', 1),
                                  attn__phrase_letter(s, 'h', 1), attn__phrase_letter(s, 'd', 1));
}

static attn_status fill_window(attn_problem *problem, const attn__phrase *s)
{
    attn_border border = attn__phrase_has(s, ATTN__FEATURE_ZERO)    ? ATTN_BORDER_ZERO
                         : attn__phrase_has(s, ATTN__FEATURE_SHIFT) ? ATTN_BORDER_SHIFT
                                                                    : ATTN_BORDER_MASK;
    int64_t taps = attn__phrase_letter(s, 'w', 1);
    return attn_problem_window2d(problem, &(attn_window2d){
                                              .batch = attn__phrase_letter(s, 'b', 1),
                                              .height = s->lengths[0],
                                              .width = s->lengths[1],
                                              .heads = attn__phrase_letter(s, 'h', 1),
                                              .dim = attn__phrase_letter(s, 'd', 1),
                                              .window_y = taps,
                                              .window_x = s->taps_x < 0 ? taps : s->taps_x,
                                              .step = attn__phrase_letter(s, 's', 0),
                                              .dilation = attn__phrase_letter(s, 'l', 0),
                                              .border = border,
                                          });
}

attn_status attn__phrase_form(attn_problem *problem, attn_context *context, const attn__phrase *phrase)
{
    static attn_status (*const fillers[ATTN__FORMS])(attn_problem *, const attn__phrase *) = {
        [ATTN__HEADS] = fill_heads, [ATTN__ADDITIVE] = fill_heads, [ATTN__AXIS] = fill_axis,
        [ATTN__TIED] = fill_tied,   [ATTN__WINDOW] = fill_window,
    };
    static const char *const reasons[ATTN__FORMS] = {
        [ATTN__HEADS] = "the sizes are too large, or g does not divide h",
        [ATTN__ADDITIVE] = "the sizes are too large, or g does not divide h",
        [ATTN__AXIS] = "the sizes are too large, h does not divide c, or there is no such axis",
        [ATTN__TIED] = "the sizes are too large",
        [ATTN__WINDOW] = "the sizes are too large",
    };
    if (fillers[phrase->form](problem, phrase) != ATTN_OK)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s", reasons[phrase->form]);
    if (phrase->form == ATTN__ADDITIVE)
        problem->score = ATTN_SCORE_ADDITIVE;
    return ATTN_OK;
}
