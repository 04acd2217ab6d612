/* The ledger: one file per workload, in memory, mapped by all of its processes.
 *
 * Each process owns a slot through an OFD lock that lasts as long as its mapping: closing descriptors keeps it, SIGKILL
 * frees it. No total is stored: the workload's use is the sum of its slots, and slots of dead processes are cleared. A
 * reservation adds before it checks the sum, so of two that do not fit together at least one sees the other. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
enum { SERIAL = 0, CALLS_PER_CHECK = 64, RETRIES = 4 };
static_assert(sizeof(struct slot) == 128, "layout");
static_assert(offsetof(struct ledger, slot) == 4096, "layout");

struct here *here;
static struct mutex attaching;
static pid_t attached_pid;
static struct ledger *view;

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static bool complain(const char *what) {
    static uint64_t said;
    if (say_now(&said)) say("no GPU memory for this program: the ledger %s %s", config.ledger, what);
    return false;
}

/* Initialises or checks the file, under lock byte SERIAL. False if it is not, and must not become, our ledger. */
static bool prepare(int fd) {
    struct stat st;
    if (syscall(SYS_fstat, fd, &st) != 0 || !S_ISREG(st.st_mode)) return complain("is no file");
    if (st.st_size != 0 && (uint64_t)st.st_size < sizeof(struct ledger)) return complain("is cut short");
    if (syscall(SYS_fallocate, fd, 0, 0L, (long)sizeof(struct ledger)) != 0 && errno != EOPNOTSUPP)
        return complain("does not fit: its file system is full"); /* found now, not by a SIGBUS later */
    struct ledger *l = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (l == MAP_FAILED) return complain("cannot be mapped");
    bool good = true;
    if (st.st_size == 0 || l->magic == 0) {
        memcpy(l->workload, config.workload, sizeof l->workload);
        l->version = LEDGER_VERSION;
        l->slots = SLOTS;
        l->gpus = l->high = 0; /* contents without the magic do not count */
        __atomic_store_n(&l->magic, LEDGER_MAGIC, __ATOMIC_RELEASE);
    } else if (l->magic != LEDGER_MAGIC || l->version != LEDGER_VERSION || l->slots != SLOTS || l->gpus > MAX_GPUS || l->high > SLOTS) {
        good = complain("is not one of this version");
    } else if (strncmp(l->workload, config.workload, sizeof l->workload) != 0) {
        good = complain("belongs to another workload");
    }
    for (int i = 0; good && i < config.gpus; i++) { /* a column for each GPU, in the order of arrival */
        uint32_t k = 0;
        while (k < l->gpus && k < MAX_GPUS && memcmp(l->uuid[k], config.gpu[i].uuid, 16) != 0) k++;
        if (k == l->gpus && k < MAX_GPUS) {
            memcpy(l->uuid[k], config.gpu[i].uuid, 16);
            __atomic_store_n(&l->gpus, k + 1, __ATOMIC_RELEASE);
        }
    }
    munmap(l, 4096);
    return good;
}

static int open_ledger(void) {
    int fd = open(config.ledger, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        complain(errno == ENOSPC ? "does not fit: its file system is full" : "cannot be opened for writing");
        return -1;
    }
    bool serial = lock_byte(fd, SERIAL, true);
    bool good = prepare(fd);
    if (serial) unlock_byte(fd, SERIAL);
    if (good) return fd;
    close(fd);
    return -1;
}

static struct ledger *map(int fd) {
    void *p = mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static int column(const struct ledger *l, int gpu) {
    for (uint32_t k = 0; k < MAX_GPUS && k < __atomic_load_n(&l->gpus, __ATOMIC_ACQUIRE); k++)
        if (memcmp(l->uuid[k], config.gpu[gpu].uuid, 16) == 0) return (int)k;
    return -1;
}

/* The caller holds the slot's lock. */
static void wipe(struct ledger *l, int i) {
    for (int k = 0; k < MAX_GPUS; k++) {
        __atomic_store_n(&l->charged[k][i], 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&l->extra[k][i], 0, __ATOMIC_SEQ_CST);
    }
    memset(l->kind[i], 0, sizeof l->kind[i]);
    memset(&l->slot[i], 0, sizeof l->slot[i]);
}

static void introduce(struct slot *s) {
    struct file_id ns = {0};
    file_id("/proc/self/ns/pid", &ns);
    s->pid = (uint32_t)getpid();
    s->pid_namespace = ns.inode;
    s->started_ns = now_ns();
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, s->name, sizeof s->name - 1);
        for (ssize_t i = 0; i < n; i++)
            if ((unsigned char)s->name[i] < ' ') s->name[i] = 0;
        close(fd);
    }
    __atomic_store_n(&s->live, 1, __ATOMIC_RELEASE);
}

