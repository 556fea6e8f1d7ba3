/* SPDX-License-Identifier: BSD-3-Clause */
/* The Cortex-M33's port: the core's cycle counter for profiles. */
#ifndef NEUTRON_CORTEX_M33_PORT_H
#define NEUTRON_CORTEX_M33_PORT_H

#include "NeutronDriver.h"

/* Starts the core's cycle counter and returns the port for neutronSetPort. A part without one (DWT_CTRL.NOCYCCNT) gets a
 * port that leaves profiles at modelled cycles. */
const NeutronPort *neutron_cortex_m33_port(void);

#endif
