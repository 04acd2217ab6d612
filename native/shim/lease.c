/* Turns on one GPU: which process has the lease, which is next, which is gone. No lock is held across processes: the
 * lease is one word, replaced atomically, so a process that stops at any instruction delays the others only briefly. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "share.h"

enum {
    ACTIVE_NS = 100000000,  /* a process that was active within this time takes part */
    SILENT_NS = 100000000,  /* a holder without a heartbeat for this time loses the lease */
    LATE_NS = 2000000,      /* a lease that has been free for this time may be taken out of turn */
};
static_assert(sizeof(struct member) == 64, "layout");
static_assert(offsetof(struct share_file, group) == 4096, "layout");

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_SEQ_CST)

static struct member *mine(const struct gate *g) { return &g->file->member[g->me]; }
static struct group *group_of(const struct gate *g, const struct member *m) { return &g->file->group[m->group % GROUPS]; }
static uint64_t slice_ns(const struct gate *g) { return (uint64_t)LOAD(config.gpu[g->gpu].slice_us) * 1000; }
static uint64_t word_of(const struct gate *g, uint64_t end_ns) { return end_ns / 1000 << 12 | ((uint64_t)g->me + 1); }

static uint64_t hash(const char *name) {
    uint64_t h = 14695981039346656037ull;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 1099511628211ull;
    return h ? h : 1;
}

static void charge_group(struct gate *g, struct group *who, uint64_t used) {
    uint32_t weight = LOAD(who->weight);
    if (!weight || weight > 1000) weight = 1;
    if (used > 10000000000u) used = 10000000000u; /* a wrong number in the file costs at most 10 s */
    __atomic_add_fetch(&who->vtime, used * 1000 / weight, __ATOMIC_SEQ_CST);
    if (LOAD(who->policy) == POLICY_STRICT && weight < 1000) {
        uint64_t started = LOAD(g->file->started_ns), from = LOAD(who->not_before), slice = slice_ns(g);
        if (from + slice < started) from = started - slice; /* at most one slice of unused time is saved up */
        STORE(who->not_before, from + used * 1000 / weight);
    }
}

/* Frees the lease of a holder that has ended; its group pays until its last heartbeat. Otherwise the process that takes
 * its slot would have the lease, and pay for all the time since. */
static void give_back_of_dead(struct gate *g, int fd) {
    struct share_file *f = g->file;
    uint64_t lease = LOAD(f->lease), started = LOAD(f->started_ns), at = (lease & 4095) - 1;
    if (at >= MEMBERS || byte_is_locked(fd, MEMBER_LOCK + at)) return;
    uint64_t sign = LOAD(f->member[at].heartbeat_ns);
    if (sign > started) charge_group(g, group_of(g, &f->member[at]), sign - started);
    __atomic_compare_exchange_n(&f->lease, &lease, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&f->turn, 1, __ATOMIC_SEQ_CST);
    wake_word(&f->turn);
}

/* Under the file's lock byte 0. */
static bool enter(struct gate *g, int fd) {
    struct share_file *f = g->file;
    if (!f->magic) {
        f->version = SHARE_VERSION;
        STORE(f->magic, SHARE_MAGIC);
    }
    if (f->magic != SHARE_MAGIC || f->version != SHARE_VERSION) return false;
    give_back_of_dead(g, fd);
    uint64_t id = hash(config.workload);
    uint32_t at = GROUPS;
    for (uint32_t i = 0; i < GROUPS; i++) {
        if (f->group[i].id == id) at = i;
        if (f->group[i].id == id) break;
    }
    for (uint32_t i = 0; at == GROUPS && i < GROUPS; i++) { /* a free one, or one without a living member */
        bool used = false;
        for (uint32_t k = 0; f->group[i].id && k < f->high && k < MEMBERS; k++)
            used |= f->member[k].live && f->member[k].group == i && byte_is_locked(fd, MEMBER_LOCK + k);
        if (used) continue;
        f->group[i] = (struct group){.id = id, .vtime = LOAD(f->vclock)};
        at = i;
    }
    for (int i = 0; at < GROUPS && i < MEMBERS; i++) {
        if (!lock_byte(fd, MEMBER_LOCK + (uint64_t)i, false)) continue;
        f->member[i] = (struct member){.gate = 1, .live = 1, .group = at};
        if (f->high < (uint32_t)i + 1) STORE(f->high, (uint32_t)i + 1);
        g->me = i;
        return true;
    }
    return false;
}

