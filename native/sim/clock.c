/* The card's time, and its one queue of kernels.
 *
 * The virtual clock does not advance while any thread that the card knows runs. When all of them wait, it jumps to the
 * earliest moment that one waits for, so results do not depend on the machine's load. A thread that is stopped, or
 * asleep elsewhere (on a pipe), is ignored after several consecutive checks have found it so, until a check finds that
 * it runs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../abi.h"
#include "card.h"

enum {
    LOOK_NS = 10000000, /* real time between two checks of threads that may be stuck */
    STUCK = 3,          /* consecutive checks after which a stopped thread is ignored */
    ASLEEP = 30,        /* the same of one asleep: it may wait for a lock whose holder is slow on a busy machine */
};

static __thread int my_thread = -1;
static __thread int my_process = -1; /* the pid that my_thread belongs to */
static pthread_key_t at_exit;
static pthread_once_t at_exit_once = PTHREAD_ONCE_INIT;

static uint64_t machine_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t sim_now(void) {
    return card->virtual_clock ? __atomic_load_n(&card->now, __ATOMIC_ACQUIRE) : machine_now();
}

static void look_again(void) {
    __atomic_add_fetch(&card->tick, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &card->tick, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool clock_stuck(const struct card_proc *p, struct card_thread *t, bool count) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%u/task/%u/stat", p->pid, t->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *after = strrchr(text, ')');
    char state = after && after[1] ? after[2] : 'X';
    bool stopped = strchr("TtZX", state), asleep = state == 'S'; /* not D: disk waits are short */
    t->idle = stopped || asleep ? t->idle + count : 0;
    return t->idle >= (stopped ? STUCK : ASLEEP);
}

/* Under the lock. Advances the clock if no thread runs; `look`: asks the kernel whether those marked as running do. */
static void advance(bool look) {
    uint64_t next = UINT64_MAX;
    if (look && machine_now() - card->last_look < LOOK_NS) look = false;
    if (look) {
        card->last_look = machine_now();
        card_reap();
    }
    for (int i = 0; i < MAX_PROCS; i++) {
        struct card_proc *p = &card_procs()[i];
        for (int k = 0; p->pid && k < MAX_THREADS; k++) {
            struct card_thread *t = &p->threads[k];
            bool ask = look || t->idle >= STUCK; /* an ignored thread may run again */
            if (t->state == THREAD_RUNNING && !(ask && clock_stuck(p, t, look))) return;
            if (t->state == THREAD_WAITING && t->until < next) next = t->until;
        }
    }
    if (next == UINT64_MAX || next <= card->now) return;
    __atomic_store_n(&card->now, next, __ATOMIC_RELEASE);
    for (int i = 0; i < MAX_PROCS; i++) {
        struct card_proc *p = &card_procs()[i];
        for (int k = 0; p->pid && k < MAX_THREADS; k++)
            if (p->threads[k].state == THREAD_WAITING && p->threads[k].until <= next)
                p->threads[k].state = THREAD_RUNNING, p->threads[k].idle = 0;
    }
    look_again();
}

static void thread_ends(void *unused) {
    (void)unused;
    if (!card || my_process != getpid()) return;
    card_lock();
    memset(&card_procs()[card_me].threads[my_thread], 0, sizeof(struct card_thread));
    advance(false);
    card_unlock();
}

static void make_key(void) { pthread_key_create(&at_exit, thread_ends); }

/* Under the lock: the row of the calling thread; null if there is no room (the clock then does not wait for it). */
static struct card_thread *this_thread(void) {
    struct card_thread *rows = card_procs()[card_me].threads;
    if (my_process == getpid()) {
        rows[my_thread].idle = 0;
        return &rows[my_thread];
    }
    for (int k = 0; k < MAX_THREADS; k++) {
        if (rows[k].state != THREAD_NONE) continue;
        my_thread = k;
        my_process = getpid();
        rows[k] = (struct card_thread){.tid = (uint32_t)syscall(SYS_gettid), .state = THREAD_RUNNING};
        pthread_once(&at_exit_once, make_key);
        pthread_setspecific(at_exit, card);
        return &rows[k];
    }
    return NULL;
}

static void wait_virtual(uint64_t until, const uint32_t *word, uint32_t expected) {
    card_lock();
    struct card_thread *t = this_thread();
    while (t && card->now < until && (!word || __atomic_load_n(word, __ATOMIC_SEQ_CST) == expected)) {
        t->state = THREAD_WAITING;
        t->until = until;
        t->on_word = word != NULL;
        t->idle = 0;
        bool look = false;
        while (t->state == THREAD_WAITING) {
            uint32_t tick = __atomic_load_n(&card->tick, __ATOMIC_ACQUIRE);
            advance(look);
            if (t->state != THREAD_WAITING) break;
            card_unlock();
            struct timespec patience = {.tv_nsec = LOOK_NS};
            look = syscall(SYS_futex, &card->tick, FUTEX_WAIT, tick, &patience, NULL, 0) != 0;
            card_lock();
        }
    }
    card_unlock();
}

void sim_wait_until(uint64_t t) {
    if (card->virtual_clock) {
        wait_virtual(t, NULL, 0);
        return;
    }
    struct timespec when = {.tv_sec = (time_t)(t / 1000000000u), .tv_nsec = (long)(t % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) != 0) {
    }
}

int card_run(int gpu, uint64_t ns, uint64_t *end) {
    card_lock();
    if (card->virtual_clock) this_thread();
    struct card_gpu *g = &card_gpus()[gpu];
    uint64_t now = sim_now(), start = g->busy_until > now ? g->busy_until : now;
    g->busy_until = start + ns;
    g->busy += ns;
    struct card_kernel *k = &card_trace()[card->kernels++ % TRACE];
    const struct card_proc *p = &card_procs()[card_me];
    *k = (struct card_kernel){.start = start, .end = start + ns, .pid = p->pid, .gpu = (uint32_t)gpu, .tag = p->tag};
    card_unlock();
    *end = start + ns;
    return CU_OK;
}

/* ---- for programs, and for the shim, which then runs on this clock as well ------------------------------------- */

__attribute__((visibility("default"))) uint64_t pliantSimNow(void) {
    if (!card_attach(true)) return machine_now();
    if (card->virtual_clock && my_process != getpid()) {
        card_lock();
        this_thread(); /* from now on the clock waits for it */
        card_unlock();
    }
    return sim_now();
}

__attribute__((visibility("default"))) void pliantSimSleep(uint64_t ns) {
    if (card_attach(true)) sim_wait_until(sim_now() + ns);
}

/* Waits until *word is not `expected` and pliantSimWake was called, at most for ns. */
__attribute__((visibility("default"))) void pliantSimWait(const uint32_t *word, uint32_t expected, uint64_t ns) {
    if (!card_attach(true)) return;
    if (card->virtual_clock) {
        wait_virtual(sim_now() + ns, word, expected);
        return;
    }
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT, expected, &t, NULL, 0);
}

__attribute__((visibility("default"))) void pliantSimWake(const uint32_t *word) {
    if (!card_attach(true)) return;
    if (!card->virtual_clock) {
        syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return;
    }
    card_lock();
    for (int i = 0; i < MAX_PROCS; i++)
        for (int k = 0; k < MAX_THREADS; k++) {
            struct card_thread *t = &card_procs()[i].threads[k];
            if (t->state == THREAD_WAITING && t->on_word) t->state = THREAD_RUNNING, t->idle = 0;
        }
    look_again();
    card_unlock();
}
