/* SPDX-License-Identifier: BSD-3-Clause */
/* Models with matrix products on the NPU of i.MX 95: NXP's driver computes the products, and gives the memory for weights and arena.
 *
 *     static net_instance net;
 *     NeutronError error = net_init(&net, NULL, 0);
 *     if (error != ENONE) fprintf(stderr, "%s: %s\n", openneutron_error_text(error), openneutron_jobs_problem());
 *     ...
 *     openneutron_release(&net.openneutron);
 */
#ifndef OPENNEUTRON_JOBS_H
#define OPENNEUTRON_JOBS_H

#include "openneutron.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The cause in words where openneutron_init returned ENEUTRON_NO_JOBS or ENEUTRON_MEMORY for such a model; static text. */
const char *openneutron_jobs_problem(void);

/* Gives the memory of an instance back to the driver. The instance can be initialised again. Such an instance of which openneutron_init
 * failed needs no call. */
void openneutron_release(OpenNeutronInstance *instance);

/* For openneutron_init. Loads the driver, gets a buffer for a model's weights and arena, and copies the weights. *arena is its part for the
 * arena. */
NeutronError openneutron_jobs_begin(const OpenNeutronModel *model, OpenNeutronMemory *arena);
void openneutron_jobs_end(const OpenNeutronModel *model, void *arena);

/* The weights of a call before an arena of openneutron_jobs_begin. */
const void *openneutron_jobs_weights(const OpenNeutronModel *model, const void *arena, uint32_t call);

#ifdef __cplusplus
}
#endif

#endif
