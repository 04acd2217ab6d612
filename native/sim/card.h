/* The simulated cards of one node: a file that every process maps, with an independent count of each process's memory.
 *
 * This is the layout of the file; src/pliant/devices/cards.py writes and reads it from outside. Numbers are in the
 * machine's byte order, little endian; memory is in bytes, time in nanoseconds. */
#ifndef PLIANT_SIM_CARD_H
#define PLIANT_SIM_CARD_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define CARD_MAGIC 0x44524143544e4c50ull /* "PLNTCARD" */
enum {
    CARD_VERSION = 1,
    MAX_GPUS = 16,
    MAX_PROCS = 512,
    MAX_THREADS = 24, /* per process, known to the clock */
    MAX_TAGS = 64,
    TRACE = 65536, /* kernels that the card remembers */
    GPUS_AT = 4096,
    TAGS_AT = 8192,
    PROCS_AT = 32768,
    TRACE_AT = PROCS_AT + MAX_PROCS * 1024,
    CARD_BYTES = TRACE_AT + TRACE * 32,
};

struct card_gpu {
    char uuid[64], name[64];
    uint64_t total, reserved, used, peak; /* used: of all living processes; peak: the most it ever was */
    uint64_t busy_until, busy;            /* the timeline's end; all kernel time so far */
    unsigned char rest[80];
};

struct card_tag { /* processes that carry the same PLIANT_ATTEMPT, or PLIANT_SIM_TAG where that is set */
    char name[64];
    uint64_t used[MAX_GPUS], peak[MAX_GPUS];
};

enum thread_state { THREAD_NONE, THREAD_RUNNING, THREAD_WAITING };

struct card_thread {
    uint32_t tid, state, on_word, idle;
    uint64_t until;
};

struct card_proc { /* owned through an OFD lock on byte PROC_LOCK + index: a process that died leaves it unlocked */
    uint32_t pid, tag;
    char name[16];
    uint64_t used[MAX_GPUS];
    uint32_t contexts, pad; /* one bit per GPU */
    struct card_thread threads[MAX_THREADS];
    unsigned char rest[1024 - 8 - 16 - 8 * MAX_GPUS - 8 - 24 * MAX_THREADS];
};

struct card_kernel {
    uint64_t start, end;
    uint32_t pid, gpu, tag, pad;
};

struct card_head {
    uint64_t magic;
    uint32_t version, gpus;
    uint32_t virtual_clock; /* 0: the machine's clock; 1: time passes only while every thread waits */
    uint32_t ready;         /* the lock below has been made */
    uint64_t context_bytes; /* what each context costs on its card */
    uint64_t now;           /* of the virtual clock */
    uint32_t tick, pad;     /* changes when a waiting thread should look again: a futex */
    uint64_t kernels;       /* number of kernels traced; entry k is at k % TRACE */
    uint64_t last_look;     /* when a process last asked the kernel which threads sleep */
    pthread_mutex_t lock;   /* robust, shared */
};

enum { PROC_LOCK = 1 << 20 };

extern struct card_head *card; /* null until card_attach */
extern int card_me;            /* this process's slot */

static inline struct card_gpu *card_gpus(void) { return (struct card_gpu *)(void *)((char *)card + GPUS_AT); }
static inline struct card_tag *card_tags(void) { return (struct card_tag *)(void *)((char *)card + TAGS_AT); }
static inline struct card_proc *card_procs(void) { return (struct card_proc *)(void *)((char *)card + PROCS_AT); }
static inline struct card_kernel *card_trace(void) { return (struct card_kernel *)(void *)((char *)card + TRACE_AT); }

bool card_attach(bool as_process); /* false without a card file; as_process: also takes a slot, for CUDA */
void card_lock(void);
void card_unlock(void);
void card_reap(void);                      /* under the lock: forgets processes that are gone */
int card_take(int gpu, uint64_t bytes);    /* 0, or CU_OUT_OF_MEMORY */
void card_give(int gpu, uint64_t bytes);
uint64_t card_free(int gpu);
int card_run(int gpu, uint64_t ns, uint64_t *end); /* a kernel in arrival order; *end: when it will be done */
void card_context(int gpu, bool on);

uint64_t sim_now(void);
void sim_wait_until(uint64_t t);
/* True if a thread marked as running was found idle so often that the clock ignores it; `count`: counts this check. */
bool clock_stuck(const struct card_proc *p, struct card_thread *t, bool count);

/* process-local: a map from a nonzero key to two words */
struct map {
    struct {
        uint64_t key, a, b;
    } *rows;
    uint64_t room, filled;
};
bool map_put(struct map *m, uint64_t key, uint64_t a, uint64_t b);
bool map_get(const struct map *m, uint64_t key, uint64_t *a, uint64_t *b);
bool map_take(struct map *m, uint64_t key, uint64_t *a, uint64_t *b);
#endif
