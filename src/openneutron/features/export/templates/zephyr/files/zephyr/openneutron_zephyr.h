/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OPENNEUTRON_ZEPHYR_H
#define OPENNEUTRON_ZEPHYR_H

#include "NeutronDriver.h"

/* Zephyr's cycle counter and uptime, for profiles and time-outs: pass it to neutronSetPort before the first NAME_init. */
const NeutronPort *openneutron_zephyr_port(void);

#endif
