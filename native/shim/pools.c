/* Memory that the driver reserves: pools of stream-ordered allocation, and graphs. The charge is what the driver holds
 * (RESERVED_MEM_CURRENT), not what the program has requested; both grow in pieces. */
#include "shim.h"

enum { POOLS = 64, PIECE = 32 << 20, DEEPEST = 4 };
struct pool {
    CUmemPool handle;
    int gpu;          /* -1: memory of the host, or of another process */
    uint64_t charged; /* bytes, in the class of pools */
    bool orphan;      /* destroyed with allocations still alive: `charged` shrinks with them */
};
static struct pool pools[POOLS];
static struct mutex pooling;
static uint64_t graph_charged[MAX_GPUS];
static CUdevice graph_device[MAX_GPUS]; /* 1 + ordinal; 0: no graph has allocated there */
static uint32_t allocating_graphs;      /* nonzero once a graph with allocations was instantiated */
uint32_t pools_dirty;

void pools_forget(void) {
    pooling.word = 0;
    for (int i = 0; i < POOLS; i++) pools[i] = (struct pool){.gpu = -1};
    for (int i = 0; i < MAX_GPUS; i++) graph_charged[i] = 0, graph_device[i] = 0;
}

static uint64_t attribute(CUmemPool pool, int which, uint64_t otherwise) {
    uint64_t value = 0;
    return real.cuMemPoolGetAttribute && real.cuMemPoolGetAttribute(pool, which, &value) == CU_OK ? value : otherwise;
}

/* Under the lock. */
static struct pool *known(CUmemPool handle, int gpu, bool make) {
    struct pool *room = NULL;
    for (int i = 0; i < POOLS; i++) {
        if (pools[i].handle == handle && !pools[i].orphan) return &pools[i];
        if (!room && !pools[i].handle) room = &pools[i];
    }
    if (!make || !room) return NULL;
    *room = (struct pool){.handle = handle, .gpu = gpu};
    return room;
}

static void settle(struct pool *p) { /* under the lock: charges what the driver holds now */
    if (p->gpu < 0 || p->orphan) return;
    uint64_t now = attribute(p->handle, POOL_RESERVED, 0);
    charge(p->gpu, CLASS_POOL, (int64_t)(now - p->charged));
    p->charged = now;
}

static void settle_graphs(int gpu) {
    uint64_t now = 0;
    if (!graph_device[gpu] || !real.cuDeviceGetGraphMemAttribute) return;
    if (real.cuDeviceGetGraphMemAttribute(graph_device[gpu] - 1, GRAPH_RESERVED, &now) != CU_OK) return;
    charge(gpu, CLASS_GRAPH, (int64_t)(now - graph_charged[gpu]));
    graph_charged[gpu] = now;
}

void pools_refresh(void) {
    lock(&pooling);
    __atomic_store_n(&pools_dirty, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < POOLS; i++)
        if (pools[i].handle) settle(&pools[i]);
    for (int i = 0; i < MAX_GPUS; i++) settle_graphs(i);
    unlock(&pooling);
}

static bool capturing(CUstream s, bool per_thread) {
    int status = 0;
    int (*ask)(CUstream, int *) = per_thread && real.cuStreamIsCapturing_ptsz ? real.cuStreamIsCapturing_ptsz : real.cuStreamIsCapturing;
    return ask && ask(s, &status) == CU_OK && status != 0;
}

/* Reserves `bytes`, rounded up to pieces, as *taken, which the caller releases. True also if `unused` bytes suffice. */
static bool make_room(int gpu, enum class kind, uint64_t bytes, uint64_t unused, uint64_t *taken) {
    if (bytes > INT64_MAX - PIECE) return false;
    *taken = (bytes + PIECE - 1) / PIECE * PIECE; /* it may grow by whole pieces */
    if (reserve(gpu, kind, *taken)) return true;
    *taken = 0;
    return unused >= bytes;
}

