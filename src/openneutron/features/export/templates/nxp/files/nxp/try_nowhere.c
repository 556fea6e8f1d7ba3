/* SPDX-License-Identifier: BSD-3-Clause */
/* A core without processes: neutronModelPrepare itself tests the release. */
#include "openneutron_nxp.h"

#if !defined(__linux__)
NeutronError openneutron_nxp_try(const OpenNeutronModel *model) {
    (void)model;
    return ENONE;
}
#endif
