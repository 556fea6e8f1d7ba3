/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* RTLD_DEEPBIND */
#include "host_jobs.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* glibc 2.34 moved these functions, as those of posix_threads.h. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dlerror, dlerror@GLIBC_2.2.5");
__asm__(".symver dlclose, dlclose@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
__asm__(".symver dlerror, dlerror@GLIBC_2.17");
__asm__(".symver dlclose, dlclose@GLIBC_2.17");
#endif

/* A library with few kernels lacks it. */
extern NeutronError neutronSetJobs(const NeutronJobs *) __attribute__((weak));

/* The library has functions of the names of this driver's. It is to call its own ones. */
#if defined(RTLD_DEEPBIND) && !defined(__SANITIZE_ADDRESS__)
#define MODE (RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
#else
#define MODE (RTLD_NOW | RTLD_LOCAL)
#endif

static struct {
    NeutronJobs jobs;
    NeutronError (*allocate)(uint64_t size, void **buffer, bool userspace);
    NeutronError (*release)(void *buffer);
    bool is_open;
    char problem[512];
} driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool find(void *library, const char *name, void *function, size_t size) {
    void *found = dlsym(library, name);
    memcpy(function, &found, size); /* ISO C has no conversion between the two kinds of pointers */
    if (found == NULL) snprintf(driver.problem, sizeof driver.problem, "the NPU's driver has no function %s", name);
    return found != NULL;
}

#define FIND(library, name, function) find(library, name, &(function), sizeof(function))

static NeutronError open_library(void) {
    const char *chosen = getenv(NEUTRON_HOST_JOBS_LIBRARY);
    const char *path = chosen != NULL && *chosen != '\0' ? chosen : "libNeutronDriver.so";
    void *library = dlopen(path, MODE);
    if (library == NULL) {
        const char *words = dlerror();
        snprintf(driver.problem, sizeof driver.problem, "the NPU's driver can't be loaded: %s; set %s to its path",
                 words != NULL ? words : path, NEUTRON_HOST_JOBS_LIBRARY);
        return ENEUTRON_NO_JOBS;
    }
    NeutronError (*init)(void) = NULL;
    if (!FIND(library, "allocateBuffer", driver.allocate) || !FIND(library, "releaseBuffer", driver.release) ||
        !FIND(library, "clean_cache", driver.jobs.clean_cache) || !FIND(library, "matmul", driver.jobs.matmul) ||
        !FIND(library, "neutronInit", init)) {
        dlclose(library);
        return ENEUTRON_NO_JOBS;
    }
    const NeutronError error = init();
    if (error != ENONE) {
        snprintf(driver.problem, sizeof driver.problem, "the NPU's driver can't be initialised: error 0x%x", (unsigned)error);
        dlclose(library);
        return ENEUTRON_NO_JOBS;
    }
    driver.is_open = true;
    return neutronSetJobs != NULL ? neutronSetJobs(&driver.jobs) : ENONE;
}

NeutronError neutron_host_jobs_open(void) {
    pthread_mutex_lock(&lock);
    const NeutronError error = driver.is_open ? ENONE : open_library();
    pthread_mutex_unlock(&lock);
    return error;
}

const char *neutron_host_jobs_problem(void) { return driver.problem; }

void *neutron_host_jobs_allocate(size_t size_bytes) {
    void *buffer = NULL;
    const NeutronError error = driver.is_open ? driver.allocate(size_bytes, &buffer, true) : ENEUTRON_NO_JOBS;
    if (error == ENONE && buffer != NULL) return buffer;
    snprintf(driver.problem, sizeof driver.problem,
             "the NPU's driver has no buffer of %zu bytes; raise the contiguous memory of the system (cma= of the kernel's "
             "command line)",
             size_bytes);
    return NULL;
}

void neutron_host_jobs_release(void *buffer) {
    if (buffer != NULL) driver.release(buffer);
}

NeutronError neutron_host_jobs_place(void *to, const void *weights, size_t size_bytes) {
    if (size_bytes > INT_MAX) return ENEUTRON_MEMORY;
    if (size_bytes == 0) return ENONE;
    memcpy(to, weights, size_bytes);
    return driver.jobs.clean_cache(to, (int)size_bytes);
}
