/* The gate before every launch. It is open while only one workload wants the GPU. When several do, a launch needs the
 * lease. Events recorded after the launches show what is in flight; a context is never synchronised, and nothing is
 * touched while a stream is being captured. While workloads compete, one thread per process gives the lease back when
 * the program pauses. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "share.h"

enum {
    LOOK_NS = 500000,   /* period of the helper thread */
    WAIT_NS = 5000000,  /* the longest wait before a holder that may be gone is checked again */
    GRACE_NS = 400000,  /* a pause shorter than this does not give up the turn */
    QUIET_NS = 100000000,
    EVERY_MOST = 64,
};

static uint32_t unasked = 1, always = 1, open_gate;
uint32_t *gate_word = &unasked;
static struct gate gates[MAX_GPUS];
static struct mutex opening;
static LOCAL struct gate *inside;
static LOCAL struct stream *launching_on;

void gate_forget(void) {
    memset(gates, 0, sizeof gates);
    opening.word = 0;
    inside = NULL;
    __atomic_store_n(&gate_word, &unasked, __ATOMIC_RELEASE);
}

static uint32_t *word(struct gate *g) { return &g->file->member[g->me].gate; }

/* Chooses the word that a launch tests: a constant 0 (no shared GPU), that of the only GPU, or else a constant 1. */
static void choose(void) {
    int shared = 0, last = 0;
    lock(&opening);
    for (int i = 0; i < config.gpus; i++) {
        struct gate *g = &gates[i];
        if (__atomic_load_n(&config.gpu[i].policy, __ATOMIC_RELAXED) == POLICY_NONE || !config.gpu[i].file[0]) continue;
        if (!g->tried) { /* another thread may already launch through it */
            g->gpu = i;
            share_open(g);
            g->tried = true;
        }
        if (g->file) shared++, last = i;
    }
    uint32_t *chosen = !shared ? &open_gate : config.gpus == 1 ? word(&gates[last]) : &always;
    __atomic_store_n(&gate_word, chosen, __ATOMIC_RELEASE);
    unlock(&opening);
}

void gate_join(int gpu) {
    bool shared = __atomic_load_n(&config.gpu[gpu].policy, __ATOMIC_RELAXED) != POLICY_NONE;
    if (shared && gate_now() == &open_gate) __atomic_store_n(&gate_word, &unasked, __ATOMIC_RELEASE);
}

/* ---- what is in flight ------------------------------------------------------------------------------------------ */

static bool done(CUevent e) { return real.cuEventQuery(e) != CU_NOT_READY; } /* a failed event counts as done */

static bool all_done(struct gate *g) {
    bool idle = true;
    for (int i = 0; i < STREAMS; i++) {
        struct stream *s = &g->stream[i];
        if (!s->used || !s->launches) continue;
        if (!done(s->last)) {
            idle = false;
            continue;
        }
        s->launches = 0;
        s->marked = false;
        if (s->gone) s->used = false, real.cuEventDestroy_v2(s->last), real.cuEventDestroy_v2(s->mark);
    }
    return idle;
}

static struct stream *stream_of(struct gate *g, CUstream handle, CUcontext c, bool per_thread) {
    struct stream *room = NULL;
    uint32_t thread = handle == STREAM_PER_THREAD || (!handle && per_thread) ? (uint32_t)syscall(SYS_gettid) : 0;
    for (int i = 0; i < STREAMS; i++) {
        struct stream *s = &g->stream[i];
        if (s->used && !s->gone && s->handle == handle && s->context == c && s->thread == thread) return s;
        if (!room && (!s->used || (!s->launches && !s->gone))) room = s;
    }
    if (!room) return NULL; /* more than STREAMS streams: this one is not tracked */
    if (room->used) real.cuEventDestroy_v2(room->last), real.cuEventDestroy_v2(room->mark);
    *room = (struct stream){.handle = handle, .context = c, .thread = thread, .every = 1, .used = true};
    if (real.cuEventCreate(&room->last, EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING) != CU_OK) return room->used = false, NULL;
    if (real.cuEventCreate(&room->mark, EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING) != CU_OK) {
        real.cuEventDestroy_v2(room->last);
        return room->used = false, NULL;
    }
    return room;
}

