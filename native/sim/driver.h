/* The simulated libcuda: what its files share. Every entry point is a plain function of the driver's own name. */
#ifndef PLIANT_SIM_DRIVER_H
#define PLIANT_SIM_DRIVER_H
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../abi.h"
#include "card.h"

#define API __attribute__((visibility("default")))
enum { DRIVER_VERSION = 13000, CHUNK = 32 << 20, GRANULE = 2 << 20, MAX_STACK = 32 };

struct opaque { /* every handle that the driver hands out */
    enum kind { CONTEXT = 0x51, STREAM, EVENT, MODULE, FUNCTION, GRAPH, NODE, EXEC, ARRAY, MIPMAP, POOL } kind;
    int device;         /* CONTEXT, POOL, ARRAY, MIPMAP: the ordinal */
    uint64_t bytes;     /* NODE of an allocation; ARRAY, MIPMAP; EXEC: all that its graph allocates */
    uint64_t ns;        /* FUNCTION, NODE of a kernel; EXEC: its kernels together */
    uint64_t end;       /* STREAM, EVENT: when what it waits for is done */
    CUdeviceptr ptr;    /* NODE of an allocation */
    int node_type, levels;
    struct opaque *next, *first, *graph; /* NODE in GRAPH; STREAM: the graph it captures into */
    uint64_t reserved, used, threshold;  /* POOL */
    bool gone, uploaded, host;           /* POOL destroyed; EXEC has its memory; POOL of host memory */
    uint32_t retained;                   /* CONTEXT that is primary */
};

extern pthread_mutex_t process_lock; /* guards all tables of this process */
extern bool initialized;
extern int ordinals, gpu_of[MAX_GPUS]; /* CUDA_VISIBLE_DEVICES: ordinal -> card */
extern __thread struct opaque *stack[MAX_STACK];
extern __thread int depth;

static inline struct opaque *current(void) { return depth ? stack[depth - 1] : NULL; }
struct opaque *make(enum kind kind, int device);
bool is(const struct opaque *o, enum kind kind);
int here(int *device); /* the ordinal of the current context, or an error */
void drop_allocations(struct opaque *context);
void memory_after_fork(void);
uint64_t busy_until(const struct opaque *context); /* the end of all that this process has in flight there */
CUresult graph_memory(int device, int64_t delta, bool trim);

#define LOCKED pthread_mutex_lock(&process_lock)
#define UNLOCKED pthread_mutex_unlock(&process_lock)
#endif