static bool take_slot(struct ledger *l, int fd) {
    for (int i = 0; i < SLOTS; i++) {
        if (!lock_byte(fd, SLOT_LOCK + (uint64_t)i, false)) continue;
        wipe(l, i);
        introduce(&l->slot[i]);
        uint32_t high = __atomic_load_n(&l->high, __ATOMIC_RELAXED);
        while (high < (uint32_t)i + 1 &&
               !__atomic_compare_exchange_n(&l->high, &high, (uint32_t)i + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
        }
        here->slot = (uint32_t)i;
        return true;
    }
    return complain("has no room for one more process: 256 of this workload use GPUs");
}

static void forked(void) { /* the child owns nothing of its parent: new slot, empty tables */
    if (attached_pid && attached_pid != getpid()) {
        struct table *all[] = {&pointers, &arrays, &handles, &mappings, &execs};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) memset(all[i], 0, sizeof *all[i]);
        contexts_forget();
        pools_forget();
        gate_forget();
    }
}

bool attach_slow(void) {
    static uint64_t gone;
    if (UNLIKELY(attached_pid && attached_pid != getpid())) { /* forked: a lock's holder is not in this process */
        attaching.word = 0;
        config_forget();
    }
    if (!config_load()) return false;
    lock(&attaching);
    if (!here) {
        struct here *fresh = pages(4096);
        if (fresh && madvise(fresh, 4096, MADV_WIPEONFORK) != 0 && say_now(&gone))
            say("this kernel is older than 4.14: programs that use a GPU before and after a fork are counted as one");
        here = fresh;
    }
    bool done = here && here->attached;
    if (here && !done) {
        forked();
        int fd = open_ledger();
        struct ledger *l = fd >= 0 ? map(fd) : NULL;
        if (l && take_slot(l, fd)) {
            madvise(l, sizeof *l, MADV_DONTFORK); /* a child's copy would keep this slot alive after us */
            here->ledger = l;
            for (int i = 0; i < MAX_GPUS; i++) here->column[i] = i < config.gpus ? column(l, i) : -1;
            attached_pid = getpid();
            __atomic_store_n(&here->attached, 1, __ATOMIC_RELEASE);
            done = true;
        } else if (l) {
            munmap(l, sizeof *l);
        }
        if (fd >= 0) close(fd); /* the mapping keeps the open file, and with it the lock */
    }
    unlock(&attaching);
    return done;
}

struct ledger *ledger_view(void) {
    if (here && here->attached) return here->ledger;
    if (!config_load()) return NULL;
    lock(&attaching);
    struct file_id id;
    if (!view && file_id(config.ledger, &id)) {
        int fd = open_ledger();
        view = fd >= 0 ? map(fd) : NULL;
        if (fd >= 0) close(fd);
    }
    unlock(&attaching);
    return view;
}

/* ---- counting --------------------------------------------------------------------------------------------------- */

static int my_column(int gpu) {
    if (here->column[gpu] < 0) here->column[gpu] = column(here->ledger, gpu); /* granted after we had attached */
    if (here->column[gpu] < 0) {
        int fd = open_ledger();
        if (fd >= 0) close(fd);
        here->column[gpu] = column(here->ledger, gpu);
    }
    return here->column[gpu];
}

static uint64_t sum(struct ledger *l, int k) {
    uint32_t high = __atomic_load_n(&l->high, __ATOMIC_SEQ_CST);
    uint64_t all = 0;
    for (uint32_t i = 0; i < high && i < SLOTS; i++) {
        uint64_t one = __atomic_load_n(&l->charged[k][i], __ATOMIC_SEQ_CST) + __atomic_load_n(&l->extra[k][i], __ATOMIC_RELAXED);
        all = all + one < all ? UINT64_MAX : all + one; /* a corrupt ledger grants nothing */
    }
    return all;
}

