/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver's public API. Names and meaning of structs and functions follow the public NeutronDriver.h that
 * ExecuTorch's NXP delegate is written against; this text is ours. What is ours alone is marked so. */
#ifndef NEUTRON_DRIVER_H
#define NEUTRON_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "NeutronErrors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 1: the caller gives the memory of a model's context (see neutronModelPrepare). As in the public header; the driver itself
 * has to be built alike, with this or with NEUTRON_NO_HEAP. */
#ifndef NO_HEAP_USAGE
#define NO_HEAP_USAGE 0
#endif

/* Ours. The memory regions that the buffers of a program may be in: 2 (scratch and prefetch buffer) or 3 (and the far buffer). The driver
 * refuses a program with more. */
#ifndef NEUTRON_REGIONS
#define NEUTRON_REGIONS 2
#endif

typedef void *NeutronModelHandle;
#define NEUTRON_INVALID_HANDLE NULL

/* microcode: aligned to 16 bytes, valid until unprepare. weights: aligned to 16. kernels: may be NULL, it is not read.
 * timeoutSeconds: how long one run may take; 0 is for ever. A port without a clock ignores it. The clock is read when the
 * run begins and before each kernel call, and the run ends with ENEUTRON_TIMEOUT where more than timeoutSeconds ticks have
 * passed: never early, up to a second and one kernel call late. */
typedef struct {
    const void *microcode;
    const void *weights;
    const void *kernels;
    uint32_t timeoutSeconds;
} NeutronModelConfig;

/* inputs: one pointer for each graph input. outputs: one for each graph output, then scratch, profile and the far buffer
 * (scratch and far buffer aligned to 16, of the header's scratch_size and debug_size; profile and far buffer may be NULL where their
 * size is 0).
 * scratch: not read, since ExecuTorch's NXP delegate does not set it. scratchWeights: the prefetch buffer, aligned
 * to 16; read only where the header's prefetch_size is not 0. Outputs, scratch and prefetch memory
 * overlap nothing else, but for an input or output that lies at its own place in scratch. */
typedef struct {
    const void **inputs;
    void **outputs;
    void *scratch;
    void *scratchWeights;
} NeutronDataConfig;

/* Copies constants to SRAM: copy starts a transfer on a channel, wait returns when the channel's transfers are done. The
 * driver waits for every transfer before neutronRunBlocking returns, also where the run fails. */
typedef struct {
    void (*copy)(void *dst, const void *src, uint32_t size, uint32_t channel);
    void (*wait)(uint32_t channel);
} NeutronConfig;

/* Ours. What a chip or host offers beside copy and wait; each may be NULL. now_cycles: the cycle counter for profiles
 * (NULL: modelled cycles). now_seconds: a clock for time-outs, which may wrap. clean/invalidate: cache maintenance around a
 * run. power: switches the NPU's clock or power; called on changes alone, see neutronInit. */
typedef struct {
    uint32_t (*now_cycles)(void);
    uint32_t (*now_seconds)(void);
    void (*clean_cache)(const void *address, uint32_t size);
    void (*invalidate_cache)(void *address, uint32_t size);
    void (*power)(bool on);
} NeutronPort;

/* One kernel call of a run, 16 bytes as NXP's profile events are. functionCode is the low 8 bits of the operator's index,
 * time in cycles. opCode is the kernel's id in start, and NEUTRON_EVENT_CALL_ENDS in stop: by it ExecuTorch's NXP delegate
 * knows the events that it reports. What a run leaves unused is 0. */
#define NEUTRON_EVENT_CALL_ENDS 6
typedef struct {
    uint8_t eventCode;
    uint8_t opCode;
    uint8_t functionCode;
    uint8_t timestampCode;
    uint32_t time;
} NeutronEventPoint;
typedef struct {
    NeutronEventPoint start;
    NeutronEventPoint stop;
} NeutronEvent;

