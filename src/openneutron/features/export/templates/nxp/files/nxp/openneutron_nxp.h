/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of the functions of openneutron.h where NXP's driver runs the models. NXP's own errors have the components 1 to 3. */
#ifndef OPENNEUTRON_NXP_H
#define OPENNEUTRON_NXP_H

#include "openneutron.h"

#define OPENNEUTRON_NXP_ERROR(code) ((NeutronError)(0x7 | (code) << 8))

#define ENEUTRON_VERSION OPENNEUTRON_NXP_ERROR(2)    /* the driver refuses the microcode of this release of the converter */
#define ENEUTRON_NULL OPENNEUTRON_NXP_ERROR(10)      /* a pointer that must not be null is */
#define ENEUTRON_ALIGNMENT OPENNEUTRON_NXP_ERROR(11) /* a pointer is not aligned as it must be */
#define ENEUTRON_MEMORY OPENNEUTRON_NXP_ERROR(13)    /* an arena, or OPENNEUTRON_CONTEXT_BYTES, is too small */
#define ENEUTRON_STATE OPENNEUTRON_NXP_ERROR(14)     /* the instance is not initialized */
#define ENEUTRON_LIBRARY OPENNEUTRON_NXP_ERROR(25)   /* the driver's library is missing or lacks a function */
#define ENEUTRON_CRASH OPENNEUTRON_NXP_ERROR(26)     /* the driver ended the process that tried it */

#ifdef __cplusplus
extern "C" {
#endif

/* Called by the first NAME_init of each model, before the driver gets the model in this process. Returns ENONE where the driver can be
 * tried. The functions of the port: on Linux a child process tries the driver, since an older driver may crash on the microcode of a later
 * converter; elsewhere nothing is done. */
NeutronError openneutron_nxp_try(const OpenNeutronModel *model);

/* Prepares all programs of a model and gives them back. Returns the first error. */
NeutronError openneutron_nxp_prepare_once(const OpenNeutronModel *model);

#ifdef __cplusplus
}
#endif

#endif
