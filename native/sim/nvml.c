/* The simulated libnvidia-ml: the functions that monitoring programs call. All others that nvidia-ml-py knows return
 * NOT_SUPPORTED (nvml_rest.c). Pids are those of the machine; memory is the card's own count. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "../abi.h"
#include "card.h"

#define API __attribute__((visibility("default")))
static int started;
static bool up(void) { return started && card_attach(false); } /* attaches again in the child of a fork */

struct nvmlPci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

static struct card_gpu *gpu_of(nvmlDevice d) { /* null if d is not one of our handles */
    struct card_gpu *g = (struct card_gpu *)(void *)d;
    return up() && g >= card_gpus() && g < card_gpus() + card->gpus ? g : NULL;
}
static int number(const struct card_gpu *g) { return (int)(g - card_gpus()); }
#define GPU                           \
    struct card_gpu *g = gpu_of(d);   \
    if (!up()) return NVML_UNINITIALIZED; \
    if (!g) return NVML_INVALID_ARGUMENT

API nvmlReturn nvmlInit_v2(void) {
    if (!card_attach(false)) return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
    started++;
    return NVML_OK;
}
API nvmlReturn nvmlInit(void) { return nvmlInit_v2(); }
API nvmlReturn nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return nvmlInit_v2();
}
API nvmlReturn nvmlShutdown(void) {
    if (!started) return NVML_UNINITIALIZED;
    started--;
    return NVML_OK;
}
API const char *nvmlErrorString(nvmlReturn r) {
    switch (r) {
    case NVML_OK: return "Success";
    case NVML_UNINITIALIZED: return "Uninitialized";
    case NVML_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_NOT_SUPPORTED: return "Not Supported";
    case NVML_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_NOT_FOUND: return "Not Found";
    case NVML_INSUFFICIENT_SIZE: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case NVML_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

static nvmlReturn text(char *to, unsigned room, const char *from) {
    if (!to || strlen(from) >= room) return to ? NVML_INSUFFICIENT_SIZE : NVML_INVALID_ARGUMENT;
    strcpy(to, from);
    return NVML_OK;
}

API nvmlReturn nvmlSystemGetDriverVersion(char *to, unsigned n) { return text(to, n, "580.00.00"); }
API nvmlReturn nvmlSystemGetNVMLVersion(char *to, unsigned n) { return text(to, n, "13.580.00.00"); }
API nvmlReturn nvmlSystemGetCudaDriverVersion_v2(int *v) { return *v = 13000, NVML_OK; }
API nvmlReturn nvmlSystemGetCudaDriverVersion(int *v) { return *v = 13000, NVML_OK; }
API nvmlReturn nvmlSystemGetProcessName(unsigned pid, char *to, unsigned n) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "re");
    if (!f) return NVML_NOT_FOUND;
    if (!fgets(line, sizeof line, f)) line[0] = 0;
    fclose(f);
    snprintf(to, n, "%s", line); /* truncated to n, as by the real one */
    return NVML_OK;
}

API nvmlReturn nvmlDeviceGetCount_v2(unsigned *n) {
    if (!up()) return NVML_UNINITIALIZED;
    *n = card->gpus;
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetCount(unsigned *n) { return nvmlDeviceGetCount_v2(n); }
API nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice *d) {
    if (!up()) return NVML_UNINITIALIZED;
    if (i >= card->gpus) return NVML_INVALID_ARGUMENT;
    *d = (nvmlDevice)(void *)&card_gpus()[i];
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice *d) { return nvmlDeviceGetHandleByIndex_v2(i, d); }
API nvmlReturn nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *d) {
    if (!up()) return NVML_UNINITIALIZED;
    for (unsigned i = 0; i < card->gpus; i++)
        if (strcmp(card_gpus()[i].uuid, uuid) == 0) return nvmlDeviceGetHandleByIndex_v2(i, d);
    return NVML_NOT_FOUND;
}
static void bus_id(char *to, size_t n, const struct card_gpu *g) { snprintf(to, n, "00000000:%02X:00.0", number(g) + 1); }
API nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice *d) {
    char own[32];
    if (!up()) return NVML_UNINITIALIZED;
    for (unsigned i = 0; i < card->gpus; i++) {
        bus_id(own, sizeof own, &card_gpus()[i]);
        if (strcasecmp(own, id) == 0 || strcasecmp(own + 4, id) == 0) return nvmlDeviceGetHandleByIndex_v2(i, d);
    }
    return NVML_NOT_FOUND;
}
API nvmlReturn nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice *d) { return nvmlDeviceGetHandleByPciBusId_v2(id, d); }