/* Ours. Called after each kernel call of a run, in the order of the program, with the operator's index and the call's modelled
 * cycles, whatever the port's counter says. It may read the run's memory, run any model (this one with other buffers), and
 * set or end any trace, which holds from the next kernel call on. It must not unprepare a model that runs. */
typedef void (*NeutronCallHook)(void *user, uint32_t operator_index, uint32_t kernel_id, uint32_t cycles);

#define TRACE_CONFIG_KERNEL_LEVEL (1u << 0)
#define TRACE_CONFIG_JOB_LEVEL (1u << 1)

/* traceConfig: TRACE_CONFIG_KERNEL_LEVEL calls afterCall; without it there is no trace. The first three members are those of
 * the public struct; job level and the buffer for text are NXP's firmware's and are not used here. */
typedef struct {
    uint32_t traceConfig;
    char *traceBuffer;
    size_t traceBufferSize;
    NeutronCallHook afterCall; /* ours */
    void *user;                /* ours */
} NeutronTraceConfig;

/* The most threads of a run. */
#ifndef NEUTRON_MAX_THREADS
#define NEUTRON_MAX_THREADS 16
#endif
/* To hand out the parts of a call takes about as long as this work. */
#ifndef NEUTRON_LEAST_SHARED_WORK
#define NEUTRON_LEAST_SHARED_WORK 65536
#endif

/* Ours. The threads of a model's runs. parallel calls part(context, number) for each number from 0 to count - 1, in any order and in any
 * threads, and returns when all calls have returned. scratch: memory of the threads for calls that need scratch, (count - 1) times
 * scratchSize bytes, aligned to 16, valid until unprepare; scratchSize is at least neutronGetThreadScratchSize. Without it such calls
 * are not divided. leastWork: calls that read fewer input elements, counted again for each output element, are not divided; 0:
 * NEUTRON_LEAST_SHARED_WORK. */
typedef struct {
    uint32_t count;
    uint32_t leastWork;
    void (*parallel)(uint32_t count, void (*part)(void *context, uint32_t number), void *context);
    void *scratch;
    size_t scratchSize;
} NeutronThreads;

/* ---- life cycle, see docs/runtime.md ----------------------------------------------------------------------------------
 *
 * neutronInit turns the NPU on, neutronDeinit off; each may be called twice, and settings and prepared models outlive both.
 * Threads: neutronInit, Deinit, Suspend, Resume, SetConfig and SetPort are for one thread, while no other one is in the
 * driver. All else may be called from several threads at once; one handle may run in several at once, with buffers of their
 * own, but it must not be unprepared or get another trace meanwhile. */
NeutronError neutronInit(void);
NeutronError neutronDeinit(void);

/* Sets the copy callbacks; NULL members mean memcpy and no wait. A run that goes on keeps those it began with. */
NeutronError neutronSetConfig(const NeutronConfig *config);
/* Ours. Sets the port, of which the driver keeps a copy; NULL restores the default. Set it before neutronInit: a port does not
 * hear of power that is on already. A run that goes on keeps the one it began with. */
NeutronError neutronSetPort(const NeutronPort *port);
/* Sets the trace of a prepared model, which the driver keeps a copy of; NULL turns it off. Other models' stay as they are. */
NeutronError neutronSetTrace(NeutronModelHandle handle, const NeutronTraceConfig *trace);

/* Bytes that *handle must point to before neutronModelPrepare in a NEUTRON_NO_HEAP build. */
size_t neutronGetModelContextSize(void);
/* Ours. Not less than that, for memory that is laid out when compiling. */
#ifdef NEUTRON_THREADS
#define NEUTRON_MODEL_CONTEXT_SIZE (2 * sizeof(uint32_t) + 7 * sizeof(void *) + sizeof(NeutronThreads))
#else
#define NEUTRON_MODEL_CONTEXT_SIZE (2 * sizeof(uint32_t) + 6 * sizeof(void *))
#endif

/* Ours. Validates all that prepare does, without trusting the sizes in the header: microcode_size and weights_size are
 * what lies in memory. *detail (may be NULL) gets the word offset, kernel id or size the error is about. */
