/* The file through which the workloads of one GPU take turns. It holds only numbers. Every sharer may write it, so its
 * numbers are not trusted: a wrong one costs fairness, never memory. */
#ifndef PLIANT_SHARE_H
#define PLIANT_SHARE_H
#include "shim.h"

#define SHARE_MAGIC 0x524148534e4c5050ull /* "PPLNSHAR" */
enum { SHARE_VERSION = 1, GROUPS = 64, MEMBERS = 256, MEMBER_LOCK = 1 << 20 };

struct group { /* a workload */
    uint64_t id;      /* hash of its name; 0: free */
    uint64_t vtime;   /* ns of GPU time divided by its weight, times 1000 */
    uint64_t not_before; /* ns: with policy strict the group waits until then */
    uint32_t weight, policy;
};
struct member { /* a process, which lives while its OFD lock is held */
    uint32_t gate; /* 0: launches without asking; 1: must ask; 2: about to become 0. Others set it to 1 */
    uint32_t live, group, waiting;
    uint64_t active_ns, heartbeat_ns;
    unsigned char rest[32];
};
struct share_file {
    uint64_t magic;
    uint32_t version, high;
    uint64_t lease;      /* end in us << 12 | member + 1; 0: free */
    uint64_t started_ns; /* of the part of the lease that is not charged yet */
    uint64_t freed_ns;
    uint64_t vclock;     /* the highest vtime at a grant: a new group starts here, one that was idle a slice before */
    uint32_t turn, pad;  /* changes when the lease is given back: a futex */
    unsigned char rest[4096 - 56];
    struct group group[GROUPS];
    struct member member[MEMBERS];
};

struct stream { /* that has work in flight */
    CUstream handle;
    CUcontext context;
    CUevent last, mark; /* recorded after the last launch; some launches before */
    uint32_t launches, every, thread;
    bool used, marked, gone;
};
enum { STREAMS = 32 };
struct gate { /* of one GPU, in this process */
    struct share_file *file;
    struct mutex lock;
    int me, gpu, launching;
    uint32_t ready; /* 1: the helper thread runs */
    bool helper, tried;
    uint64_t idle_since_ns; /* nothing in flight since then; 0: something is */
    char path[PATH_ROOM];
    struct stream stream[STREAMS];
};

/* lease.c; all under gate->lock */
bool share_open(struct gate *g);
bool share_announce(struct gate *g, uint64_t now); /* true: until now another workload launched without asking */
bool share_others(const struct gate *g, uint64_t now, bool waiting_only); /* other workloads that want this GPU */
bool lease_mine(const struct gate *g, uint64_t *end_ns);
bool lease_take(struct gate *g, uint64_t now);
uint64_t lease_pause(struct gate *g, uint64_t now, uint64_t most); /* how long to wait before asking again */
bool lease_extend(struct gate *g, uint64_t now); /* true: it is still this process's turn */
void lease_give_back(struct gate *g, uint64_t used_until);
bool gate_try_open(struct gate *g, uint64_t now); /* true: no other workload is active, launches need not ask */
#endif
