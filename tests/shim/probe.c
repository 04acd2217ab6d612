/* A CUDA program as tests need it: `probe ROUTE OP...`. ROUTE says how it finds the driver's functions: linked, soname,
 * NAME.so by path, proc (cuGetProcAddress), proc2 (its _v2), ptsz (the same, per-thread streams). Prints one line per
 * op; sizes take K, M, G. Ops: init ctx N | info | total | fill:KIND:UNIT[:MAX] | alloc:N | free | reset | ready (waits for
 * a line) | fork | exec (itself, with the ops that follow) | close (all descriptors) | launch:US:N | sync | capture */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi.h"

#define FUNCTIONS(X)                                                                                                  \
    X(cuInit, cuInit, 2000, (unsigned)) X(cuDeviceGet, cuDeviceGet, 2000, (int *, int))                               \
    X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, (size_t *, int))                                                   \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (CUcontext *, int))                                   \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, (int))                                              \
    X(cuCtxCreate_v2, cuCtxCreate, 3020, (CUcontext *, unsigned, int)) X(cuCtxDestroy_v2, cuCtxDestroy, 4000, (CUcontext)) \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext)) X(cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t *, size_t *)) \
    X(cuMemAlloc_v2, cuMemAlloc, 3020, (CUdeviceptr *, size_t)) X(cuMemFree_v2, cuMemFree, 3020, (CUdeviceptr))       \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                 \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned))                                  \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, (CUdeviceptr *, size_t, CUstream))                                     \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, (CUdeviceptr, CUstream))                                                 \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020, (CUmemPool *, const struct cu_pool_props *))                           \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (CUmemPool))                                                         \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, (CUdeviceptr *, size_t, CUmemPool, CUstream))          \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
    X(cuMemCreate, cuMemCreate, 10020, (CUmemHandle *, size_t, const struct cu_alloc_prop *, unsigned long long))     \
    X(cuMemMap, cuMemMap, 10020, (CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long))                      \
    X(cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr, size_t)) X(cuMemRelease, cuMemRelease, 10020, (CUmemHandle))       \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, (CUmemHandle *, void *))                       \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, (CUarray *, const struct cu_array3d *))                              \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, (CUarray *, const struct cu_array *))                                    \
    X(cuArrayDestroy, cuArrayDestroy, 2000, (CUarray))                                                                \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, (CUmipmap *, const struct cu_array3d *, unsigned))        \
    X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (CUmipmap))                                             \
    X(cuGraphCreate, cuGraphCreate, 10000, (CUgraph *, unsigned)) X(cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph)) \
    X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040,                                                          \
      (CUgraphNode *, CUgraph, CUgraphNode *, size_t, struct cu_graph_alloc *))                                       \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, (CUgraphExec *, CUgraph, unsigned long long))  \
    X(cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec, CUstream)) X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec)) \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (int)) X(cuStreamCreate, cuStreamCreate, 2000, (CUstream *, unsigned)) \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream)) X(cuCtxSynchronize, cuCtxSynchronize, 2000, (void)) \
    X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (CUstream, int))                                          \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream, CUgraph *))                                           \
    X(cuModuleLoadData, cuModuleLoadData, 2000, (CUmodule *, const void *))                                           \
    X(cuModuleGetFunction, cuModuleGetFunction, 2000, (CUfunction *, CUmodule, const char *))                         \
    X(cuLaunchKernel, cuLaunchKernel, 4000,                                                                           \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))

#define POINTER(name, base, since, args) static CUresult(*p_##name) args;
FUNCTIONS(POINTER)
#ifdef LINKED
#define EXTERN(name, base, since, args) extern CUresult name args;
FUNCTIONS(EXTERN)
#endif


