/* SPDX-License-Identifier: MIT
 *
 * cgroup.h - the CPU time that Linux's control groups (a container's limit, a service's CPUQuota) leave to this
 * process, and its share of the cores among those that mpirun started.
 */
#ifndef ATTN_BASE_CGROUP_H
#define ATTN_BASE_CGROUP_H

/* The least quota of the process's group and those above it, in cores, rounded up; 0: there is none, or no telling.
 * Reads ROOT/proc/self/cgroup and what it names below ROOT/sys/fs/cgroup (versions 1 and 2); root is "" except in
 * tests. */
int attn__cgroup_cores(const char *root);

/* This process's share of the cores, where mpirun started several here and bound none: of those `usable` by the
 * affinity mask, and of the cgroup's `quota` (0: unlimited).  At least 1. */
int attn__process_cores(int usable, int quota);

#endif