NeutronError neutronModelCheck(const NeutronModelConfig *config, size_t microcode_size, size_t weights_size,
                               uint32_t *detail);
/* Validates the microcode and makes a handle, also while the NPU is suspended. In a NEUTRON_NO_HEAP build *handle must point to
 * neutronGetModelContextSize() bytes, aligned as a pointer is. Where it fails, *handle is as it was. */
NeutronError neutronModelPrepare(const NeutronModelConfig *config, NeutronModelHandle *handle);
/* Gives the handle's memory back. The handle is dead from here on: do not pass it to anything again, nor to this function.
 * ENEUTRON_HANDLE for what is no handle helps to find mistakes, but freed memory can't be relied on to say so. It works
 * after neutronDeinit too. */
NeutronError neutronModelUnprepare(NeutronModelHandle handle);

/* Ours. Gives a prepared model the memory of its persistent area, which holds the tensors that the program keeps from one run to
 * the next: at least the header's state_size bytes, aligned to 16, which the driver writes to until unprepare. The memory is
 * set as by neutronReset. Without it a model whose state_size is not 0 does not run (ENEUTRON_NO_STATE); ENEUTRON_STATE_SIZE
 * where size_bytes is too small. Two handles of one program with memory of their own keep two states. */
NeutronError neutronSetState(NeutronModelHandle handle, void *memory, size_t size_bytes);
/* Ours. Sets the states to their values before the first run. Nothing happens to a program without state. ENEUTRON_RUNNING
 * where a hook or callback calls this, neutronSetState or neutronRunBlocking for the model whose run goes on: a model that keeps a
 * state has one run at a time. */
NeutronError neutronReset(NeutronModelHandle handle);

#ifdef NEUTRON_THREADS /* the driver and its application are built alike */
/* Ours. Sets the threads that compute each call of a prepared model's runs together; the driver
 * keeps a copy. NULL, or a count of 1: the thread of the caller alone, as before the first call. No bit of a result depends on it. Where
 * two runs of the model overlap, the later one does not divide calls that need scratch. ENEUTRON_NULL: parallel is missing;
 * ENEUTRON_ALIGNMENT: scratch is not aligned. */
NeutronError neutronSetThreads(NeutronModelHandle handle, const NeutronThreads *threads);
/* Ours. The bytes that each thread but the first needs for scratch; 0 where no call has any, and for
 * what is no handle. */
size_t neutronGetThreadScratchSize(NeutronModelHandle handle);
#endif

/* Ours. The functions of NXP's driver for the NPU of i.MX 95 under Linux that a program with matrix products on the NPU calls: matmul
 * and clean_cache of libNeutronDriver.so. matmul runs the job whose header of 64 bytes is given, from the operand and to the results that
 * are given with their sizes in bytes; slot: which 512 MiB of the buffer have the header. clean_cache writes what the CPU has changed in
 * a range back to memory. */
typedef struct {
    NeutronError (*matmul)(const void *header, int header_size, const void *operand, int operand_size, const void *results,
                           int results_size, int slot);
    NeutronError (*clean_cache)(const void *address, int size);
} NeutronJobs;

/* Ours. Sets these functions, of which a copy is kept, before a program with matrix products on the NPU runs; NULL: there are none.
 * Weights and scratch of such a program lie in the first 512 MiB of one buffer that NXP's allocateBuffer has given, and the weights have
 * been cleaned. ENEUTRON_NULL: a function is missing. ENEUTRON_NO_JOBS: the system is not Linux. */
NeutronError neutronSetJobs(const NeutronJobs *jobs);
/* Ours. Returns whether a prepared model's program has matrix products on the NPU. */
bool neutronHasJobs(NeutronModelHandle handle);

/* Runs the program once. A run keeps its state to itself, so that runs may follow, interrupt and nest in each other in any
 * order. After an error the outputs, scratch and prefetch buffers hold anything, the inputs are as they were, and the
 * next run is not affected. */
