/* libpliant-gpu.so keeps an unmodified program within its share of a GPU. This header is what its files share.
 *
 * The rules of this library, which runs inside users' programs: it handles no signal, sets no umask, never exits,
 * starts no thread unless workloads contend for a GPU, writes only single lines about refusals and errors, uses no C
 * library symbol newer than glibc 2.17, and loads no CUDA driver that the program has not loaded itself. */
#ifndef PLIANT_SHIM_H
#define PLIANT_SHIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../abi.h"
#include "hooks.h"

#define API __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LOCAL __thread __attribute__((tls_model("initial-exec")))

/* ---- sys.c: the system, without symbols newer than glibc 2.17 -------------------------------------------------- */
struct mutex {
    uint32_t word;
};
struct spin { /* for critical sections of a few instructions; unlocking is a plain store */
    uint32_t word;
};
void spin_slow(struct spin *s);
static inline void spin_lock(struct spin *s) {
    if (UNLIKELY(__atomic_exchange_n(&s->word, 1, __ATOMIC_ACQUIRE))) spin_slow(s);
}
static inline void spin_unlock(struct spin *s) { __atomic_store_n(&s->word, 0, __ATOMIC_RELEASE); }
void lock(struct mutex *m);
void unlock(struct mutex *m);
struct file_id {
    uint64_t device, inode, size, changed_ns;
};
bool file_id(const char *path, struct file_id *id);
bool lock_byte(int fd, uint64_t at, bool wait_a_little); /* an OFD write lock */
bool unlock_byte(int fd, uint64_t at);
bool byte_is_locked(int fd, uint64_t at); /* by another open file */
uint64_t now_ns(void);                    /* the machine's clock, or that of the simulated driver */
void nap_ns(uint64_t ns);
void wait_word(uint32_t *word, uint32_t expected, uint64_t ns); /* shared between processes */
void wake_word(uint32_t *word);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool say_now(uint64_t *last_ns); /* true at most once a minute per word */
void *pages(size_t n);           /* zeroed memory, null if there is none */

/* ---- entry.c, lookup.c: symbol look-ups, ours and the program's ------------------------------------------------ */
struct reals {
#define FIELD(name, base, since, variant, args) int(*name) args;
    HOOKS(FIELD)
    NEEDED(FIELD)
    NVML_HOOKS(FIELD)
    NVML_NEEDED(FIELD)
#undef FIELD
};
#define DECLARE(name, base, since, variant, args) API int name args;
HOOKS(DECLARE)
NVML_HOOKS(DECLARE)
#undef DECLARE
extern struct reals real; /* the driver's own functions; null where it has none */
extern void *(*pliant_real_dlsym)(void *, const char *);
extern void *(*pliant_real_dlvsym)(void *, const char *, const char *);
void *real_open(const char *name, bool only_if_loaded);
void forget_error(void);
bool started(void);
const char *soname_at(const void *address, char *room, size_t n); /* of the object that holds address */
extern uint32_t cuda_ready;
bool cuda_find(void); /* finds the loaded driver's functions, once */
static inline bool cuda_here(void) { return LIKELY(__atomic_load_n(&cuda_ready, __ATOMIC_ACQUIRE)) || cuda_find(); }
bool nvml_here(bool load);
extern uint64_t (*sim_now)(void); /* the simulated driver's clock; null on a real one */
extern void (*sim_wait)(const uint32_t *, uint32_t, uint64_t);
extern void (*sim_wake)(const uint32_t *);

/* ---- config.c ------------------------------------------------------------------------------------------------- */
enum { MAX_GPUS = 8, NAME_ROOM = 128, PATH_ROOM = 512 };
enum policy { POLICY_NONE, POLICY_FAIR, POLICY_STRICT };
struct share {
    unsigned char uuid[16];
    char name[64];              /* the UUID as text */
    uint64_t limit, request;    /* bytes; they change while the program runs */
    uint32_t weight, policy, slice_us;
    char file[PATH_ROOM];       /* the file of the GPU's compute shares; empty: none */
};
struct config {
    bool good;                  /* a valid file was read; until then nothing may be allocated */
    int gpus;                   /* only grows: the UUID of an index never changes */
    uint64_t epoch;
    char workload[NAME_ROOM], ledger[PATH_ROOM], path[PATH_ROOM], why[256];
    struct share gpu[MAX_GPUS];
};
extern struct config config;
bool config_load(void);         /* true if a valid config was read */
void config_check(bool surely); /* reads the file again if it has changed, or if `surely` */
void config_forget(void);       /* after fork */
bool config_parse(struct config *to, char *text, size_t n); /* modifies text; to->why is the error */
int share_of_uuid(const unsigned char *uuid);               /* index in config.gpu, or -1 */
bool parse_uuid(const char *text, unsigned char *uuid);