static int from_pool(CUmemPool handle, CUdeviceptr *out, size_t bytes, CUstream s, bool per_thread, int (*call)(CUmemPool, CUdeviceptr *, size_t, CUstream)) {
    struct where w;
    if (!where_now(&w)) return call(handle, out, bytes, s);
    lock(&pooling);
    if (!handle && (!real.cuDeviceGetMemPool || real.cuDeviceGetMemPool(&handle, w.device) != CU_OK)) handle = NULL;
    struct pool *p = handle ? known(handle, w.gpu, true) : NULL;
    unlock(&pooling);
    int gpu = p ? p->gpu : w.gpu;
    if (w.gpu < 0) return not_ours(w.device);
    if (gpu < 0) return call(handle, out, bytes, s);
    uint64_t taken;
    if (!make_room(gpu, CLASS_POOL, bytes, 0, &taken)) { /* only now the fill level of the pool matters */
        uint64_t reserved = p ? attribute(handle, POOL_RESERVED, 0) : 0, used = p ? attribute(handle, POOL_USED, UINT64_MAX) : 0;
        bool node = capturing(s, per_thread); /* becomes part of a graph, takes nothing now */
        if (!node && (used > reserved || reserved - used < bytes)) return refuse(gpu, bytes);
    }
    int r = call(handle, out, bytes, s);
    lock(&pooling);
    if (p) settle(p);
    if (taken) release(gpu, CLASS_POOL, taken);
    bool over = r == CU_OK && p && over_limit(gpu);
    unlock(&pooling);
    if (over) { /* the driver's reserve grew over the limit: undo it */
        if (per_thread) real.cuMemFreeAsync_ptsz(*out, s);
        else real.cuMemFreeAsync(*out, s);
        if (real.cuMemPoolTrimTo) real.cuMemPoolTrimTo(handle, 0);
        pools_refresh();
        return refuse(gpu, bytes);
    }
    if (r == CU_OK && p) table_put(&pointers, (struct entry){*out, bytes, (uintptr_t)handle, gpu, CLASS_POOL});
    return r == CU_OK ? r : card_full(gpu, bytes, r);
}

#define START(name)                                                        \
    if (!cuda_here() || !real.name) return CU_NOT_SUPPORTED;               \
    if (!attached()) return CU_OUT_OF_MEMORY

static int plain(CUmemPool p, CUdeviceptr *out, size_t n, CUstream s) { return (void)p, real.cuMemAllocAsync(out, n, s); }
static int plain_ptsz(CUmemPool p, CUdeviceptr *out, size_t n, CUstream s) { return (void)p, real.cuMemAllocAsync_ptsz(out, n, s); }
static int named(CUmemPool p, CUdeviceptr *out, size_t n, CUstream s) { return real.cuMemAllocFromPoolAsync(out, n, p, s); }
static int named_ptsz(CUmemPool p, CUdeviceptr *out, size_t n, CUstream s) { return real.cuMemAllocFromPoolAsync_ptsz(out, n, p, s); }

int cuMemAllocAsync(CUdeviceptr *out, size_t n, CUstream s) {
    START(cuMemAllocAsync);
    return from_pool(NULL, out, n, s, false, plain);
}
int cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t n, CUstream s) {
    START(cuMemAllocAsync_ptsz);
    return from_pool(NULL, out, n, s, true, plain_ptsz);
}
int cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t n, CUmemPool p, CUstream s) {
    START(cuMemAllocFromPoolAsync);
    return from_pool(p, out, n, s, false, named);
}
int cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t n, CUmemPool p, CUstream s) {
    START(cuMemAllocFromPoolAsync_ptsz);
    return from_pool(p, out, n, s, true, named_ptsz);
}

bool pool_pointer_freed(const struct entry *e) { /* true: nothing else to release */
    lock(&pooling);
    for (int i = 0; i < POOLS; i++) {
        if (!pools[i].orphan || (uintptr_t)pools[i].handle != e->owner) continue;
        uint64_t n = (e->bytes + 511) / 512 * 512;
        if (n > pools[i].charged) n = pools[i].charged;
        pools[i].charged -= n;
        release(e->gpu, CLASS_POOL, n);
        if (!pools[i].charged) pools[i] = (struct pool){.gpu = -1};
        break;
    }
    unlock(&pooling);
    __atomic_store_n(&pools_dirty, 1, __ATOMIC_RELAXED);
    return true;
}

