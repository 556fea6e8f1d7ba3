/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for the header of NXP's SDK: the public names that a bundle uses. */
#ifndef NEUTRON_ERRORS_H
#define NEUTRON_ERRORS_H

#include <stdint.h>

typedef int32_t NeutronError;

#define ENONE 0
#define GET_ERROR_COMPONENT(e) ((e) & 0x7)
#define GET_ERROR_CATEGORY(e) ((e) >> 3 & 0x1F)

enum { ERROR_COMPONENT_LIBRARY = 1, ERROR_COMPONENT_FIRMWARE, ERROR_COMPONENT_DRIVER };

#endif