NeutronError neutronRunBlocking(NeutronModelHandle handle, const NeutronDataConfig *data);

/* ---- the queue, see docs/runtime.md ------------------------------------------------------------------------------------
 *
 * Several threads and models share one NPU through a queue: one job runs at a time, in the order in which the jobs were added.
 * The functions of the queue may be called from several threads at once, where the port has a lock. */

/* Ours. The functions of an operating system that the queue calls. lock and unlock: mutual exclusion. wait is called with the lock held:
 * it gives the lock back, sleeps until signal is called, and takes the lock again; it may return earlier. signal wakes all waiting
 * threads, and is called with the lock held. Each gets user. All may be NULL for a single thread. */
typedef struct {
    void (*lock)(void *user);
    void (*unlock)(void *user);
    void (*wait)(void *user);
    void (*signal)(void *user);
    void *user;
} NeutronQueuePort;

/* Ours. Sets the port, of which the driver keeps a copy. Without a port (the default, or NULL) neutronRunNonBlocking runs the
 * job itself, before it returns. For one thread, while no other one uses the queue; ENEUTRON_QUEUE_FULL where a job is in it. */
NeutronError neutronSetQueue(const NeutronQueuePort *port);

/* Adds a run to the queue and returns. The memory that data points to, *data included, stays as it is until neutronWait has returned;
 * each job needs one neutronWait. ENEUTRON_QUEUE_FULL: NEUTRON_QUEUE_JOBS jobs (16, unless the driver was built with another number) are
 * queued, or done and not waited for. neutronWait returns the errors with which neutronRunBlocking refuses a run. */
NeutronError neutronRunNonBlocking(NeutronModelHandle handle, const NeutronDataConfig *data);
/* Returns the result of the oldest job of this handle and data without a waiting caller, after the job has run. Where no thread serves the
 * queue, the caller runs the jobs in front of it and then the job. timeoutSeconds counts from the beginning of the job's run.
 * ENEUTRON_NO_JOB: there is no such job. ENEUTRON_NESTED_WAIT: the caller is a hook or callback of a queued run, and the port has
 * no wait; the job stays in the queue. With a port that waits, such a call would never return. */
NeutronError neutronWait(NeutronModelHandle handle, const NeutronDataConfig *data);
/* Sets *isReady: no job of this handle is queued or runs. It runs no job. */
NeutronError neutronIsReady(NeutronModelHandle handle, bool *isReady);

/* Ours. neutronRunNonBlocking and neutronWait in one call, which waits for space in a full queue. */
NeutronError neutronRunQueued(NeutronModelHandle handle, const NeutronDataConfig *data);
/* Ours. Runs the oldest queued job, for an application with a main loop and no threads; false where no job is queued, or one
 * runs already. */
bool neutronPoll(void);
/* Ours. Runs jobs as they are added, until neutronStopServing; for a thread of the application; one such thread is enough.
 * ENEUTRON_NULL: the port has no wait. */
NeutronError neutronServe(void);
/* Ours. Lets every neutronServe return, after the job that it runs; later ones return at once, until neutronSetQueue. */
void neutronStopServing(void);

/* Take the NPU's power and give it back: one switch, no count, so a second call of the same changes nothing. A run fails with
 * ENEUTRON_STATE while the NPU is suspended; one that goes on (suspended by a hook or callback) before its next kernel call.
 * Both fail with ENEUTRON_STATE before neutronInit and after neutronDeinit. */
NeutronError neutronSuspend(void);
NeutronError neutronResume(void);

/* Ours. The cause in words, static text. */
const char *neutronErrorText(NeutronError error);
/* Ours. The name of the kernel that an error with the cause ENEUTRON_KERNEL is about (getNeutronErrorKernel has its id), static
 * text; NULL for other errors and for ids that no kernel has. Names are linked only where this function is. */
const char *neutronErrorKernelName(NeutronError error);

#ifdef __cplusplus
}
#endif

#endif
