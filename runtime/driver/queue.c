/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue of runs: threads add jobs, and one job at a time runs, in the order in which they were added. Nothing here
 * allocates. An application that calls none of these functions does not link this file. */
#include "NeutronDriver.h"

/* The capacity in jobs that are queued, run, or done and not waited for. */
#ifndef NEUTRON_QUEUE_JOBS
#define NEUTRON_QUEUE_JOBS 16u
#endif

typedef enum { JOB_FREE, JOB_QUEUED, JOB_RUNNING, JOB_DONE } JobState;

typedef struct {
    JobState state;
    bool is_awaited; /* a neutronWait has found this job */
    uint32_t number;
    NeutronModelHandle handle;
    const NeutronDataConfig *data;
    NeutronError error; /* of a job that is done */
} Job;

/* The port is set while no thread uses the queue; all other fields are read and written between lock and unlock. */
static struct {
    NeutronQueuePort port;
    bool is_deferred; /* a port is set: a run waits for neutronServe, neutronPoll or neutronWait */
    bool is_stopping;
    bool is_running;
    uint32_t servers;
    uint32_t added; /* the next job's number */
    uint32_t begun; /* the number of the next job to run: queued jobs have the numbers from here up to added */
    Job jobs[NEUTRON_QUEUE_JOBS];
} queue;

static void lock(void) {
    if (queue.port.lock != NULL) queue.port.lock(queue.port.user);
}

static void unlock(void) {
    if (queue.port.unlock != NULL) queue.port.unlock(queue.port.user);
}

static void signal_all(void) {
    if (queue.port.signal != NULL) queue.port.signal(queue.port.user);
}

NeutronError neutronSetQueue(const NeutronQueuePort *port) {
    const NeutronQueuePort none = {0};
    for (uint32_t i = 0; i < NEUTRON_QUEUE_JOBS; ++i) {
        if (queue.jobs[i].state != JOB_FREE) return ENEUTRON_QUEUE_FULL;
    }
    queue.port = port != NULL ? *port : none;
    queue.is_deferred = port != NULL;
    queue.is_stopping = false;
    return ENONE;
}

/* ---- with the lock held ---------------------------------------------------------------------------------------------- */

/* Adds a job; NULL where there is no space. */
static Job *add(NeutronModelHandle handle, const NeutronDataConfig *data) {
    for (uint32_t i = 0; i < NEUTRON_QUEUE_JOBS; ++i) {
        Job *job = &queue.jobs[i];
        if (job->state != JOB_FREE) continue;
        *job = (Job){.state = JOB_QUEUED, .number = queue.added++, .handle = handle, .data = data};
        signal_all();
        return job;
    }
    return NULL;
}

/* The oldest job of this model and data without a waiting caller. */
static Job *find(NeutronModelHandle handle, const NeutronDataConfig *data) {
    Job *found = NULL;
    for (uint32_t i = 0; i < NEUTRON_QUEUE_JOBS; ++i) {
        Job *job = &queue.jobs[i];
        if (job->state == JOB_FREE || job->is_awaited || job->handle != handle || job->data != data) continue;
        if (found == NULL || queue.added - job->number > queue.added - found->number) found = job;
    }
    return found;
}

/* Runs the oldest queued job, with the lock released; false where no job is queued or another one runs. */
static bool run_next(void) {
    if (queue.is_running || queue.begun == queue.added) return false;
    Job *job = queue.jobs;
    while (job->state != JOB_QUEUED || job->number != queue.begun) ++job;
    ++queue.begun;
    job->state = JOB_RUNNING;
    queue.is_running = true;
    unlock();
    const NeutronError error = neutronRunBlocking(job->handle, job->data);
    lock();
    queue.is_running = false;
    job->error = error;
    job->state = JOB_DONE;
    signal_all();
    return true;
}

/* Runs a job, or waits until the queue has changed; false where no change is possible: the caller is a hook of a queued
 * run on the only thread. */
static bool advance(void) {
    if (queue.servers == 0 && run_next()) return true;
    if (queue.port.wait == NULL) return false;
    queue.port.wait(queue.port.user);
    return true;
}

/* Waits for a job and gives its place back. */
static NeutronError finish(Job *job) {
    job->is_awaited = true;
    while (job->state != JOB_DONE) {
        if (!advance()) {
            job->is_awaited = false;
            return ENEUTRON_NESTED_WAIT;
        }
    }
    job->state = JOB_FREE;
    signal_all();
    return job->error;
}

/* ---- the interface --------------------------------------------------------------------------------------------------- */

NeutronError neutronRunNonBlocking(NeutronModelHandle handle, const NeutronDataConfig *data) {
    if (handle == NEUTRON_INVALID_HANDLE) return ENEUTRON_HANDLE;
    if (data == NULL) return ENEUTRON_NULL;
    lock();
    const NeutronError error = add(handle, data) != NULL ? ENONE : ENEUTRON_QUEUE_FULL;
    while (!queue.is_deferred && run_next()) {
    }
    unlock();
    return error;
}

NeutronError neutronWait(NeutronModelHandle handle, const NeutronDataConfig *data) {
    lock();
    Job *job = find(handle, data);
    const NeutronError error = job != NULL ? finish(job) : ENEUTRON_NO_JOB;
    unlock();
    return error;
}

NeutronError neutronIsReady(NeutronModelHandle handle, bool *isReady) {
    if (handle == NEUTRON_INVALID_HANDLE) return ENEUTRON_HANDLE;
    if (isReady == NULL) return ENEUTRON_NULL;
    *isReady = true;
    lock();
    for (uint32_t i = 0; i < NEUTRON_QUEUE_JOBS; ++i) {
        const Job *job = &queue.jobs[i];
        if (job->handle == handle && (job->state == JOB_QUEUED || job->state == JOB_RUNNING)) *isReady = false;
    }
    unlock();
    return ENONE;
}

NeutronError neutronRunQueued(NeutronModelHandle handle, const NeutronDataConfig *data) {
    if (handle == NEUTRON_INVALID_HANDLE) return ENEUTRON_HANDLE;
    if (data == NULL) return ENEUTRON_NULL;
    NeutronError error = ENEUTRON_QUEUE_FULL;
    lock();
    Job *job = add(handle, data);
    while (job == NULL && advance()) job = add(handle, data);
    if (job != NULL) error = finish(job);
    unlock();
    return error;
}

bool neutronPoll(void) {
    lock();
    const bool has_run = run_next();
    unlock();
    return has_run;
}

NeutronError neutronServe(void) {
    if (queue.port.wait == NULL) return ENEUTRON_NULL;
    lock();
    ++queue.servers;
    while (!queue.is_stopping) {
        if (!run_next()) queue.port.wait(queue.port.user);
    }
    --queue.servers;
    signal_all(); /* from here on, the threads that wait run the jobs */
    unlock();
    return ENONE;
}

void neutronStopServing(void) {
    lock();
    queue.is_stopping = true;
    signal_all();
    unlock();
}