static void find(const char *route) {
#ifdef LINKED
#define TAKE(name, base, since, args) p_##name = name;
    FUNCTIONS(TAKE)
    (void)route;
#else
    bool proc = strncmp(route, "proc", 4) == 0 || strncmp(route, "ptsz", 4) == 0;
    void *driver = dlopen(strchr(route, '/') ? route : "libcuda.so.1", RTLD_NOW);
    if (!driver) {
        printf("no driver: %s\n", dlerror());
        exit(3);
    }
    CUresult (*get)(const char *, void **, int, uint64_t) = NULL;
    CUresult (*get2)(const char *, void **, int, uint64_t, int *) = NULL;
    *(void **)&get = dlsym(driver, "cuGetProcAddress");
    *(void **)&get2 = dlsym(driver, "cuGetProcAddress_v2");
    if (strcmp(route, "proc2") == 0) { /* a second level: asked for by itself */
        void *again = NULL;
        if (get2("cuGetProcAddress", &again, 12000, 0, NULL) == CU_OK) *(void **)&get2 = again;
    }
    bool second = strcmp(route, "proc") != 0;
    uint64_t flags = strcmp(route, "ptsz") == 0 ? PROC_PER_THREAD_STREAM : 0;
#define FIND(name, base, since, args)                                             \
    if (!proc) *(void **)&p_##name = dlsym(driver, #name);                        \
    else if (second) get2(#base, (void **)&p_##name, since, flags, NULL);         \
    else get(#base, (void **)&p_##name, since, flags);                            \
    if (!p_##name) printf("missing %s\n", #name);
    FUNCTIONS(FIND)
#endif
}

static size_t amount(const char *text) {
    char *end;
    size_t n = strtoull(text, &end, 10);
    return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : *end == 'G' ? n << 30 : n;
}

enum { MOST = 200000 };
static struct {
    char kind;
    CUdeviceptr at;
    CUmemHandle handle;
    size_t n;
    void *object;
} held[MOST];
static size_t holding;
static CUmemPool own_pool;
static CUgraph own_graph;

static CUresult take(const char *kind, size_t n) {
    CUresult r = CU_NOT_SUPPORTED;
    CUdeviceptr p = 0;
    size_t pitch;
    void *object = NULL;
    CUmemHandle handle = 0;
    struct cu_array3d a = {.width = n / 4 / 1024, .height = 1024, .format = 0x20, .channels = 1};
    struct cu_alloc_prop prop = {.type = 1, .location = {LOCATION_DEVICE, 0}};
    char mark = 'a';
    if (strcmp(kind, "alloc") == 0) r = p_cuMemAlloc_v2(&p, n);
    else if (strcmp(kind, "managed") == 0) r = p_cuMemAllocManaged(&p, n, 1);
    else if (strcmp(kind, "pitch") == 0) r = p_cuMemAllocPitch_v2(&p, &pitch, 1024, n / 1024, 4);
    else if (strcmp(kind, "async") == 0) mark = 's', r = p_cuMemAllocAsync(&p, n, NULL);
    else if (strcmp(kind, "pool") == 0) {
        struct cu_pool_props props = {.alloc_type = 1, .location = {LOCATION_DEVICE, 0}};
        if (!own_pool && (r = p_cuMemPoolCreate(&own_pool, &props)) != CU_OK) return r;
        mark = 's';
        r = p_cuMemAllocFromPoolAsync(&p, n, own_pool, NULL);
    } else if (strncmp(kind, "vmm", 3) == 0 || strcmp(kind, "host") == 0) {
        mark = 'v';
        if (*kind == 'h') prop.location.type = 2;
        r = p_cuMemCreate(&handle, n, &prop, 0);
        if (r == CU_OK && p_cuMemAddressReserve(&p, n, 0, 0, 0) == CU_OK) p_cuMemMap(p, n, 0, handle, 0);
        if (r == CU_OK && strcmp(kind, "vmmrel") == 0) { /* NCCL's way: released while it is mapped */
            p_cuMemRelease(handle);
            handle = 0;
        } else if (r == CU_OK && strcmp(kind, "vmmretain") == 0) { /* unmapped, held by a second handle only */
            CUmemHandle second;
            p_cuMemRetainAllocationHandle(&second, (void *)p);
            p_cuMemRelease(handle);
            p_cuMemUnmap(p, n);
            handle = second;
            p = 0;
        }
    } else if (strcmp(kind, "array") == 0) mark = 'r', r = p_cuArray3DCreate_v2((CUarray *)&object, &a);
    else if (strcmp(kind, "array2") == 0) {
        struct cu_array flat = {a.width, a.height, a.format, a.channels};
        mark = 'r', r = p_cuArrayCreate_v2((CUarray *)&object, &flat);
    } else if (strcmp(kind, "mipmap") == 0) mark = 'm', r = p_cuMipmappedArrayCreate((CUmipmap *)&object, &a, 2);
    else if (strcmp(kind, "graph") == 0) {
        struct cu_graph_alloc want = {.pool = {.alloc_type = 1, .location = {LOCATION_DEVICE, 0}}, .bytes = n};
        CUgraphNode node;
        p_cuGraphCreate(&own_graph, 0);
        p_cuGraphAddMemAllocNode(&node, own_graph, NULL, 0, &want);
        mark = 'g';
        r = p_cuGraphInstantiateWithFlags((CUgraphExec *)&object, own_graph, 0);
        if (r == CU_OK) r = p_cuGraphLaunch(object, NULL);
        if (r != CU_OK && object) p_cuGraphExecDestroy(object);
        p_cuGraphDestroy(own_graph);
    }
    if (r != CU_OK) return r;
    held[holding].kind = mark, held[holding].at = p, held[holding].handle = handle;
    held[holding].n = n, held[holding].object = object;
    holding++;
    return r;
}

static CUresult give(size_t i) {
    switch (held[i].kind) {
    case 'a': return p_cuMemFree_v2(held[i].at);
    case 's': return p_cuMemFreeAsync(held[i].at, NULL);
    case 'v':
        if (held[i].at) p_cuMemUnmap(held[i].at, held[i].n);
        return held[i].handle ? p_cuMemRelease(held[i].handle) : CU_OK;
    case 'r': return p_cuArrayDestroy(held[i].object);
    case 'm': return p_cuMipmappedArrayDestroy(held[i].object);
    case 'g': return p_cuGraphExecDestroy(held[i].object);
    default: return CU_INVALID_VALUE;
    }
}

static CUcontext context;
static CUfunction kernel(const char *name) {
    CUmodule m;
    CUfunction f;
    if (p_cuModuleLoadData(&m, "image") != CU_OK || p_cuModuleGetFunction(&f, m, name) != CU_OK) exit(4);
    return f;
}

static void op(char *text, char **argv, int i) {
    char *save, *name = strtok_r(text, ":", &save), *a = strtok_r(NULL, ":", &save), *b = strtok_r(NULL, ":", &save),
                *c = strtok_r(NULL, ":", &save);
    size_t x = 0, y = 0;
    int d = 0;
    if (strcmp(name, "init") == 0) {
        printf("init %d\n", p_cuInit(0));
    } else if (strcmp(name, "ctx") == 0) {
        CUresult r = p_cuDevicePrimaryCtxRetain(&context, a ? atoi(a) : 0);
        printf("ctx %d\n", r == CU_OK ? p_cuCtxSetCurrent(context) : r);
    } else if (strcmp(name, "total") == 0) {
        CUresult r = p_cuDeviceTotalMem_v2(&x, a ? atoi(a) : d);
        printf("total %d %zu\n", r, x);
    } else if (strcmp(name, "info") == 0) {
        CUresult r = p_cuMemGetInfo_v2(&x, &y);
        printf("info %d %zu %zu\n", r, x, y);
    } else if (strcmp(name, "fill") == 0) {
        size_t done = 0, unit = amount(b), most = c ? amount(c) : SIZE_MAX;
        CUresult r = CU_OK;
        while (done + unit <= most && holding < MOST && (r = take(a, unit)) == CU_OK) done += unit;
        printf("fill %d %zu\n", r, done);
    } else if (strcmp(name, "alloc") == 0) {
        printf("alloc %d\n", take("alloc", amount(a)));
    } else if (strcmp(name, "free") == 0) {
        CUresult worst = CU_OK;
        while (holding > 0) {
            CUresult r = give(--holding);
            if (r != CU_OK) worst = r;
        }
        if (own_pool) p_cuMemPoolDestroy(own_pool), own_pool = NULL;
        p_cuCtxSynchronize();
        p_cuDeviceGraphMemTrim(0);
        printf("free %d\n", worst);
    } else if (strcmp(name, "reset") == 0) {
        printf("reset %d\n", p_cuDevicePrimaryCtxReset_v2(0));
        holding = 0;
    } else if (strcmp(name, "second") == 0) { /* a context of its own, filled and destroyed */
        CUcontext other;
        CUresult r = p_cuCtxCreate_v2(&other, 0, 0);
        size_t before = holding;
        take("alloc", amount(a));
        holding = before;
        printf("second %d %d\n", r, p_cuCtxDestroy_v2(other));
        p_cuCtxSetCurrent(context);
    } else if (strcmp(name, "ready") == 0) {
        printf("ready\n");
        fflush(stdout);
        char line[16];
        if (!fgets(line, sizeof line, stdin)) exit(5);
    } else if (strcmp(name, "fork") == 0 || strcmp(name, "rawfork") == 0) {
        fflush(stdout);
        pid_t child = *name == 'f' ? fork() : (pid_t)syscall(SYS_clone, 17 /* SIGCHLD */, 0, 0, 0, 0);
        if (child == 0) {
            holding = 0;
            own_pool = NULL;
            printf("child\n");
            return;
        }
        int status;
        waitpid(child, &status, 0);
        printf("forked %d\n", status);
        exit(0);
    } else if (strcmp(name, "exec") == 0) {
        fflush(stdout);
        argv[i] = argv[1];
        argv[i - 1 + 0] = argv[0];
        execv("/proc/self/exe", argv + i - 1);
    } else if (strcmp(name, "close") == 0) {
        for (int fd = 3; fd < 1024; fd++) close(fd);
        printf("close\n");
    } else if (strcmp(name, "launch") == 0) {
        char text_us[32];
        snprintf(text_us, sizeof text_us, "k%sus", a);
        CUfunction f = kernel(text_us);
        CUresult r = CU_OK;
        for (size_t k = amount(b); k > 0 && r == CU_OK; k--) r = p_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        printf("launch %d\n", r);
    } else if (strcmp(name, "capture") == 0) {
        CUstream s;
        CUgraph g;
        CUfunction f = kernel("k10us");
        p_cuStreamCreate(&s, 0);
        CUresult begun = p_cuStreamBeginCapture_v2(s, 0);
        CUresult r = p_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL);
        printf("capture %d %d %d\n", begun, r, p_cuStreamEndCapture(s, &g));
    } else if (strcmp(name, "sync") == 0) {
        printf("sync %d\n", p_cuCtxSynchronize());
    } else {
        printf("unknown op %s\n", name);
        exit(2);
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    find(argv[1]);
    for (int i = 2; i < argc; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s", argv[i]);
        op(text, argv, i);
    }
    return 0;
}
