/* SPDX-License-Identifier: BSD-3-Clause */
/* NXP's driver as a library that is opened at run time: the functions of NeutronDriver.h that openneutron_nxp.c calls. The file is
 * libNeutronDriver.so, or that of the environment variable OPENNEUTRON_NEUTRON_LIBRARY. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "NeutronDriver.h"
#include "openneutron_models.h"
#include "openneutron_nxp.h"

static struct {
    NeutronError (*init)(void);
    NeutronError (*deinit)(void);
    NeutronError (*prepare)(const NeutronModelConfig *config, NeutronModelHandle *handle);
    NeutronError (*unprepare)(NeutronModelHandle handle);
    NeutronError (*run)(NeutronModelHandle handle, const NeutronDataConfig *data);
#if OPENNEUTRON_PREFETCHED
    NeutronError (*set_config)(NeutronConfig *config);
#endif
} driver;

/* A function of the library. POSIX lets dlsym return functions; ISO C has no conversion for that. */
static bool find(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    if (found == NULL) fprintf(stderr, "NXP's driver: %s\n", dlerror());
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static bool opened(void) {
    static bool is_open;
    if (is_open) return true;
    const char *given = getenv("OPENNEUTRON_NEUTRON_LIBRARY");
    const char *name = given != NULL ? given : "libNeutronDriver.so";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr,
                "NXP's driver: %s. Install NXP's package neutron on the board, or set OPENNEUTRON_NEUTRON_LIBRARY to the file.\n",
                dlerror());
        return false;
    }
    is_open = find(library, "neutronInit", &driver.init) && find(library, "neutronDeinit", &driver.deinit) &&
              find(library, "neutronModelPrepare", &driver.prepare) &&
              find(library, "neutronModelUnprepare", &driver.unprepare) && find(library, "neutronRunBlocking", &driver.run);
#if OPENNEUTRON_PREFETCHED
    is_open = is_open && find(library, "neutronSetConfig", &driver.set_config);
#endif
    return is_open;
}

/* Not exported, so that the library's own calls stay its own. */
#define OWN __attribute__((visibility("hidden")))

OWN NeutronError neutronInit(void) { return opened() ? driver.init() : ENEUTRON_LIBRARY; }
OWN NeutronError neutronDeinit(void) { return opened() ? driver.deinit() : ENEUTRON_LIBRARY; }
OWN NeutronError neutronModelPrepare(const NeutronModelConfig *config, NeutronModelHandle *handle) {
    return opened() ? driver.prepare(config, handle) : ENEUTRON_LIBRARY;
}
OWN NeutronError neutronModelUnprepare(NeutronModelHandle handle) { return opened() ? driver.unprepare(handle) : ENEUTRON_LIBRARY; }
OWN NeutronError neutronRunBlocking(NeutronModelHandle handle, const NeutronDataConfig *data) {
    return opened() ? driver.run(handle, data) : ENEUTRON_LIBRARY;
}
#if OPENNEUTRON_PREFETCHED
OWN NeutronError neutronSetConfig(NeutronConfig *config) { return opened() ? driver.set_config(config) : ENEUTRON_LIBRARY; }
#endif

/* Drivers have crashed on microcode of another release. The child's result comes through a pipe; a crash sends none. */
NeutronError openneutron_nxp_try(const OpenNeutronModel *model) {
    int ends[2];
    if (!opened()) return ENEUTRON_LIBRARY;
    if (pipe(ends) != 0) return ENONE; /* the driver is tried in this process */
    const pid_t child = fork();
    if (child == 0) {
        const NeutronError error = openneutron_nxp_prepare_once(model);
        const bool is_written = write(ends[1], &error, sizeof error) == (ssize_t)sizeof error;
        _exit(is_written ? 0 : 1);
    }
    NeutronError error = child < 0 ? ENONE : ENEUTRON_CRASH;
    close(ends[1]);
    if (child > 0) {
        NeutronError found;
        if (read(ends[0], &found, sizeof found) == (ssize_t)sizeof found) error = found;
        (void)waitpid(child, NULL, 0);
    }
    close(ends[0]);
    return error;
}
