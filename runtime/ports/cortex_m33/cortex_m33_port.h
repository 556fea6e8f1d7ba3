/* SPDX-License-Identifier: BSD-3-Clause */
/* The Cortex-M33's port: the core's cycle counter for profiles. */
#ifndef NEUTRON_CORTEX_M33_PORT_H
#define NEUTRON_CORTEX_M33_PORT_H

#include "NeutronDriver.h"

/* Starts the core's cycle counter and returns the port for neutronSetPort. A part without one (DWT_CTRL.NOCYCCNT) gets a
 * port that leaves profiles at modelled cycles. */
const NeutronPort *neutron_cortex_m33_port(void);

/* The same port with a clock for time-outs, from the cycle counter of a core at this number of cycles per second (up to 2^31 - 1).
 * The clock is correct for runs of one thread whose kernel calls take less than 2^32 cycles each (28 s at 150 MHz), as the counter
 * wraps. A part without the counter has no clock. */
const NeutronPort *neutron_cortex_m33_clocked_port(uint32_t cycles_per_second);

#endif
