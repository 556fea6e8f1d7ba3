/* SPDX-License-Identifier: BSD-3-Clause */
/* A model of the NPU of i.MX 95 with the calls of NeutronMatmul.h: it reads the header and the packed weights of a job as
 * the firmware must, and computes. The functions below are the model's own; NXP's library does not have them. */
#ifndef DEVICE_MODEL_H
#define DEVICE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "NeutronMatmul.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets one of the options below. The environment variable NEUTRON_DEVICE_MODEL has several, "name=value,name=value"; it is
 * read once, before the first call. Returns false for an unknown name or value, and changes nothing.
 *
 *   release      third (default), second, first: the form of jobs
 *   rounding     half_up (default), half_even, half_away, truncate (towards minus infinity), toward_zero
 *   zero_point   ignored (default), added: word 10 of the header, to each result
 *   saturation   saturate (default), wrap
 *   firmware     none (default), 3.1.1: its wrong results for some K
 *   memory_mib   contiguous memory in MiB, 1024 by default
 *   clean_input  required (default), by_call: whether matmul() makes A visible to the NPU as it does the header */
bool neutron_device_model_set(const char *name, const char *value);

/* What was done since the start or the last reset. Violations are those of cache maintenance. */
typedef struct {
    uint64_t jobs;
    uint64_t refused;
    uint64_t multiplications;
    uint64_t cleaned_bytes;      /* by clean_cache */
    uint64_t not_cleaned;        /* ranges a job read of which the NPU saw older bytes than the CPU wrote */
    uint64_t shared_lines;       /* results beside bytes in the same cache line that the CPU wrote and did not clean */
    uint64_t wrong_ranges;       /* in or out of matmul() are not the header's */
    uint64_t dirty_results;      /* results over bytes that the CPU wrote and did not clean; no violation */
} NeutronDeviceCounts;

#define NEUTRON_DEVICE_LINE_BYTES 64

void neutron_device_model_counts(NeutronDeviceCounts *counts);
void neutron_device_model_reset(void);

/* The reason of the last refusal, or "". */
const char *neutron_device_model_reason(void);

/* The last violation in words, or "". */
const char *neutron_device_model_violation(void);

#ifdef __cplusplus
}
#endif
#endif
