/* The shared file behind the simulated cards: attaching, the lock, live processes, memory in use. */
#define _GNU_SOURCE
#include "card.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../abi.h"

static_assert(sizeof(struct card_gpu) == 256, "layout");
static_assert(sizeof(struct card_tag) == 320, "layout");
static_assert(sizeof(struct card_proc) == 1024, "layout");
static_assert(sizeof(struct card_kernel) == 32, "layout");

enum { RETRY_NS = 5000000 };

struct card_head *card;
int card_me = -1;
static int card_fd = -1; /* kept open, as by a driver: when a process dies it is closed after the mapping */
static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;

static bool lock_byte(int fd, int command, short kind, off_t at) {
    struct flock l = {.l_type = kind, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    if (fcntl(fd, command, &l) != 0) return false;
    return command != F_OFD_GETLK || l.l_type != F_UNLCK;
}

static void after_fork(void) {
    if (card) munmap(card, CARD_BYTES);
    if (card_fd >= 0) close(card_fd);
    card = NULL;
    card_fd = card_me = -1;
    attaching = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static bool make_lock(int fd) {
    if (!lock_byte(fd, F_OFD_SETLKW, F_WRLCK, 0)) return false;
    if (!card->ready) {
        pthread_mutexattr_t how;
        pthread_mutexattr_init(&how);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&card->lock, &how);
        __atomic_store_n(&card->ready, 1, __ATOMIC_RELEASE);
    }
    return lock_byte(fd, F_OFD_SETLK, F_UNLCK, 0);
}

static uint32_t find_tag(void) {
    const char *name = getenv("PLIANT_SIM_TAG");
    if (!name) name = getenv("PLIANT_ATTEMPT");
    if (!name) name = "-";
    struct card_tag *tags = card_tags();
    uint32_t i = 0;
    for (; i < MAX_TAGS - 1 && tags[i].name[0]; i++)
        if (strncmp(tags[i].name, name, sizeof tags[i].name - 1) == 0) return i;
    if (!tags[i].name[0]) snprintf(tags[i].name, sizeof tags[i].name, "%s", name);
    return i; /* the last tag collects all that found no room */
}

static void take_slot(void) {
    struct card_proc *procs = card_procs();
    card_lock(); /* first: a dead process's row whose lock is taken would count as live until it is cleared */
    for (int i = 0; i < MAX_PROCS; i++) {
        if (!lock_byte(card_fd, F_OFD_SETLK, F_WRLCK, PROC_LOCK + i)) continue;
        card_me = i;
        if (procs[i].pid) card_reap();
        memset(&procs[i], 0, sizeof procs[i]);
        procs[i].pid = (uint32_t)getpid();
        procs[i].tag = find_tag();
        FILE *f = fopen("/proc/self/comm", "re");
        if (f) {
            if (!fgets(procs[i].name, sizeof procs[i].name, f)) procs[i].name[0] = 0;
            procs[i].name[strcspn(procs[i].name, "\n")] = 0;
            fclose(f);
        }
        break;
    }
    card_unlock();
}

bool card_attach(bool as_process) {
    static bool watched;
    pthread_mutex_lock(&attaching);
    const char *path = getenv("PLIANT_SIM_CARDS");
    if (!card && path) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        struct stat st;
        if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= CARD_BYTES) {
            int high = fcntl(fd, F_DUPFD_CLOEXEC, 100); /* does not disturb programs that rely on low numbers */
            void *at = mmap(NULL, CARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (high >= 0 && at != MAP_FAILED) {
                card = at;
                card_fd = high;
                if (card->magic != CARD_MAGIC || card->version != CARD_VERSION || !make_lock(high)) after_fork();
            }
            if (!watched) watched = pthread_atfork(NULL, NULL, after_fork) == 0;
        }
        if (fd >= 0) close(fd);
    }
    if (card && as_process && card_me < 0) take_slot();
    bool done = card && (!as_process || card_me >= 0);
    pthread_mutex_unlock(&attaching);
    return done;
}

static int take_lock(void) {
    int r = pthread_mutex_trylock(&card->lock);
    while (r == EBUSY || r == ETIMEDOUT) { /* again: a stopped process may have consumed the wake-up */
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += RETRY_NS;
        t.tv_sec += t.tv_nsec / 1000000000;
        t.tv_nsec %= 1000000000;
        r = pthread_mutex_timedlock(&card->lock, &t);
    }
    return r;
}

void card_lock(void) {
    if (take_lock() != EOWNERDEAD) return;
    /* its last owner died between two stores: count again */
    for (int g = 0; g < MAX_GPUS; g++) {
        card_gpus()[g].used = 0;
        for (int t = 0; t < MAX_TAGS; t++) card_tags()[t].used[g] = 0;
        for (int i = 0; i < MAX_PROCS; i++) {
            card_gpus()[g].used += card_procs()[i].used[g];
            card_tags()[card_procs()[i].tag].used[g] += card_procs()[i].used[g];
        }
    }
    pthread_mutex_consistent(&card->lock);
}

