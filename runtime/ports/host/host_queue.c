/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "host_queue.h"
#include "posix_threads.h"

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t server;
    bool is_served;
} host = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void lock(void *user) {
    (void)user;
    pthread_mutex_lock(&host.mutex);
}

static void unlock(void *user) {
    (void)user;
    pthread_mutex_unlock(&host.mutex);
}

static void wait_for_change(void *user) {
    (void)user;
    pthread_cond_wait(&host.changed, &host.mutex);
}

static void signal_all(void *user) {
    (void)user;
    pthread_cond_broadcast(&host.changed);
}

const NeutronQueuePort *neutron_host_queue(void) {
    static const NeutronQueuePort port = {lock, unlock, wait_for_change, signal_all, NULL};
    return &port;
}

static void *serve(void *unused) {
    (void)unused;
    neutronServe();
    return NULL;
}

bool neutron_host_queue_start(void) {
    if (host.is_served || neutronSetQueue(neutron_host_queue()) != ENONE) return false;
    host.is_served = pthread_create(&host.server, NULL, serve, NULL) == 0;
    return host.is_served;
}

void neutron_host_queue_stop(void) {
    if (!host.is_served) return;
    neutronStopServing();
    pthread_join(host.server, NULL);
    host.is_served = false;
}
