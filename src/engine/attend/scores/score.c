/* SPDX-License-Identifier: MIT */
#include "attend/scores/score.h"

#define ROW(NAME, name) extern const attn__score_kind attn__score_##name;
ATTN_SCORES(ROW)
#undef ROW

#define ROW(NAME, name) [ATTN_SCORE_##NAME] = &attn__score_##name,
const attn__score_kind *const attn__score_kinds[ATTN_SCORE_COUNT] = {ATTN_SCORES(ROW)};
#undef ROW

const attn__score_kind *attn__score_of(const attn_problem *problem)
{
    return attn__score_kinds[problem->score];
}
