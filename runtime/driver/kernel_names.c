/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels' names, in an object of its own: firmware that does not ask for them has none. */
#include "NeutronDriver.h"
#include "neutron_isa.h"

const char *neutronErrorKernelName(NeutronError error) {
    if (getNeutronErrorCause(error) != ENEUTRON_KERNEL) return 0;
    switch (getNeutronErrorKernel(error)) {
#define NEUTRON_KERNEL(id, name, params, taps) \
    case (id):                                 \
        return #name;
#define NEUTRON_VARIANT(...)
#include "kernels.def"
        default:
            return 0;
    }
}