int cuMemPoolCreate(CUmemPool *out, const struct cu_pool_props *props) {
    START(cuMemPoolCreate);
    int r = real.cuMemPoolCreate(out, props);
    if (r != CU_OK) return r;
    lock(&pooling);
    known(*out, props->location.type == LOCATION_DEVICE ? gpu_of_device(props->location.id) : -1, true);
    unlock(&pooling);
    return r;
}
int cuMemPoolImportFromShareableHandle(CUmemPool *out, void *handle, int type, unsigned long long flags) {
    START(cuMemPoolImportFromShareableHandle);
    int r = real.cuMemPoolImportFromShareableHandle(out, handle, type, flags);
    if (r != CU_OK) return r;
    lock(&pooling);
    known(*out, -1, true); /* charged to its owner */
    unlock(&pooling);
    return r;
}
int cuMemPoolDestroy(CUmemPool handle) {
    START(cuMemPoolDestroy);
    lock(&pooling);
    struct pool *p = known(handle, -1, false);
    uint64_t alive = p && p->gpu >= 0 ? attribute(handle, POOL_USED, 0) : 0;
    int r = real.cuMemPoolDestroy(handle);
    if (r == CU_OK && p && p->gpu >= 0) {
        charge(p->gpu, CLASS_POOL, (int64_t)(alive - p->charged));
        p->charged = alive;
        p->orphan = true;
    }
    if (r == CU_OK && p && !p->charged) *p = (struct pool){.gpu = -1};
    unlock(&pooling);
    return r;
}
int cuMemPoolTrimTo(CUmemPool p, size_t keep) {
    START(cuMemPoolTrimTo);
    int r = real.cuMemPoolTrimTo(p, keep);
    pools_refresh();
    return r;
}
int cuMemPoolSetAttribute(CUmemPool p, int which, void *value) {
    START(cuMemPoolSetAttribute);
    int r = real.cuMemPoolSetAttribute(p, which, value);
    pools_refresh();
    return r;
}

/* ---- synchronising: when pools give memory back ----------------------------------------------------------------- */

#define SYNCHRONISE(name, params, args)                                                       \
    int name params {                                                                         \
        if (!cuda_here() || !real.name) return CU_NOT_SUPPORTED;                              \
        int r = real.name args;                                                               \
        if (UNLIKELY(__atomic_load_n(&pools_dirty, __ATOMIC_RELAXED)) && attached()) pools_refresh(); \
        return r;                                                                             \
    }
SYNCHRONISE(cuStreamSynchronize, (CUstream s), (s))
SYNCHRONISE(cuStreamSynchronize_ptsz, (CUstream s), (s))
SYNCHRONISE(cuEventSynchronize, (CUevent e), (e))
SYNCHRONISE(cuCtxSynchronize, (void), ())
SYNCHRONISE(cuCtxSynchronize_v2, (CUcontext c), (c))

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

static uint64_t graph_bytes(CUgraph g, int depth, CUdevice *device) { /* of all its allocation nodes */
    size_t n = 0;
    if (!real.cuGraphGetNodes || real.cuGraphGetNodes(g, NULL, &n) != CU_OK || !n) return 0;
    CUgraphNode few[128], *nodes = n <= 128 ? few : pages(n * sizeof *nodes);
    uint64_t bytes = 0;
    if (!nodes || real.cuGraphGetNodes(g, nodes, &n) != CU_OK) return 0;
    for (size_t i = 0; i < n; i++) {
        int type = -1;
        struct cu_graph_alloc a;
        CUgraph child;
        if (real.cuGraphNodeGetType(nodes[i], &type) != CU_OK) continue;
        if (type == NODE_MEM_ALLOC && real.cuGraphMemAllocNodeGetParams && real.cuGraphMemAllocNodeGetParams(nodes[i], &a) == CU_OK) {
            bytes += (a.bytes + 511) / 512 * 512;
            *device = a.pool.location.id;
        } else if (type == NODE_GRAPH && depth < DEEPEST && real.cuGraphChildGraphNodeGetGraph &&
                   real.cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CU_OK) {
            bytes += graph_bytes(child, depth + 1, device);
        }
    }
    return bytes; /* the pages of a graph of more than 128 nodes are leaked, per instantiation */
}

