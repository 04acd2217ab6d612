/* gpu.conf: what the node grants this workload (docs/reference/gpu-conf.md). It is complete before the program starts,
 * and is read again when it changes. Its last line is `end`, so that a truncated file is never accepted. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim.h"

#define FIXED_PATH "/etc/pliant/gpu.conf"
enum { CONFIG_ROOM = 16384 };

struct config config;
static struct mutex reading;
static struct file_id read_id;

static bool number(const char *text, uint64_t *out) {
    uint64_t n = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > (UINT64_MAX - 9) / 10) return false;
        n = n * 10 + (uint64_t)(*text - '0');
    }
    *out = n;
    return true;
}

bool parse_uuid(const char *text, unsigned char *uuid) {
    const char *p = strchr(text, '-'); /* GPU- or MIG- */
    if (!p) return false;
    p++;
    for (int i = 0; i < 32; p++) {
        if (*p == '-' && i) continue;
        int c = *p | 0x20, value = *p >= '0' && *p <= '9' ? *p - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0) return false;
        uuid[i / 2] = (unsigned char)(i % 2 ? uuid[i / 2] | value : value << 4);
        i++;
    }
    return *p == 0;
}

static char *word(char **rest) {
    char *start = *rest + strspn(*rest, " \t");
    char *end = start + strcspn(start, " \t");
    *rest = *end ? end + 1 : end;
    *end = 0;
    return start;
}

static bool copy(char *to, size_t room, const char *from) {
    size_t n = strlen(from);
    if (!n || n >= room) return false;
    memcpy(to, from, n + 1);
    return true;
}

static bool share(struct share *g, char *rest) {
    uint64_t n;
    bool limited = false;
    *g = (struct share){.weight = 1, .policy = POLICY_NONE, .slice_us = 30000};
    if (!copy(g->name, sizeof g->name, word(&rest)) || !parse_uuid(g->name, g->uuid)) return false;
    for (char *w = word(&rest); *w; w = word(&rest)) {
        char *value = strchr(w, '=');
        if (!value) return false;
        *value++ = 0;
        if (strcmp(w, "limit") == 0) {
            if (!number(value, &g->limit) || !g->limit) return false;
            limited = true;
        } else if (strcmp(w, "request") == 0) {
            if (!number(value, &g->request)) return false;
        } else if (strcmp(w, "weight") == 0) {
            if (!number(value, &n) || n < 1 || n > 1000) return false;
            g->weight = (uint32_t)n;
        } else if (strcmp(w, "slice_us") == 0) {
            if (!number(value, &n) || n < 1000 || n > 1000000) return false;
            g->slice_us = (uint32_t)n;
        } else if (strcmp(w, "policy") == 0) {
            if (strcmp(value, "fair") == 0) g->policy = POLICY_FAIR;
            else if (strcmp(value, "strict") == 0) g->policy = POLICY_STRICT;
            else if (strcmp(value, "none") != 0) return false;
        } else if (strcmp(w, "share") == 0 && !copy(g->file, sizeof g->file, value)) {
            return false;
        } /* keys of later versions are ignored */
    }
    return limited;
}

bool config_parse(struct config *to, char *text, size_t n) {
    bool begun = false, ended = false;
    uint64_t said = 0;
    int line = 0;
    to->gpus = 0;
    if (memchr(text, 0, n)) {
        snprintf(to->why, sizeof to->why, "it is no text");
        return false;
    }
    for (char *p = text, *next; p && p < text + n && !ended; p = next) {
        next = memchr(p, '\n', (size_t)(text + n - p));
        if (!next) break; /* a line without its end does not count */
        *next++ = 0;
        line++;
        char *rest = p, *key = word(&rest);
        bool good = true;
        if (!begun) {
            good = begun = strcmp(key, "pliant-gpu") == 0 && strcmp(word(&rest), "1") == 0;
        } else if (strcmp(key, "workload") == 0) {
            good = copy(to->workload, sizeof to->workload, word(&rest));
        } else if (strcmp(key, "ledger") == 0) {
            good = copy(to->ledger, sizeof to->ledger, word(&rest));
        } else if (strcmp(key, "epoch") == 0) {
            good = number(word(&rest), &to->epoch);
        } else if (strcmp(key, "gpu") == 0) {
            good = to->gpus < MAX_GPUS && share(&to->gpu[to->gpus], rest);
            to->gpus += good;
        } else if (strcmp(key, "end") == 0) {
            good = ended = number(word(&rest), &said) && said == (uint64_t)to->gpus;
        }
        if (!good) {
            snprintf(to->why, sizeof to->why, "line %d makes no sense", line);
            return false;
        }
    }
    if (!ended || !to->ledger[0] || !to->workload[0]) {
        snprintf(to->why, sizeof to->why, "it is %s", ended ? "without ledger or workload" : n ? "cut short" : "empty");
        return false;
    }
    return true;
}

