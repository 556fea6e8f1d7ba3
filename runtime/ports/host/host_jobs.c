/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* RTLD_DEEPBIND */
#include "host_jobs.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host_products.h"

/* glibc 2.34 moved these functions, as those of posix_threads.h. */
#if defined(NEUTRON_OWN_SYSTEM)
#elif defined(__GLIBC__) && defined(__x86_64__)
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
    NeutronJobs library; /* the library's functions; none where the CPU computes all products */
    NeutronError (*allocate)(uint64_t size, void **buffer, bool userspace);
    NeutronError (*release)(void *buffer);
    bool is_open;
    bool is_said; /* that the CPU computes */
    char problem[512];
} driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool find(void *library, const char *name, void *function, size_t size) {
    void *found = dlsym(library, name);
    memcpy(function, &found, size); /* ISO C has no conversion between the two kinds of pointers */
    if (found == NULL) snprintf(driver.problem, sizeof driver.problem, "the NPU's driver has no function %s", name);
    return found != NULL;
}

/* Returns whether the CPU is to compute what the NPU can't, and says so once. */
static bool is_left_to_cpu(void) {
    const char *chosen = getenv(NEUTRON_HOST_JOBS_WITHOUT_NPU);
    if (chosen == NULL || strcmp(chosen, "cpu") != 0) return false;
    if (!driver.is_said) {
        fprintf(stderr, "OpenNeutron: %s. %s is cpu, so the CPU computes the matrix products.\n", driver.problem,
                NEUTRON_HOST_JOBS_WITHOUT_NPU);
    }
    driver.is_said = true;
    return true;
}

static NeutronError cleaned(const void *address, int size) {
    return neutron_host_products_has(address) ? ENONE : driver.library.clean_cache(address, size);
}

static NeutronError multiplied(const void *info, int info_size, const void *in, int in_size, const void *out, int out_size,
                               int slot) {
    if (neutron_host_products_has(info)) return neutron_host_product(info);
    return driver.library.matmul(info, info_size, in, in_size, out, out_size, slot);
}

#define FIND(library, name, function) find(library, name, &(function), sizeof(function))

static NeutronError open_library(void) {
    const char *chosen = getenv(NEUTRON_HOST_JOBS_LIBRARY);
    const char *path = chosen != NULL && *chosen != '\0' ? chosen : "libNeutronDriver.so";
    void *library = dlopen(path, MODE);
    if (library == NULL) {
        const char *words = dlerror();
        snprintf(driver.problem, sizeof driver.problem, "the NPU's driver can't be loaded: %s; set %s to its path, or %s to cpu",
                 words != NULL ? words : path, NEUTRON_HOST_JOBS_LIBRARY, NEUTRON_HOST_JOBS_WITHOUT_NPU);
        return ENEUTRON_NO_JOBS;
    }
    NeutronError (*init)(void) = NULL;
    if (!FIND(library, "allocateBuffer", driver.allocate) || !FIND(library, "releaseBuffer", driver.release) ||
        !FIND(library, "clean_cache", driver.library.clean_cache) || !FIND(library, "matmul", driver.library.matmul) ||
        !FIND(library, "neutronInit", init)) {
        driver.allocate = NULL;
        dlclose(library);
        return ENEUTRON_NO_JOBS;
    }
    const NeutronError error = init();
    if (error != ENONE) {
        snprintf(driver.problem, sizeof driver.problem, "the NPU's driver can't be initialised: error 0x%x", (unsigned)error);
        driver.allocate = NULL;
        dlclose(library);
        return ENEUTRON_NO_JOBS;
    }
    return ENONE;
}

static NeutronError opened(void) {
    if (driver.is_open) return ENONE;
    const NeutronError error = open_library();
    if (error != ENONE && !is_left_to_cpu()) return error;
    driver.is_open = true;
    const NeutronJobs jobs = {.clean_cache = cleaned, .matmul = multiplied};
    return neutronSetJobs != NULL ? neutronSetJobs(&jobs) : ENONE;
}

NeutronError neutron_host_jobs_open(void) {
    pthread_mutex_lock(&lock);
    const NeutronError error = opened();
    pthread_mutex_unlock(&lock);
    return error;
}

const char *neutron_host_jobs_problem(void) { return driver.problem; }

void *neutron_host_jobs_allocate(size_t size_bytes) {
    void *buffer = NULL;
    if (driver.is_open && driver.allocate == NULL) return neutron_host_products_allocate(size_bytes);
    const NeutronError error = driver.is_open ? driver.allocate(size_bytes, &buffer, true) : ENEUTRON_NO_JOBS;
    if (error == ENONE && buffer != NULL) return buffer;
    snprintf(driver.problem, sizeof driver.problem,
             "the NPU's driver has no buffer of %zu bytes; raise the contiguous memory of the system (cma= of the kernel's "
             "command line), or set %s to cpu",
             size_bytes, NEUTRON_HOST_JOBS_WITHOUT_NPU);
    return driver.is_open && is_left_to_cpu() ? neutron_host_products_allocate(size_bytes) : NULL;
}

void neutron_host_jobs_release(void *buffer) {
    if (buffer != NULL && !neutron_host_products_release(buffer)) driver.release(buffer);
}

NeutronError neutron_host_jobs_place(void *to, const void *weights, size_t size_bytes) {
    if (size_bytes > INT_MAX) return ENEUTRON_MEMORY;
    if (size_bytes == 0) return ENONE;
    memcpy(to, weights, size_bytes);
    return cleaned(to, (int)size_bytes);
}
