/* Tables that map pointers and handles to their charges: 64 growing parts with open addressing and a lock each. Memory
 * comes directly from the system, so that no allocator of the program is called. */
#include <string.h>
#include <sys/mman.h>

#include "shim.h"

struct table pointers, arrays, handles, mappings, execs;
enum { FIRST_ROOM = 64 };

static uint64_t mix(uint64_t key) {
    key *= 0x9e3779b97f4a7c15ull;
    return key ^ key >> 29;
}

static struct shard *shard_of(struct table *t, uint64_t key) { return &t->shard[mix(key) % SHARDS]; }
static uint64_t spot(const struct shard *s, uint64_t key) { return mix(key) / SHARDS & (s->room - 1); }

static bool grow(struct shard *s) {
    struct shard wider = {.room = s->room ? s->room * 2 : FIRST_ROOM};
    wider.rows = pages(wider.room * sizeof *wider.rows);
    if (!wider.rows) return false;
    for (uint64_t i = 0; i < s->room; i++) {
        if (!s->rows[i].key) continue;
        uint64_t at = spot(&wider, s->rows[i].key);
        while (wider.rows[at].key) at = (at + 1) & (wider.room - 1);
        wider.rows[at] = s->rows[i];
    }
    if (s->rows) munmap(s->rows, s->room * sizeof *s->rows);
    s->rows = wider.rows;
    s->room = wider.room;
    return true;
}

static void remove_at(struct shard *s, uint64_t hole) {
    for (uint64_t i = (hole + 1) & (s->room - 1); s->rows[i].key; i = (i + 1) & (s->room - 1)) {
        uint64_t home = spot(s, s->rows[i].key);
        if (((i - home) & (s->room - 1)) < ((i - hole) & (s->room - 1))) continue;
        s->rows[hole] = s->rows[i];
        hole = i;
    }
    s->rows[hole].key = 0;
    s->filled--;
}

static struct entry *find(const struct shard *s, uint64_t key) {
    if (!s->room || !key) return NULL;
    for (uint64_t i = spot(s, key); s->rows[i].key; i = (i + 1) & (s->room - 1))
        if (s->rows[i].key == key) return &s->rows[i];
    return NULL;
}

void table_put(struct table *t, struct entry e) {
    struct shard *s = shard_of(t, e.key);
    if (!e.key) return;
    spin_lock(&s->lock);
    struct entry *old = find(s, e.key);
    if (old) {
        *old = e;
    } else if (s->filled * 2u < s->room || grow(s)) { /* without memory for the row its bytes stay charged */
        uint64_t i = spot(s, e.key);
        while (s->rows[i].key) i = (i + 1) & (s->room - 1);
        s->rows[i] = e;
        s->filled++;
    }
    spin_unlock(&s->lock);
}

bool table_get(struct table *t, uint64_t key, struct entry *e) {
    struct shard *s = shard_of(t, key);
    spin_lock(&s->lock);
    const struct entry *found = find(s, key);
    if (found) *e = *found;
    spin_unlock(&s->lock);
    return found != NULL;
}

bool table_take(struct table *t, uint64_t key, struct entry *e) {
    struct shard *s = shard_of(t, key);
    spin_lock(&s->lock);
    struct entry *found = find(s, key);
    if (found) {
        *e = *found;
        remove_at(s, (uint64_t)(found - s->rows));
    }
    spin_unlock(&s->lock);
    return found != NULL;
}

void table_sweep(struct table *t, uint64_t owner, void (*gone)(const struct entry *e)) {
    for (int k = 0; k < SHARDS; k++) {
        struct shard *s = &t->shard[k];
        spin_lock(&s->lock);
        for (uint64_t i = 0; i < s->room;) {
            if (!s->rows[i].key || s->rows[i].owner != owner) {
                i++;
                continue;
            }
            struct entry e = s->rows[i];
            remove_at(s, i); /* another row may have moved here: check this index again */
            gone(&e);
        }
        spin_unlock(&s->lock);
    }
}

bool table_find_range(struct table *t, uint64_t at, struct entry *e) {
    for (int k = 0; k < SHARDS; k++) {
        struct shard *s = &t->shard[k];
        spin_lock(&s->lock);
        for (uint64_t i = 0; i < s->room; i++)
            if (s->rows[i].key && at - s->rows[i].key < s->rows[i].bytes) {
                *e = s->rows[i];
                spin_unlock(&s->lock);
                return true;
            }
        spin_unlock(&s->lock);
    }
    return false;
}