static int instantiated(CUgraphExec *out, CUgraph g, int r) {
    CUdevice d = 0;
    if (r != CU_OK) return r;
    uint64_t bytes = graph_bytes(g, 0, &d);
    int gpu = bytes ? gpu_of_device(d) : -1;
    if (!bytes || gpu < 0) return r;
    graph_device[gpu] = d + 1;
    __atomic_store_n(&allocating_graphs, 1, __ATOMIC_RELAXED);
    table_put(&execs, (struct entry){(uintptr_t)*out, bytes, (uint64_t)d, gpu, CLASS_GRAPH});
    return r;
}
int cuGraphInstantiate(CUgraphExec *out, CUgraph g, CUgraphNode *bad, char *log, size_t n) {
    START(cuGraphInstantiate);
    return instantiated(out, g, real.cuGraphInstantiate(out, g, bad, log, n));
}
int cuGraphInstantiate_v2(CUgraphExec *out, CUgraph g, CUgraphNode *bad, char *log, size_t n) {
    START(cuGraphInstantiate_v2);
    return instantiated(out, g, real.cuGraphInstantiate_v2(out, g, bad, log, n));
}
int cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags) {
    START(cuGraphInstantiateWithFlags);
    return instantiated(out, g, real.cuGraphInstantiateWithFlags(out, g, flags));
}
int cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph g, struct cu_instantiate *p) {
    START(cuGraphInstantiateWithParams);
    return instantiated(out, g, real.cuGraphInstantiateWithParams(out, g, p));
}
int cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph g, struct cu_instantiate *p) {
    START(cuGraphInstantiateWithParams_ptsz);
    return instantiated(out, g, real.cuGraphInstantiateWithParams_ptsz(out, g, p));
}

/* The first launch or upload takes the memory. */
static int with_memory(CUgraphExec exec, CUstream s, int (*call)(CUgraphExec, CUstream)) {
    struct entry e;
    if (LIKELY(!__atomic_load_n(&allocating_graphs, __ATOMIC_RELAXED))) return call(exec, s);
    if (!attached() || !table_get(&execs, (uintptr_t)exec, &e)) return call(exec, s);
    uint64_t reserved = 0, used = 0, taken = 0;
    if (real.cuDeviceGetGraphMemAttribute) {
        real.cuDeviceGetGraphMemAttribute((CUdevice)e.owner, GRAPH_RESERVED, &reserved);
        real.cuDeviceGetGraphMemAttribute((CUdevice)e.owner, GRAPH_USED, &used);
    }
    bool there = e.kind == CLASSES; /* has been launched before */
    if (!there && !make_room(e.gpu, CLASS_GRAPH, e.bytes, reserved > used ? reserved - used : 0, &taken)) return refuse(e.gpu, e.bytes);
    int r = call(exec, s);
    lock(&pooling);
    settle_graphs(e.gpu);
    if (taken) release(e.gpu, CLASS_GRAPH, taken);
    unlock(&pooling);
    if (r == CU_OK && !there) {
        e.kind = CLASSES;
        table_put(&execs, e);
    }
    return r == CU_OK ? r : card_full(e.gpu, e.bytes, r);
}

int graph_launch(CUgraphExec e, CUstream s, bool per_thread) { return with_memory(e, s, per_thread ? real.cuGraphLaunch_ptsz : real.cuGraphLaunch); }
int cuGraphUpload(CUgraphExec e, CUstream s) {
    START(cuGraphUpload);
    return with_memory(e, s, real.cuGraphUpload);
}
int cuGraphUpload_ptsz(CUgraphExec e, CUstream s) {
    START(cuGraphUpload_ptsz);
    return with_memory(e, s, real.cuGraphUpload_ptsz);
}
int cuGraphExecDestroy(CUgraphExec exec) {
    struct entry e;
    START(cuGraphExecDestroy);
    bool known_one = table_take(&execs, (uintptr_t)exec, &e);
    int r = real.cuGraphExecDestroy(exec);
    if (known_one && r != CU_OK) table_put(&execs, e);
    if (known_one && r == CU_OK) pools_refresh();
    return r;
}
int cuDeviceGraphMemTrim(CUdevice d) {
    START(cuDeviceGraphMemTrim);
    int r = real.cuDeviceGraphMemTrim(d);
    pools_refresh();
    return r;
}