API nvmlReturn nvmlDeviceGetIndex(nvmlDevice d, unsigned *i) {
    GPU;
    *i = (unsigned)number(g);
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetMinorNumber(nvmlDevice d, unsigned *i) { return nvmlDeviceGetIndex(d, i); }
API nvmlReturn nvmlDeviceGetName(nvmlDevice d, char *to, unsigned n) {
    GPU;
    return text(to, n, g->name);
}
API nvmlReturn nvmlDeviceGetUUID(nvmlDevice d, char *to, unsigned n) {
    GPU;
    return text(to, n, g->uuid);
}
API nvmlReturn nvmlDeviceGetPciInfo_v3(nvmlDevice d, struct nvmlPci *p) {
    GPU;
    *p = (struct nvmlPci){.bus = (unsigned)number(g) + 1};
    bus_id(p->id, sizeof p->id, g);
    snprintf(p->legacy, sizeof p->legacy, "%s", p->id + 4);
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetPciInfo_v2(nvmlDevice d, struct nvmlPci *p) { return nvmlDeviceGetPciInfo_v3(d, p); }
API nvmlReturn nvmlDeviceGetPciInfo(nvmlDevice d, struct nvmlPci *p) { return nvmlDeviceGetPciInfo_v3(d, p); }

API nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice d, struct nvml_memory2 *m) {
    GPU;
    if (m->version != NVML_MEMORY2) return NVML_ARGUMENT_VERSION_MISMATCH;
    card_lock();
    card_reap();
    m->total = g->total, m->reserved = g->reserved, m->used = g->used, m->free = g->total - g->reserved - g->used;
    card_unlock();
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice d, struct nvml_memory *m) {
    struct nvml_memory2 all = {.version = NVML_MEMORY2};
    nvmlReturn r = nvmlDeviceGetMemoryInfo_v2(d, &all);
    if (r == NVML_OK) *m = (struct nvml_memory){all.total, all.free, all.used + all.reserved};
    return r;
}
API nvmlReturn nvmlDeviceGetBAR1MemoryInfo(nvmlDevice d, unsigned long long *three) {
    GPU;
    three[0] = three[1] = 256u << 20, three[2] = 0;
    return NVML_OK;
}

static nvmlReturn processes(nvmlDevice d, unsigned *n, void *rows, bool wide) {
    GPU;
    unsigned found = 0;
    card_lock();
    card_reap();
    for (int i = 0; i < MAX_PROCS; i++) {
        const struct card_proc *p = &card_procs()[i];
        if (!p->pid || !(p->contexts >> number(g) & 1 || p->used[number(g)])) continue;
        if (rows && found < *n && wide)
            ((struct nvml_process *)rows)[found] = (struct nvml_process){p->pid, p->used[number(g)], ~0u, ~0u};
        else if (rows && found < *n)
            ((struct nvml_process1 *)rows)[found] = (struct nvml_process1){p->pid, p->used[number(g)]};
        found++;
    }
    card_unlock();
    nvmlReturn r = found > *n ? NVML_INSUFFICIENT_SIZE : NVML_OK;
    *n = found;
    return r;
}
static nvmlReturn none(nvmlDevice d, unsigned *n) {
    GPU;
    *n = 0;
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice d, unsigned *n, void *rows) { return processes(d, n, rows, true); }
API nvmlReturn nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice d, unsigned *n, void *rows) { return processes(d, n, rows, true); }
API nvmlReturn nvmlDeviceGetComputeRunningProcesses(nvmlDevice d, unsigned *n, void *rows) { return processes(d, n, rows, false); }
#define NONE(name)                                            \
    API nvmlReturn name(nvmlDevice d, unsigned *n, void *rows); \
    API nvmlReturn name(nvmlDevice d, unsigned *n, void *rows) { return (void)rows, none(d, n); }
NONE(nvmlDeviceGetGraphicsRunningProcesses)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3)
NONE(nvmlDeviceGetMPSComputeRunningProcesses)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3)

struct sample {
    unsigned pid;
    unsigned long long when;
    unsigned sm, memory, encoder, decoder;
};
API nvmlReturn nvmlDeviceGetProcessUtilization(nvmlDevice d, struct sample *rows, unsigned *n, unsigned long long since) {
    GPU;
    unsigned found = 0;
    (void)since;
    card_lock();
    card_reap();
    for (int i = 0; i < MAX_PROCS; i++) {
        const struct card_proc *p = &card_procs()[i];
        if (!p->pid || !(p->contexts >> number(g) & 1)) continue;
        if (rows && found < *n) rows[found] = (struct sample){.pid = p->pid, .when = sim_now() / 1000, .sm = g->busy_until > sim_now() ? 100 : 0};
        found++;
    }
    card_unlock();
    nvmlReturn r = found > *n ? NVML_INSUFFICIENT_SIZE : NVML_OK;
    *n = found;
    return r;
}

API nvmlReturn nvmlDeviceGetUtilizationRates(nvmlDevice d, unsigned *two) {
    GPU;
    two[0] = g->busy_until > sim_now() ? 100 : 0;
    two[1] = 0;
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetTemperature(nvmlDevice d, int sensor, unsigned *t) {
    GPU;
    (void)sensor;
    *t = 35;
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetPowerUsage(nvmlDevice d, unsigned *mw) {
    GPU;
    *mw = 50000;
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetEnforcedPowerLimit(nvmlDevice d, unsigned *mw) {
    GPU;
    *mw = 300000;
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetPerformanceState(nvmlDevice d, int *p) {
    GPU;
    *p = 0;
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetComputeMode(nvmlDevice d, int *mode) {
    GPU;
    *mode = 0;
    return NVML_OK;
}
API nvmlReturn nvmlDeviceGetPersistenceMode(nvmlDevice d, int *mode) { return nvmlDeviceGetComputeMode(d, mode); }
API nvmlReturn nvmlDeviceGetDisplayActive(nvmlDevice d, int *mode) { return nvmlDeviceGetComputeMode(d, mode); }
API nvmlReturn nvmlDeviceGetCudaComputeCapability(nvmlDevice d, int *major, int *minor) {
    GPU;
    *major = 9, *minor = 0;
    return NVML_OK;
}
