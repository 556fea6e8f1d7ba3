/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's port: a clock for time-outs. Profiles keep the modelled cycles, since the host's own say nothing of the NPU. */
#ifndef NEUTRON_HOST_PORT_H
#define NEUTRON_HOST_PORT_H

#include "NeutronDriver.h"

#ifdef __cplusplus
extern "C" {
#endif

const NeutronPort *neutron_host_port(void);

#ifdef __cplusplus
}
#endif

#endif