void card_unlock(void) { pthread_mutex_unlock(&card->lock); }

void card_reap(void) {
    for (int i = 0; i < MAX_PROCS; i++) {
        struct card_proc *p = &card_procs()[i];
        bool mine = i == card_me;
        if (!p->pid || (mine && p->pid == (uint32_t)getpid())) continue;
        if (!mine && lock_byte(card_fd, F_OFD_GETLK, F_WRLCK, PROC_LOCK + i)) continue;
        for (int g = 0; g < MAX_GPUS; g++) {
            card_gpus()[g].used -= p->used[g];
            card_tags()[p->tag].used[g] -= p->used[g];
        }
        memset(p, 0, sizeof *p);
    }
}

int card_take(int gpu, uint64_t bytes) {
    card_lock();
    struct card_gpu *g = &card_gpus()[gpu];
    struct card_proc *p = &card_procs()[card_me];
    struct card_tag *t = &card_tags()[p->tag];
    uint64_t room = g->total - g->reserved;
    /* a new peak counts only once dead processes are removed */
    if (bytes > room - g->used || g->used + bytes > g->peak || t->used[gpu] + bytes > t->peak[gpu]) card_reap();
    bool fits = bytes <= room - g->used;
    if (fits) {
        p->used[gpu] += bytes;
        g->used += bytes;
        t->used[gpu] += bytes;
        if (g->used > g->peak) g->peak = g->used;
        if (t->used[gpu] > t->peak[gpu]) t->peak[gpu] = t->used[gpu];
    }
    card_unlock();
    return fits ? CU_OK : CU_OUT_OF_MEMORY;
}

void card_give(int gpu, uint64_t bytes) {
    card_lock();
    struct card_proc *p = &card_procs()[card_me];
    p->used[gpu] -= bytes;
    card_gpus()[gpu].used -= bytes;
    card_tags()[p->tag].used[gpu] -= bytes;
    card_unlock();
}

uint64_t card_free(int gpu) {
    card_lock();
    card_reap();
    uint64_t left = card_gpus()[gpu].total - card_gpus()[gpu].reserved - card_gpus()[gpu].used;
    card_unlock();
    return left;
}

void card_context(int gpu, bool on) {
    card_lock();
    uint32_t *mask = &card_procs()[card_me].contexts;
    *mask = on ? *mask | 1u << gpu : *mask & ~(1u << gpu);
    card_unlock();
}

/* ---- the map -------------------------------------------------------------------------------------------------- */

static uint64_t spot(const struct map *m, uint64_t key) { return (key * 0x9e3779b97f4a7c15ull >> 20) & (m->room - 1); }

bool map_put(struct map *m, uint64_t key, uint64_t a, uint64_t b) {
    if (m->filled * 2 >= m->room) {
        struct map wider = {.room = m->room ? m->room * 2 : 256};
        wider.rows = calloc(wider.room, sizeof *wider.rows);
        if (!wider.rows) return false;
        for (uint64_t i = 0; i < m->room; i++)
            if (m->rows[i].key) map_put(&wider, m->rows[i].key, m->rows[i].a, m->rows[i].b);
        free(m->rows);
        *m = wider;
    }
    uint64_t i = spot(m, key);
    while (m->rows[i].key && m->rows[i].key != key) i = (i + 1) & (m->room - 1);
    m->filled += !m->rows[i].key;
    m->rows[i].key = key, m->rows[i].a = a, m->rows[i].b = b;
    return true;
}

bool map_get(const struct map *m, uint64_t key, uint64_t *a, uint64_t *b) {
    if (!m->room || !key) return false;
    for (uint64_t i = spot(m, key); m->rows[i].key; i = (i + 1) & (m->room - 1))
        if (m->rows[i].key == key) {
            if (a) *a = m->rows[i].a;
            if (b) *b = m->rows[i].b;
            return true;
        }
    return false;
}

bool map_take(struct map *m, uint64_t key, uint64_t *a, uint64_t *b) {
    if (!map_get(m, key, a, b)) return false;
    uint64_t hole = spot(m, key);
    while (m->rows[hole].key != key) hole = (hole + 1) & (m->room - 1);
    for (uint64_t i = (hole + 1) & (m->room - 1); m->rows[i].key; i = (i + 1) & (m->room - 1)) {
        uint64_t home = spot(m, m->rows[i].key);
        if (((i - home) & (m->room - 1)) < ((i - hole) & (m->room - 1))) continue;
        m->rows[hole] = m->rows[i];
        hole = i;
    }
    m->rows[hole].key = 0;
    m->filled--;
    return true;
}