/* ---- ledger.c ------------------------------------------------------------------------------------------------- */
enum class { CLASS_CONTEXT, CLASS_PLAIN, CLASS_MANAGED, CLASS_POOL, CLASS_VMM, CLASS_ARRAY, CLASS_GRAPH, CLASSES = 8 };
enum { SLOTS = 256, LEDGER_VERSION = 1, SLOT_LOCK = 1 << 20 };
#define LEDGER_MAGIC 0x524744454c4e4c50ull /* "PLNLEDGR" */
struct slot { /* of one process, which lives while the OFD lock on byte SLOT_LOCK + index is held */
    uint32_t live, pid, host_pid, ooms;
    uint64_t pid_namespace, started_ns;
    char name[16];
    uint32_t contexts, pad; /* one bit per GPU */
    uint64_t peak[MAX_GPUS];
    unsigned char rest[8];
};
struct ledger {
    uint64_t magic;
    uint32_t version, slots, gpus, high; /* high: slots from here on were never used */
    uint64_t epoch;                      /* the node raises it after it has changed the config */
    char workload[NAME_ROOM];
    unsigned char uuid[MAX_GPUS][16];
    unsigned char rest[4096 - 32 - NAME_ROOM - 16 * MAX_GPUS];
    struct slot slot[SLOTS];
    uint64_t charged[MAX_GPUS][SLOTS];   /* bytes of each process, all kinds together: these count */
    uint64_t extra[MAX_GPUS][SLOTS];     /* further bytes that the node has seen (contexts, modules) */
    uint64_t kind[SLOTS][MAX_GPUS][CLASSES]; /* for display; the rest of `charged` is CLASS_PLAIN */
};
struct here { /* the state of this process only; zeroed in the child of a fork */
    uint32_t attached, slot;
    struct ledger *ledger;
    int column[MAX_GPUS]; /* of config.gpu[i] in the ledger */
    uint32_t calls;
};
extern struct here *here;
bool attach_slow(void);
static inline bool attached(void) { return LIKELY(here && __atomic_load_n(&here->attached, __ATOMIC_ACQUIRE)) || attach_slow(); }
struct ledger *ledger_view(void);  /* to read it, attached or not; null if there is none */
bool reserve(int gpu, enum class kind, uint64_t bytes); /* never over the limit; gpu: index in config.gpu */
void release(int gpu, enum class kind, uint64_t bytes);
void charge(int gpu, enum class kind, int64_t bytes); /* for bytes already in use, even over the limit */
bool over_limit(int gpu);
uint64_t used_bytes(int gpu); /* of all living processes of the workload */
uint64_t own_bytes(int gpu, enum class kind);
int refuse(int gpu, uint64_t bytes);         /* logs who holds how much; returns CU_OUT_OF_MEMORY */
int card_full(int gpu, uint64_t bytes, int code); /* returns the driver's `code`; logs why if out of memory */

/* ---- table.c: maps pointers and handles to their charges ------------------------------------------------------- */
struct entry {
    uint64_t key, bytes, owner; /* key 0: empty; owner: the context, the pool or the block behind it */
    int32_t gpu;
    uint32_t kind;
};
struct shard {
    struct spin lock;
    uint32_t filled;
    uint64_t room;
    struct entry *rows;
};
enum { SHARDS = 64 };
struct table {
    struct shard shard[SHARDS];
};
extern struct table pointers, arrays, handles, mappings, execs;
void table_put(struct table *t, struct entry e);
bool table_take(struct table *t, uint64_t key, struct entry *e);
bool table_get(struct table *t, uint64_t key, struct entry *e);
void table_sweep(struct table *t, uint64_t owner, void (*gone)(const struct entry *e));
bool table_find_range(struct table *t, uint64_t at, struct entry *e); /* the entry with key <= at < key + bytes */

/* ---- the rest -------------------------------------------------------------------------------------------------- */
struct where {
    CUcontext context;
    CUdevice device;
    int gpu; /* index in config.gpu; -1: a GPU that is not the workload's */
};
bool where_now(struct where *w);   /* false: no context; the driver reports the error */
int gpu_of_device(CUdevice d);     /* index in config.gpu, or -1 */
int not_ours(CUdevice d);          /* logs that this GPU is not the workload's; returns CU_OUT_OF_MEMORY */
void contexts_forget(void);        /* after fork */
void overhead_measure(int gpu);    /* charges contexts and modules as NVML reports them */
void pools_refresh(void);          /* charges pools and graphs for what the driver holds now */
void pools_forget(void);
bool pool_pointer_freed(const struct entry *e);
extern uint32_t pools_dirty;
int graph_launch(CUgraphExec e, CUstream s, bool per_thread);
uint64_t nvml_own_bytes(int gpu, bool *known);

/* gate.c, lease.c: compute shares */
extern uint32_t *gate_word; /* points to nonzero: a launch has to ask first */
static inline uint32_t *gate_now(void) { return __atomic_load_n(&gate_word, __ATOMIC_ACQUIRE); }
void gate_enter(CUstream stream, bool per_thread);
void gate_leave(CUstream stream, bool per_thread);
void gate_stream_gone(CUstream stream);
void gate_context_gone(CUcontext context);
void gate_forget(void);
void gate_join(int gpu);
#endif
