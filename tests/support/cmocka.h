/* SPDX-License-Identifier: MIT
 * cmocka needs these headers before its own. */
#ifndef ATTN_TESTS_CMOCKA_H
#define ATTN_TESTS_CMOCKA_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#endif
