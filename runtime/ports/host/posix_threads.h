/* SPDX-License-Identifier: BSD-3-Clause */
/* POSIX threads, by the versions of their functions that each Linux has. */
#ifndef NEUTRON_POSIX_THREADS_H
#define NEUTRON_POSIX_THREADS_H

#include <pthread.h>
#include <stddef.h>

/* glibc 2.34 moved these functions to another library, under a new version beside the old one. With the old one the library runs
 * on each Linux that a wheel is for. NEUTRON_OWN_SYSTEM: the program runs with the library that it is linked with. */
#if defined(NEUTRON_OWN_SYSTEM)
#elif defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_join, pthread_join@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.17");
__asm__(".symver pthread_join, pthread_join@GLIBC_2.17");
#endif

#endif