void gate_stream_gone(CUstream handle) {
    for (int k = 0; k < MAX_GPUS; k++) {
        if (!gates[k].file) continue;
        lock(&gates[k].lock);
        for (int i = 0; i < STREAMS; i++)
            if (gates[k].stream[i].used && gates[k].stream[i].handle == handle) gates[k].stream[i].gone = true;
        unlock(&gates[k].lock);
    }
}

void gate_context_gone(CUcontext c) { /* the driver destroys its events */
    for (int k = 0; k < MAX_GPUS; k++) {
        if (!gates[k].file) continue;
        lock(&gates[k].lock);
        for (int i = 0; i < STREAMS; i++)
            if (gates[k].stream[i].context == c) gates[k].stream[i].used = false;
        unlock(&gates[k].lock);
    }
}

static void relax(int *mode) { /* querying an event must not invalidate another thread's capture */
    if (real.cuThreadExchangeStreamCaptureMode) real.cuThreadExchangeStreamCaptureMode(mode);
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

static void *help(void *argument) {
    struct gate *g = argument;
    int mode = CAPTURE_RELAXED;
    CUcontext current = NULL;
    relax(&mode);
    now_ns(); /* registers the thread with a simulated clock */
    __atomic_store_n(&g->ready, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &g->ready, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
    for (bool needed = true; needed;) {
        nap_ns(LOOK_NS);
        lock(&g->lock);
        uint64_t now = now_ns(), end;
        struct member *m = &g->file->member[g->me];
        __atomic_store_n(&m->heartbeat_ns, now, __ATOMIC_SEQ_CST);
        for (int i = 0; i < STREAMS; i++)
            if (g->stream[i].used && g->stream[i].launches && g->stream[i].context != current && real.cuCtxSetCurrent(g->stream[i].context) == CU_OK)
                current = g->stream[i].context;
        bool idle = all_done(g) && !g->launching;
        if (idle && !g->idle_since_ns) g->idle_since_ns = now; /* a pause counts from the check that finds it */
        if (!idle) {
            g->idle_since_ns = 0;
            __atomic_store_n(&m->active_ns, now, __ATOMIC_SEQ_CST);
        }
        bool held = lease_mine(g, &end);
        uint64_t pause = idle ? now - g->idle_since_ns : 0;
        if (held && pause >= GRACE_NS && (share_others(g, now, true) || pause > QUIET_NS)) lease_give_back(g, g->idle_since_ns);
        bool quiet = idle && !__atomic_load_n(&m->waiting, __ATOMIC_SEQ_CST) && now - __atomic_load_n(&m->active_ns, __ATOMIC_SEQ_CST) > QUIET_NS;
        if (!share_others(g, now, false) && gate_try_open(g, now)) {
            lease_give_back(g, now);
            needed = false;
        } else if (quiet) {
            lease_give_back(g, g->idle_since_ns);
            needed = false; /* the next launch finds the gate closed and starts the thread again */
        }
        if (!needed) g->helper = false;
        unlock(&g->lock);
    }
    return NULL;
}

static void start_helper(struct gate *g) {
    int (*create)(unsigned long *, const void *, void *(*)(void *), void *) = NULL;
    int (*detach)(unsigned long) = NULL;
    *(void **)&create = pliant_real_dlsym(NULL, "pthread_create"); /* exists if the program has CUDA */
    *(void **)&detach = pliant_real_dlsym(NULL, "pthread_detach");
    if (!create || !detach || g->helper) return forget_error();
    uint64_t all = ~0ull, before;
    unsigned long thread;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all); /* the program's signals are not its own */
    g->ready = 0;
    g->helper = create(&thread, NULL, help, g) == 0;
    while (g->helper && !__atomic_load_n(&g->ready, __ATOMIC_ACQUIRE)) /* its first check must not be late */
        syscall(SYS_futex, &g->ready, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    if (g->helper) detach(thread);
}

/* ---- the gate --------------------------------------------------------------------------------------------------- */

static bool captured(CUstream s, bool per_thread) {
    int status = 0;
    int (*ask)(CUstream, int *) = per_thread && real.cuStreamIsCapturing_ptsz ? real.cuStreamIsCapturing_ptsz : real.cuStreamIsCapturing;
    return ask && ask(s, &status) == CU_OK && status != 0;
}

/* Called under the lock, which it releases while it waits. */
static void wait_for(struct gate *g, CUevent e) {
    unlock(&g->lock);
    real.cuEventSynchronize(e);
    lock(&g->lock);
}

static void drain(struct gate *g) {
    for (int i = 0; i < STREAMS; i++)
        if (g->stream[i].used && g->stream[i].launches && !done(g->stream[i].last)) wait_for(g, g->stream[i].last);
    all_done(g);
}

static void get_turn(struct gate *g) {
    struct member *m = &g->file->member[g->me];
    uint64_t end, now = now_ns();
    share_announce(g, now);
    if (!g->helper) start_helper(g);
    for (;;) {
        uint32_t turn = __atomic_load_n(&g->file->turn, __ATOMIC_SEQ_CST); /* read first: no release is missed */
        now = now_ns();
        if (lease_mine(g, &end)) {
            bool strict = __atomic_load_n(&config.gpu[g->gpu].policy, __ATOMIC_RELAXED) == POLICY_STRICT;
            if (now < end || (!strict && !share_others(g, now, true)) || lease_extend(g, now)) break;
            drain(g); /* the lease is over for the other threads of this process, too */
            if (g->launching == 0) lease_give_back(g, now_ns());
            else unlock(&g->lock), nap_ns(GRACE_NS / 10), lock(&g->lock);
            continue;
        }
        if (lease_take(g, now)) break;
        __atomic_store_n(&m->heartbeat_ns, now, __ATOMIC_SEQ_CST);
        __atomic_store_n(&m->waiting, 1, __ATOMIC_SEQ_CST);
        unlock(&g->lock);
        wait_word(&g->file->turn, turn, lease_pause(g, now, WAIT_NS));
        lock(&g->lock);
        share_announce(g, now_ns());
    }
    __atomic_store_n(&m->waiting, 0, __ATOMIC_SEQ_CST);
}

void gate_enter(CUstream stream, bool per_thread) {
    struct where w;
    inside = NULL;
    if (!attached()) return;
    if (gate_now() == &unasked) choose();
    if (gate_now() == &open_gate || !where_now(&w) || w.gpu < 0 || !real.cuEventQuery || !real.cuEventCreate) return;
    struct gate *g = &gates[w.gpu];
    if (!g->file || !__atomic_load_n(word(g), __ATOMIC_SEQ_CST) || captured(stream, per_thread)) return;
    int mode = CAPTURE_RELAXED;
    relax(&mode);
    lock(&g->lock);
    uint64_t now = now_ns();
    if (!g->helper && !share_announce(g, now) && !share_others(g, now, false) && gate_try_open(g, now)) {
        unlock(&g->lock); /* alone */
        relax(&mode);
        return;
    }
    get_turn(g);
    struct stream *s = stream_of(g, stream, w.context, per_thread);
    if (s && s->marked && s->launches >= s->every) { /* at most 2 * every launches are in flight */
        uint64_t from = now_ns();
        bool ready = done(s->mark);
        if (!ready) wait_for(g, s->mark);
        uint64_t waited = now_ns() - from, slice = (uint64_t)__atomic_load_n(&config.gpu[g->gpu].slice_us, __ATOMIC_RELAXED) * 1000;
        if (waited > slice / 8 && s->every > 1) s->every /= 2;
        if (ready && s->every < EVERY_MOST) s->every *= 2;
        s->marked = false;
        uint64_t end;
        if (!lease_mine(g, &end) || now_ns() >= end) get_turn(g); /* the lease ended during the wait */
    }
    g->launching++;
    inside = g;
    launching_on = s;
    unlock(&g->lock);
    relax(&mode);
}

void gate_leave(CUstream stream, bool per_thread) {
    struct gate *g = inside;
    if (!g) return;
    inside = NULL;
    int mode = CAPTURE_RELAXED;
    relax(&mode);
    lock(&g->lock);
    g->launching--;
    struct stream *s = launching_on;
    int (*record)(CUevent, CUstream) = per_thread && real.cuEventRecord_ptsz ? real.cuEventRecord_ptsz : real.cuEventRecord;
    if (s && s->used && record && record(s->last, stream) == CU_OK) {
        s->launches++;
        if (!s->marked && s->launches >= s->every) {
            s->marked = record(s->mark, stream) == CU_OK;
            s->launches = 1;
        }
    }
    uint64_t now = now_ns();
    g->idle_since_ns = 0;
    __atomic_store_n(&g->file->member[g->me].active_ns, now, __ATOMIC_SEQ_CST);
    __atomic_store_n(&g->file->member[g->me].heartbeat_ns, now, __ATOMIC_SEQ_CST);
    unlock(&g->lock);
    relax(&mode);
}
