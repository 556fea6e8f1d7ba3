/* SPDX-License-Identifier: BSD-3-Clause */
/* What the application sets for all models: callbacks, port and power. */
#include "driver.h"

NeutronSettings neutron_settings;

/* The port hears of changes alone. */
static void enter(NeutronState state) {
    const bool was_on = neutron_settings.state == NEUTRON_ON;
    const bool is_on = state == NEUTRON_ON;
    neutron_settings.state = state;
    if (is_on != was_on && neutron_settings.port.power != NULL) neutron_settings.port.power(is_on);
}

NeutronError neutronInit(void) {
    enter(NEUTRON_ON);
    return ENONE;
}

NeutronError neutronDeinit(void) {
    enter(NEUTRON_OFF);
    return ENONE;
}

NeutronError neutronSuspend(void) {
    if (neutron_settings.state == NEUTRON_OFF) return ENEUTRON_STATE;
    enter(NEUTRON_SUSPENDED);
    return ENONE;
}

NeutronError neutronResume(void) {
    if (neutron_settings.state == NEUTRON_OFF) return ENEUTRON_STATE;
    enter(NEUTRON_ON);
    return ENONE;
}

NeutronError neutronSetConfig(const NeutronConfig *config) {
    if (config == NULL) return ENEUTRON_NULL;
    neutron_settings.config = *config;
    return ENONE;
}

NeutronError neutronSetPort(const NeutronPort *port) {
    const NeutronPort none = {0};
    neutron_settings.port = port != NULL ? *port : none;
    return ENONE;
}