bool share_open(struct gate *g) {
    static uint64_t said;
    struct stat st;
    memcpy(g->path, config.gpu[g->gpu].file, sizeof g->path);
    int fd = open(g->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool good = fd >= 0 && syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && lock_byte(fd, 0, true);
    if (good && syscall(SYS_fallocate, fd, 0, 0L, (long)sizeof *g->file) != 0 && errno != EOPNOTSUPP) good = false;
    void *p = good ? mmap(NULL, sizeof *g->file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (p != MAP_FAILED) {
        madvise(p, sizeof *g->file, MADV_DONTFORK);
        g->file = p;
        if (!enter(g, fd)) {
            munmap(p, sizeof *g->file);
            g->file = NULL;
        }
    }
    if (good) unlock_byte(fd, 0);
    if (fd >= 0) close(fd);
    if (!g->file && say_now(&said)) say("no compute share on %s: %s cannot be used; the GPU's own time slicing holds", config.gpu[g->gpu].name, g->path);
    return g->file != NULL;
}

static bool dead(const struct gate *g, uint32_t i) {
    int fd = open(g->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    bool gone = fd >= 0 && !byte_is_locked(fd, MEMBER_LOCK + i);
    if (fd >= 0) close(fd);
    return gone;
}

static bool wants(const struct gate *g, const struct member *m, uint64_t now, bool waiting_only) {
    if (!LOAD(m->live) || m->group == mine(g)->group) return false;
    uint64_t seen = LOAD(m->waiting) ? LOAD(m->heartbeat_ns) : LOAD(m->active_ns);
    bool recent = now < seen || now - seen < ACTIVE_NS;
    return waiting_only ? LOAD(m->waiting) && recent : recent;
}

bool share_others(const struct gate *g, uint64_t now, bool waiting_only) {
    uint32_t high = LOAD(g->file->high);
    for (uint32_t i = 0; i < high && i < MEMBERS; i++)
        if (wants(g, &g->file->member[i], now, waiting_only)) return true;
    return false;
}

/* The length of a turn is proportional to the weight, so that small shares get turns as often as large ones. */
static uint64_t turn_ns(const struct gate *g, uint64_t now) {
    uint64_t seen = 1ull << mine(g)->group % GROUPS, own = LOAD(group_of(g, mine(g))->weight), sum = own, n = 1;
    uint32_t high = LOAD(g->file->high);
    for (uint32_t i = 0; i < high && i < MEMBERS; i++) {
        const struct member *o = &g->file->member[i];
        uint64_t weight = LOAD(group_of(g, o)->weight);
        if (!wants(g, o, now, false) || seen >> o->group % GROUPS & 1 || weight > 1000) continue;
        seen |= 1ull << o->group % GROUPS;
        sum += weight;
        n++;
    }
    uint64_t slice = slice_ns(g), turn = sum ? slice * n * own / sum : slice;
    return turn < slice / 8 ? slice / 8 : turn > slice * 4 ? slice * 4 : turn;
}

bool share_announce(struct gate *g, uint64_t now) {
    struct member *m = mine(g);
    struct group *own = group_of(g, m);
    bool met = false;
    STORE(own->weight, LOAD(config.gpu[g->gpu].weight));
    STORE(own->policy, LOAD(config.gpu[g->gpu].policy));
    if (now - LOAD(m->active_ns) > ACTIVE_NS) { /* after a pause: at most one slice is saved up */
        uint64_t credit = slice_ns(g) * 1000 / (own->weight ? own->weight : 1), start = LOAD(g->file->vclock);
        start = start > credit ? start - credit : 0;
        if (LOAD(own->vtime) < start) STORE(own->vtime, start);
    }
    STORE(m->active_ns, now);
    STORE(m->heartbeat_ns, now);
    uint32_t high = LOAD(g->file->high);
    for (uint32_t i = 0; i < high && i < MEMBERS; i++) {
        struct member *o = &g->file->member[i];
        if (LOAD(o->live) && o->group != m->group && __atomic_exchange_n(&o->gate, 1, __ATOMIC_SEQ_CST) != 1) met = true;
    }
    return met;
}

bool lease_mine(const struct gate *g, uint64_t *end_ns) {
    uint64_t lease = LOAD(g->file->lease);
    *end_ns = (lease >> 12) * 1000;
    return (lease & 4095) == (uint64_t)g->me + 1;
}

/* True if it is this process's turn among all that wait. */
static bool my_turn(struct gate *g, uint64_t now) {
    const struct member *m = mine(g);
    uint64_t own = LOAD(group_of(g, m)->vtime);
    uint32_t high = LOAD(g->file->high);
    for (uint32_t i = 0; i < high && i < MEMBERS; i++) {
        const struct member *o = &g->file->member[i];
        if (i == (uint32_t)g->me || !wants(g, o, now, true)) continue;
        const struct group *theirs = group_of(g, o);
        if (LOAD(theirs->policy) == POLICY_STRICT && LOAD(theirs->not_before) > now) continue;
        uint64_t v = LOAD(theirs->vtime);
        if (v < own || (v == own && i < (uint32_t)g->me)) return false;
    }
    return true;
}

bool lease_take(struct gate *g, uint64_t now) {
    struct share_file *f = g->file;
    struct group *own = group_of(g, mine(g));
    if (own->policy == POLICY_STRICT && LOAD(own->not_before) > now) return false;
    uint64_t lease = LOAD(f->lease), holder = lease & 4095;
    bool over = false;
    if (holder && holder != (uint64_t)g->me + 1) {
        const struct member *h = &f->member[(holder - 1) % MEMBERS];
        uint64_t sign = LOAD(h->heartbeat_ns);
        bool silent = now > sign && now - sign > SILENT_NS;
        if (!silent && !dead(g, (uint32_t)holder - 1)) return false;
        over = true;
    }
    bool waited = !holder && now - LOAD(f->freed_ns) > LATE_NS;
    if (!over && !waited && !my_turn(g, now)) return false;
    uint64_t before = LOAD(f->started_ns);
    if (!__atomic_compare_exchange_n(&f->lease, &lease, word_of(g, now + turn_ns(g, now)), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return false;
    if (over && now > before) charge_group(g, group_of(g, &f->member[(holder - 1) % MEMBERS]), now - before);
    STORE(f->started_ns, now);
    if (LOAD(f->vclock) < LOAD(own->vtime)) STORE(f->vclock, LOAD(own->vtime));
    g->idle_since_ns = 0;
    return true;
}

uint64_t lease_pause(struct gate *g, uint64_t now, uint64_t most) {
    uint64_t until = LOAD(group_of(g, mine(g))->not_before);
    return until > now && until - now < most ? until - now : most;
}

bool lease_extend(struct gate *g, uint64_t now) {
    struct group *own = group_of(g, mine(g));
    uint64_t lease = LOAD(g->file->lease), started = LOAD(g->file->started_ns);
    if ((lease & 4095) != (uint64_t)g->me + 1) return false;
    if (own->policy == POLICY_STRICT) return false;
    if (now > started) charge_group(g, own, now - started);
    STORE(g->file->started_ns, now);
    if (!my_turn(g, now)) return false;
    return __atomic_compare_exchange_n(&g->file->lease, &lease, word_of(g, now + turn_ns(g, now)), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void lease_give_back(struct gate *g, uint64_t used_until) {
    struct share_file *f = g->file;
    uint64_t lease = LOAD(f->lease), started = LOAD(f->started_ns);
    if ((lease & 4095) != (uint64_t)g->me + 1) return; /* another process has taken it */
    if (used_until > started) charge_group(g, group_of(g, mine(g)), used_until - started);
    STORE(f->freed_ns, now_ns());
    __atomic_compare_exchange_n(&f->lease, &lease, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&f->turn, 1, __ATOMIC_SEQ_CST);
    wake_word(&f->turn);
}

bool gate_try_open(struct gate *g, uint64_t now) {
    struct member *m = mine(g);
    uint32_t closed = 1, probing = 2;
    if (LOAD(config.gpu[g->gpu].policy) == POLICY_STRICT) return false; /* a strict share is measured even when alone */
    if (!__atomic_compare_exchange_n(&m->gate, &closed, 2, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return closed == 0;
    if (share_others(g, now, false)) {
        STORE(m->gate, 1);
        return false;
    }
    return __atomic_compare_exchange_n(&m->gate, &probing, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); /* if not closed again */
}
