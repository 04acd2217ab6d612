/* Replaces the driver's functions by ours: by exported name for dlsym, by address for cuGetProcAddress. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "shim.h"

struct reals real;
uint64_t (*sim_now)(void);
void (*sim_wait)(const uint32_t *, uint32_t, uint64_t);
void (*sim_wake)(const uint32_t *);
void *pliant_choose(void *handle, const char *name, const char *version);
API void *dlsym(void *, const char *);
API void *dlvsym(void *, const char *, const char *);

struct row {
    const char *name, *base;
    int since, variant;
    void **real, *hook; /* hook null: only called */
};
#define ROW(name, base, since, variant, args) {#name, #base, since, variant, (void **)(void *)&real.name, (void *)name},
#define ROW_NEEDED(name, base, since, variant, args) {#name, #base, since, variant, (void **)(void *)&real.name, NULL},
static const struct row cuda_rows[] = {HOOKS(ROW) NEEDED(ROW_NEEDED)};
static const struct row nvml_rows[] = {NVML_HOOKS(ROW) NVML_NEEDED(ROW_NEEDED)};
enum { CUDA_ROWS = sizeof cuda_rows / sizeof *cuda_rows, NVML_ROWS = sizeof nvml_rows / sizeof *nvml_rows, BUCKETS = 512 };

static uint16_t bucket[BUCKETS]; /* hash of a name -> 1 + its number in cuda_rows, then nvml_rows */
static struct mutex attaching;
uint32_t cuda_ready;
static uint32_t nvml_ready, hashed;

static const struct row *numbered(unsigned i) { return i < CUDA_ROWS ? &cuda_rows[i] : &nvml_rows[i - CUDA_ROWS]; }

static unsigned hash(const char *name) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return (h ^ h >> 15) % BUCKETS;
}

static const struct row *hooked(const char *name) {
    if (!__atomic_load_n(&hashed, __ATOMIC_ACQUIRE)) {
        lock(&attaching);
        for (unsigned i = 0; !hashed && i < CUDA_ROWS + NVML_ROWS; i++) {
            unsigned at = hash(numbered(i)->name);
            while (bucket[at]) at = (at + 1) % BUCKETS;
            bucket[at] = (uint16_t)(i + 1);
        }
        __atomic_store_n(&hashed, 1, __ATOMIC_RELEASE);
        unlock(&attaching);
    }
    for (unsigned at = hash(name); bucket[at]; at = (at + 1) % BUCKETS) {
        const struct row *r = numbered(bucket[at] - 1u);
        if (strcmp(r->name, name) == 0) return r->hook ? r : NULL;
    }
    return NULL;
}

static void fill(const struct row *rows, size_t n, void *handle) {
    for (size_t i = 0; i < n; i++)
        if (!*rows[i].real) *rows[i].real = pliant_real_dlsym(handle, rows[i].name);
}

static bool is_driver(const void *address, const char *stem) {
    char room[64];
    return strncmp(soname_at(address, room, sizeof room), stem, strlen(stem)) == 0;
}

static bool find_cuda(void *handle) {
    if (__atomic_load_n(&cuda_ready, __ATOMIC_ACQUIRE)) return true;
    if (!handle) handle = real_open("libcuda.so.1", true);
    if (!handle) return forget_error(), false;
    lock(&attaching);
    if (!cuda_ready) {
        fill(cuda_rows, CUDA_ROWS, handle);
        *(void **)&sim_wait = pliant_real_dlsym(handle, "pliantSimWait");
        *(void **)&sim_wake = pliant_real_dlsym(handle, "pliantSimWake");
        *(void **)&sim_now = pliant_real_dlsym(handle, "pliantSimNow");
        __atomic_store_n(&cuda_ready, real.cuInit != NULL, __ATOMIC_RELEASE);
    }
    unlock(&attaching);
    forget_error();
    return cuda_ready;
}

static bool find_nvml(void *handle) {
    if (__atomic_load_n(&nvml_ready, __ATOMIC_ACQUIRE)) return true;
    if (!handle) handle = real_open("libnvidia-ml.so.1", true);
    if (!handle) return forget_error(), false;
    lock(&attaching);
    fill(nvml_rows, NVML_ROWS, handle);
    __atomic_store_n(&nvml_ready, real.nvmlInit_v2 != NULL, __ATOMIC_RELEASE);
    unlock(&attaching);
    forget_error();
    return nvml_ready;
}

bool cuda_find(void) { return find_cuda(NULL); }

bool nvml_here(bool load) {
    if (find_nvml(NULL) || !load) return nvml_ready;
    void *handle = real_open("libnvidia-ml.so.1", false);
    forget_error();
    return handle && find_nvml(handle);
}

