/* The lease by itself, with a clock that stands still: two workloads, a and b, on one GPU. Prints ok. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/share.h"

#define MUST(x)                                            \
    do {                                                   \
        if (!(x)) return printf("line %d\n", __LINE__), 1; \
    } while (0)

enum { MS = 1000000, SLICE_US = 2000, WEIGHT = 500 };

struct config config;
uint64_t (*sim_now)(void);
void (*sim_wait)(const uint32_t *, uint32_t, uint64_t);
void (*sim_wake)(const uint32_t *);

static struct gate a, b;
static uint64_t now = 1000ull * 1000 * MS;
static uint64_t clock_now(void) { return now; }

static struct member *member_of(struct gate *g) { return &g->file->member[g->me]; }
static struct group *group_of(struct gate *g) { return &g->file->group[member_of(g)->group]; }

static bool joined(struct gate *g, const char *workload) {
    snprintf(config.workload, sizeof config.workload, "%s", workload);
    if (!share_open(g)) return false;
    share_announce(g, now);
    return true;
}

static void waits(struct gate *g) {
    member_of(g)->waiting = 1;
    member_of(g)->heartbeat_ns = now;
}

/* Whose turn it is among equals has to be one of them, or both would wait for the other, or both take it. */
static int tie(void) {
    waits(&a);
    waits(&b);
    a.file->freed_ns = now; /* just now: nobody may take it out of turn yet */
    MUST(group_of(&a)->vtime == group_of(&b)->vtime && a.me < b.me);
    MUST(!lease_take(&b, now));
    MUST(lease_take(&a, now));
    lease_give_back(&a, now);
    group_of(&a)->vtime = group_of(&b)->vtime + 1; /* who has had more comes later, whatever its place */
    MUST(!lease_take(&a, now));
    MUST(lease_take(&b, now));
    return 0;
}

/* The lock of a process that died is free at once: nobody waits until its last sign of life is old. */
static int died(void) {
    uint64_t before = group_of(&a)->vtime;
    struct group *of_a = &b.file->group[member_of(&a)->group];
    waits(&a);
    waits(&b);
    MUST(lease_take(&a, now));
    now += MS;
    waits(&b);
    MUST(!lease_take(&b, now)); /* it lives */
    munmap(a.file, sizeof *a.file);
    now += MS;
    MUST(lease_take(&b, now));
    MUST(of_a->vtime == before + 2ull * MS * 1000 / WEIGHT); /* what it had is its workload's to pay for */
    return 0;
}

/* One that lives and gives no sign of life is passed over after 100 ms, and not before. */
static int silent(void) {
    waits(&a);
    MUST(lease_take(&a, now));
    now += 100 * MS;
    waits(&b);
    MUST(!lease_take(&b, now));
    now += 1;
    waits(&b);
    MUST(lease_take(&b, now));
    uint64_t end;
    MUST(!lease_mine(&a, &end) && lease_mine(&b, &end) && end > now);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    sim_now = clock_now;
    snprintf(config.gpu[0].file, sizeof config.gpu[0].file, "%s", argv[2]);
    config.gpu[0].policy = POLICY_FAIR;
    config.gpu[0].weight = WEIGHT;
    config.gpu[0].slice_us = SLICE_US;
    if (!joined(&a, "a") || !joined(&b, "b")) return 3;
    int failed = !strcmp(argv[1], "tie") ? tie() : !strcmp(argv[1], "died") ? died() : silent();
    if (!failed) puts("ok");
    return failed;
}