static bool alone(const struct ledger *l) {
    for (uint32_t i = 0; i < l->high && i < SLOTS; i++)
        if (l->slot[i].live && !(here && here->attached && i == here->slot)) return false;
    return true;
}

/* Frees the slots of dead processes: those whose lock is not held. */
static void reap(struct ledger *l) {
    if (alone(l)) return;
    int fd = open(config.ledger, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    for (uint32_t i = 0; i < l->high && i < SLOTS; i++) {
        if (!__atomic_load_n(&l->slot[i].live, __ATOMIC_ACQUIRE) || (here && here->attached && i == here->slot)) continue;
        if (byte_is_locked(fd, SLOT_LOCK + i) || !lock_byte(fd, SLOT_LOCK + i, false)) continue;
        wipe(l, (int)i);
        unlock_byte(fd, SLOT_LOCK + i);
    }
    close(fd);
}

static bool try_add(int gpu, int k, uint64_t bytes) {
    struct ledger *l = here->ledger;
    uint64_t *mine = &l->charged[k][here->slot];
    uint64_t now = __atomic_add_fetch(mine, bytes, __ATOMIC_SEQ_CST);
    if (LIKELY(sum(l, k) <= __atomic_load_n(&config.gpu[gpu].limit, __ATOMIC_RELAXED))) {
        uint64_t *peak = &l->slot[here->slot].peak[k];
        if (now > __atomic_load_n(peak, __ATOMIC_RELAXED)) __atomic_store_n(peak, now, __ATOMIC_RELAXED);
        return true;
    }
    __atomic_sub_fetch(mine, bytes, __ATOMIC_SEQ_CST);
    return false;
}

static void count_kind(int k, enum class kind, uint64_t bytes) {
    if (LIKELY(kind == CLASS_PLAIN)) return; /* not stored: what the other kinds leave of `charged` */
    __atomic_add_fetch(&here->ledger->kind[here->slot][k][kind], bytes, __ATOMIC_RELAXED);
}

static __attribute__((noinline)) bool reserve_slow(int gpu, int k, uint64_t bytes) {
    if (!bytes) return true; /* 0 bytes are never refused */
    config_check(false);
    bool done = false;
    int fd = open(config.ledger, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    bool serial = fd >= 0 && lock_byte(fd, SERIAL, true); /* one process at a time */
    reap(here->ledger);
    pools_refresh();
    for (int i = 0; i < RETRIES && !done; i++) { /* a process on the fast path may be about to undo its addition */
        if (i && alone(here->ledger)) break;
        if (i) syscall(SYS_sched_yield);
        done = try_add(gpu, k, bytes);
    }
    if (serial) unlock_byte(fd, SERIAL);
    if (fd >= 0) close(fd);
    return done;
}

bool reserve(int gpu, enum class kind, uint64_t bytes) {
    int k = here->column[gpu];
    if (UNLIKELY(k < 0) && (k = my_column(gpu)) < 0) return false;
    struct ledger *l = here->ledger;
    static LOCAL uint32_t calls;
    static uint64_t seen; /* the node's hint may be lost or forged: the file is checked now and then, too */
    uint64_t hint = __atomic_load_n(&l->epoch, __ATOMIC_RELAXED);
    if (UNLIKELY(hint != seen)) {
        seen = hint;
        config_check(true);
    } else if (UNLIKELY(++calls % CALLS_PER_CHECK == 0)) {
        config_check(false);
    }
    if (UNLIKELY(bytes > INT64_MAX)) return false;
    if (UNLIKELY(!try_add(gpu, k, bytes)) && !reserve_slow(gpu, k, bytes)) return false;
    count_kind(k, kind, bytes);
    return true;
}

void release(int gpu, enum class kind, uint64_t bytes) {
    int k = here->column[gpu];
    if (k < 0 || !bytes) return;
    __atomic_sub_fetch(&here->ledger->charged[k][here->slot], bytes, __ATOMIC_SEQ_CST);
    count_kind(k, kind, -bytes);
}

void charge(int gpu, enum class kind, int64_t bytes) {
    int k = my_column(gpu);
    if (k < 0 || !bytes) return;
    __atomic_add_fetch(&here->ledger->charged[k][here->slot], (uint64_t)bytes, __ATOMIC_SEQ_CST);
    count_kind(k, kind, (uint64_t)bytes);
}

uint64_t own_bytes(int gpu, enum class kind) {
    int k = my_column(gpu);
    if (k < 0) return 0;
    return kind == CLASSES ? __atomic_load_n(&here->ledger->charged[k][here->slot], __ATOMIC_SEQ_CST)
                           : __atomic_load_n(&here->ledger->kind[here->slot][k][kind], __ATOMIC_RELAXED);
}

bool over_limit(int gpu) {
    int k = my_column(gpu);
    return k < 0 || sum(here->ledger, k) > __atomic_load_n(&config.gpu[gpu].limit, __ATOMIC_RELAXED);
}

uint64_t used_bytes(int gpu) {
    struct ledger *l = ledger_view();
    int k = l ? column(l, gpu) : -1;
    if (k < 0) return 0;
    reap(l);
    return sum(l, k);
}

/* ---- refusing --------------------------------------------------------------------------------------------------- */

static const char *amount(char *room, size_t n, uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    uint64_t whole = bytes, tenths = 0;
    for (; whole >= 1024 && u < 4; u++) tenths = whole % 1024 * 100 / 1024, whole /= 1024;
    if (u < 2 || !tenths) snprintf(room, n, "%llu %s", (unsigned long long)whole, units[u]);
    else snprintf(room, n, "%llu.%02llu %s", (unsigned long long)whole, (unsigned long long)tenths, units[u]);
    return room;
}

static void holders(char *to, size_t room, const struct ledger *l, int k, int *processes) {
    size_t n = 0;
    char a[32];
    *processes = 0;
    to[0] = 0;
    for (uint32_t i = 0; i < l->high && i < SLOTS; i++) {
        uint64_t bytes = __atomic_load_n(&l->charged[k][i], __ATOMIC_RELAXED) + __atomic_load_n(&l->extra[k][i], __ATOMIC_RELAXED);
        if (!__atomic_load_n(&l->slot[i].live, __ATOMIC_ACQUIRE) || !bytes) continue;
        if (++*processes > 6) continue; /* keeps the line short */
        int more = snprintf(to + n, room - n, "%spid %u %.15s %s", n ? ", " : "", l->slot[i].pid, l->slot[i].name, amount(a, sizeof a, bytes));
        if (more > 0 && (size_t)more < room - n) n += (size_t)more;
    }
}

int refuse(int gpu, uint64_t bytes) {
    static uint64_t said;
    struct ledger *l = here->ledger;
    __atomic_add_fetch(&l->slot[here->slot].ooms, 1, __ATOMIC_RELAXED);
    int k = my_column(gpu), processes = 0;
    if (k < 0 || !say_now(&said)) return CU_OUT_OF_MEMORY;
    char asked[32], used[32], limit[32], who[512];
    holders(who, sizeof who, l, k, &processes);
    say("out of GPU share on %s: asked %s, %s of %s in use by %d process%s%s%s%s", config.gpu[gpu].name, amount(asked, sizeof asked, bytes),
        amount(used, sizeof used, sum(l, k)), amount(limit, sizeof limit, __atomic_load_n(&config.gpu[gpu].limit, __ATOMIC_RELAXED)), processes, processes == 1 ? "" : "es",
        processes ? " (" : "", who, processes ? ")" : "");
    return CU_OUT_OF_MEMORY;
}

int card_full(int gpu, uint64_t bytes, int code) {
    static uint64_t said;
    if (code != CU_OUT_OF_MEMORY || !say_now(&said)) return code;
    char asked[32], left[32];
    uint64_t limit = __atomic_load_n(&config.gpu[gpu].limit, __ATOMIC_RELAXED), used = used_bytes(gpu);
    say("%s itself has no room for %s, although %s of this workload's share are left: others use more than theirs", config.gpu[gpu].name,
        amount(asked, sizeof asked, bytes), amount(left, sizeof left, limit > used ? limit - used : 0));
    return code;
}