void *pliant_choose(void *handle, const char *name, const char *version) {
    void *const pass = (void *)1;
    if (!started()) return pass; /* the real dlsym is found first */
    bool special = handle == RTLD_DEFAULT || handle == RTLD_NEXT;
    if (name[0] == 'd') { /* a program that looks up dlsym itself would bypass us; another preload (RTLD_NEXT) may */
        bool s = strcmp(name, "dlsym") == 0, v = strcmp(name, "dlvsym") == 0;
        if (special || !(s || v)) return pass;
        void *found = version ? pliant_real_dlvsym(handle, name, version) : pliant_real_dlsym(handle, name);
        if (s && found == (void *)pliant_real_dlsym) return (void *)dlsym;
        if (v && found == (void *)pliant_real_dlvsym) return (void *)dlvsym;
        return found;
    }
    const struct row *r = name[0] == 'c' && !(name[2] >= 'A' && name[2] <= 'Z') ? NULL : hooked(name);
    if (!r) return pass;
    bool cuda = name[0] == 'c';
    if (special) { /* the next object after the caller is the driver, which our hook calls */
        if (!(cuda ? find_cuda(NULL) : find_nvml(NULL)) || !*r->real) return pass;
        return r->hook;
    }
    void *found = version ? pliant_real_dlvsym(handle, name, version) : pliant_real_dlsym(handle, name);
    if (!found || found == r->hook) return found;
    if (found != *r->real && !is_driver(found, cuda ? "libcuda.so" : "libnvidia-ml.so")) return found; /* no driver's */
    if (!(cuda ? find_cuda(handle) : find_nvml(handle)) || !*r->real) return found;
    return r->hook;
}

/* ---- cuGetProcAddress ------------------------------------------------------------------------------------------- */

static bool matters(const char *name) { /* may take memory or the GPU: an unknown one is logged */
    if (strncmp(name, "cuMemAllocHost", 14) == 0) return false; /* memory of the host */
    return strncmp(name, "cuMemAlloc", 10) == 0 || strncmp(name, "cuMemCreate", 11) == 0 ||
           strncmp(name, "cuLaunchK", 9) == 0 || strncmp(name, "cuLaunchC", 9) == 0 || strncmp(name, "cuGraphLaunch", 13) == 0;
}

static bool newer_export(const char *base, const void *address) {
    char name[96];
    for (int version = 2; version < 10; version++)
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s_v%d%s", base, version, k ? "_ptsz" : "");
            void *handle = real_open("libcuda.so.1", true);
            if (handle && pliant_real_dlsym(handle, name) == address) return true;
        }
    forget_error();
    return false;
}

static void *replace(const char *name, void *found, int version, uint64_t flags) {
    static uint64_t said;
    const struct row *best = NULL;
    for (size_t i = 0; i < CUDA_ROWS; i++)
        if (cuda_rows[i].hook && *cuda_rows[i].real == found) return cuda_rows[i].hook;
    for (size_t i = 0; i < CUDA_ROWS; i++) {
        const struct row *r = &cuda_rows[i];
        if (!r->hook || strcmp(r->base, name) != 0 || r->since > version || !*r->real) continue;
        if (r->variant && !(flags & PROC_PER_THREAD_STREAM)) continue;
        if (!best || r->since > best->since || (r->since == best->since && r->variant > best->variant)) best = r;
    }
    if (best && !newer_export(name, found)) return best->hook; /* an address that no export has: chosen by version */
    if ((best || matters(name)) && say_now(&said))
        say("this driver has an entry point that this version of Pliant does not know: %s for CUDA %d; it is passed on", name, version);
    return found;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
    if (!cuda_here() || !real.cuGetProcAddress_v2) return CU_NOT_SUPPORTED;
    int r = real.cuGetProcAddress_v2(name, out, version, flags, status);
    if (r == CU_OK && out && *out) *out = replace(name, *out, version, flags);
    return r;
}

int cuGetProcAddress_v2_ptsz(const char *name, void **out, int version, uint64_t flags, int *status) {
    if (!cuda_here() || !real.cuGetProcAddress_v2_ptsz) return CU_NOT_SUPPORTED;
    int r = real.cuGetProcAddress_v2_ptsz(name, out, version, flags, status);
    if (r == CU_OK && out && *out) *out = replace(name, *out, version, flags | PROC_PER_THREAD_STREAM);
    return r;
}

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
    if (!cuda_here() || !real.cuGetProcAddress) return CU_NOT_SUPPORTED;
    int r = real.cuGetProcAddress(name, out, version, flags);
    if (r == CU_OK && out && *out) *out = replace(name, *out, version, flags);
    return r;
}