static void adopt(const struct config *fresh) { /* readers take no lock: each word is stored atomically */
    for (int i = 0; i < config.gpus; i++) {
        int k = 0;
        while (k < fresh->gpus && memcmp(fresh->gpu[k].uuid, config.gpu[i].uuid, 16) != 0) k++;
        const struct share *s = k < fresh->gpus ? &fresh->gpu[k] : NULL;
        __atomic_store_n(&config.gpu[i].limit, s ? s->limit : 0, __ATOMIC_RELAXED); /* no longer granted */
        __atomic_store_n(&config.gpu[i].request, s ? s->request : 0, __ATOMIC_RELAXED);
        if (!s) continue;
        __atomic_store_n(&config.gpu[i].weight, s->weight, __ATOMIC_RELAXED);
        __atomic_store_n(&config.gpu[i].policy, s->policy, __ATOMIC_RELAXED);
        __atomic_store_n(&config.gpu[i].slice_us, s->slice_us, __ATOMIC_RELAXED);
    }
    for (int k = 0; k < fresh->gpus; k++) {
        if (share_of_uuid(fresh->gpu[k].uuid) >= 0 || config.gpus == MAX_GPUS) continue;
        config.gpu[config.gpus] = fresh->gpu[k];
        __atomic_store_n(&config.gpus, config.gpus + 1, __ATOMIC_RELEASE);
    }
    if (!config.good) {
        memcpy(config.workload, fresh->workload, sizeof config.workload);
        memcpy(config.ledger, fresh->ledger, sizeof config.ledger);
        __atomic_store_n(&config.good, true, __ATOMIC_RELEASE);
    }
    config.epoch = fresh->epoch;
}

static void choose_path(void) {
    struct file_id id;
    const char *named = getenv("PLIANT_GPU_CONF");
    if (file_id(FIXED_PATH, &id) || !named) named = FIXED_PATH; /* in a container the environment is ignored */
    if (!copy(config.path, sizeof config.path, named)) memcpy(config.path, FIXED_PATH, sizeof FIXED_PATH);
}

/* Under the lock. */
static bool read_it(void) {
    static char text[CONFIG_ROOM];
    static struct config fresh;
    static uint64_t said;
    if (!config.path[0]) choose_path();
    memset(&fresh, 0, sizeof fresh);
    struct file_id id = {0};
    file_id(config.path, &id);
    int fd = open(config.path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    if (fd < 0) {
        snprintf(fresh.why, sizeof fresh.why, "%s", errno == ENOENT ? "it is missing" : "it cannot be read");
    } else {
        for (ssize_t more; n < sizeof text && (more = read(fd, text + n, sizeof text - n)) > 0;) n += (size_t)more;
        close(fd);
    }
    bool good = fd >= 0 && config_parse(&fresh, text, n);
    if (good && config.good && strcmp(fresh.workload, config.workload) != 0) {
        good = false;
        snprintf(fresh.why, sizeof fresh.why, "it is now another workload's");
    }
    read_id = id;
    if (good) adopt(&fresh);
    else if (say_now(&said))
        say("%s in %s: %s", config.good ? "the limits of before stay in force, something is wrong" : "no GPU memory for this program, something is wrong",
            config.path, fresh.why);
    memcpy(config.why, fresh.why, sizeof config.why);
    return good;
}

bool config_load(void) {
    if (__atomic_load_n(&config.good, __ATOMIC_ACQUIRE)) return true;
    lock(&reading);
    bool good = config.good || read_it();
    unlock(&reading);
    return good;
}

void config_forget(void) { reading.word = 0; }

void config_check(bool surely) {
    struct file_id id = {0};
    if (!config_load()) return;
    lock(&reading);
    file_id(config.path, &id);
    if (surely || memcmp(&id, &read_id, sizeof id) != 0) read_it();
    unlock(&reading);
}

int share_of_uuid(const unsigned char *uuid) {
    int n = __atomic_load_n(&config.gpus, __ATOMIC_ACQUIRE);
    for (int i = 0; i < n; i++)
        if (memcmp(config.gpu[i].uuid, uuid, 16) == 0) return i;
    return -1;
}
