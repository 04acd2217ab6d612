/* The simulated libcuda: streams, events, kernels, graphs. A kernel's name says how long it takes: the first number in
 * it is microseconds (`train_2000us`); without one it takes no time and leaves no trace. */
#define _GNU_SOURCE
#include <ctype.h>

#include "driver.h"

void pools_at_sync(void);
static struct opaque legacy = {.kind = STREAM}, per_thread = {.kind = STREAM}; /* of handles 0 and 1; of 2 */
static struct map busy; /* context -> end of all that it has in flight */

static struct opaque *stream_of(CUstream s) {
    if (!s || s == STREAM_LEGACY) return &legacy;
    return s == STREAM_PER_THREAD ? &per_thread : is(s, STREAM) ? s : NULL;
}

uint64_t busy_until(const struct opaque *context) {
    uint64_t end = 0;
    LOCKED;
    map_get(&busy, (uintptr_t)context, &end, NULL);
    UNLOCKED;
    pools_at_sync();
    return end;
}

static CUresult run(CUstream handle, uint64_t ns) {
    int d;
    CUresult r = here(&d);
    struct opaque *s = stream_of(handle);
    if (r != CU_OK || !s) return r != CU_OK ? r : CU_INVALID_HANDLE;
    if (s->graph) { /* captured */
        struct opaque *node = make(NODE, d);
        node->ns = ns;
        node->next = s->graph->first;
        s->graph->first = node;
        return CU_OK;
    }
    if (!ns) return CU_OK;
    uint64_t end;
    r = card_run(gpu_of[d], ns, &end);
    LOCKED;
    s->end = end;
    map_put(&busy, (uintptr_t)current(), end, 0);
    UNLOCKED;
    return r;
}

/* ---- streams and events ----------------------------------------------------------------------------------------- */

API CUresult cuStreamCreate(CUstream *out, unsigned flags) {
    (void)flags;
    int d;
    CUresult r = here(&d);
    if (r == CU_OK) *out = make(STREAM, d);
    return r;
}
API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    (void)priority;
    return cuStreamCreate(out, flags);
}
API CUresult cuStreamDestroy_v2(CUstream s) {
    if (!is(s, STREAM)) return CU_INVALID_HANDLE;
    s->kind = 0; /* never freed: using it again is an error, not a crash */
    return CU_OK;
}
API CUresult cuStreamDestroy(CUstream s) { return cuStreamDestroy_v2(s); }
API CUresult cuStreamSynchronize(CUstream handle) {
    struct opaque *s = stream_of(handle);
    if (!s) return CU_INVALID_HANDLE;
    if (s->graph) return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
    if (s->end) sim_wait_until(s == &legacy ? busy_until(current()) : s->end);
    pools_at_sync();
    return CU_OK;
}
API CUresult cuStreamQuery(CUstream handle) {
    struct opaque *s = stream_of(handle);
    if (!s) return CU_INVALID_HANDLE;
    return s->end > sim_now() ? CU_NOT_READY : CU_OK;
}
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
    (void)flags;
    return stream_of(s) && is(e, EVENT) ? CU_OK : CU_INVALID_HANDLE;
}
API CUresult cuStreamBeginCapture_v2(CUstream s, int mode) {
    (void)mode;
    if (!is(s, STREAM) || s->graph) return CU_INVALID_VALUE;
    s->graph = make(GRAPH, s->device);
    return CU_OK;
}
API CUresult cuStreamEndCapture(CUstream s, CUgraph *out) {
    if (!is(s, STREAM) || !s->graph) return CU_INVALID_VALUE;
    *out = s->graph;
    s->graph = NULL;
    return CU_OK;
}
API CUresult cuStreamIsCapturing(CUstream handle, int *status) {
    struct opaque *s = stream_of(handle);
    if (!s) return CU_INVALID_HANDLE;
    *status = s->graph != NULL;
    return CU_OK;
}
API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    static __thread int mine;
    int old = mine;
    mine = *mode;
    *mode = old;
    return CU_OK;
}

API CUresult cuEventCreate(CUevent *out, unsigned flags) {
    (void)flags;
    int d;
    CUresult r = here(&d);
    if (r == CU_OK) *out = make(EVENT, d);
    return r;
}
API CUresult cuEventRecord(CUevent e, CUstream handle) {
    struct opaque *s = stream_of(handle);
    if (!is(e, EVENT) || !s) return CU_INVALID_HANDLE;
    if (s->graph) return 900; /* the real driver would capture it into the graph; here that is an error */
    e->end = s->end;
    return CU_OK;
}
API CUresult cuEventQuery(CUevent e) {
    if (!is(e, EVENT)) return CU_INVALID_HANDLE;
    return e->end > sim_now() ? CU_NOT_READY : CU_OK;
}
API CUresult cuEventSynchronize(CUevent e) {
    if (!is(e, EVENT)) return CU_INVALID_HANDLE;
    if (e->end) sim_wait_until(e->end);
    pools_at_sync();
    return CU_OK;
}
API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
    if (!is(a, EVENT) || !is(b, EVENT)) return CU_INVALID_HANDLE;
    *ms = (float)((double)(int64_t)(b->end - a->end) / 1e6);
    return CU_OK;
}
API CUresult cuEventDestroy_v2(CUevent e) {
    if (!is(e, EVENT)) return CU_INVALID_HANDLE;
    e->kind = 0;
    free(e);
    return CU_OK;
}
API CUresult cuEventDestroy(CUevent e) { return cuEventDestroy_v2(e); }

#define PER_THREAD(s) ((s) ? (s) : STREAM_PER_THREAD)
API CUresult cuStreamSynchronize_ptsz(CUstream s) { return cuStreamSynchronize(PER_THREAD(s)); }
API CUresult cuStreamQuery_ptsz(CUstream s) { return cuStreamQuery(PER_THREAD(s)); }
API CUresult cuStreamWaitEvent_ptsz(CUstream s, CUevent e, unsigned f) { return cuStreamWaitEvent(PER_THREAD(s), e, f); }
API CUresult cuStreamBeginCapture_v2_ptsz(CUstream s, int mode) { return cuStreamBeginCapture_v2(PER_THREAD(s), mode); }
API CUresult cuStreamEndCapture_ptsz(CUstream s, CUgraph *g) { return cuStreamEndCapture(PER_THREAD(s), g); }
API CUresult cuStreamIsCapturing_ptsz(CUstream s, int *x) { return cuStreamIsCapturing(PER_THREAD(s), x); }
API CUresult cuEventRecord_ptsz(CUevent e, CUstream s) { return cuEventRecord(e, PER_THREAD(s)); }

/* ---- copies: nothing is stored, so what comes back is zero ------------------------------------------------------ */

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) {
    (void)to, (void)from, (void)n;
    return current() ? CU_OK : CU_INVALID_CONTEXT;
}
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) {
    (void)from;
    memset(to, 0, n);
    return current() ? CU_OK : CU_INVALID_CONTEXT;
}
API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) {
    (void)to, (void)from, (void)n;
    return current() ? CU_OK : CU_INVALID_CONTEXT;
}
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s) {
    (void)s;
    return cuMemcpyHtoD_v2(to, from, n);
}
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s) {
    (void)s;
    return cuMemcpyDtoH_v2(to, from, n);
}
API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n) {
    (void)value;
    return cuMemcpyDtoD_v2(to, to, n);
}
API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t n) {
    (void)value;
    return cuMemcpyDtoD_v2(to, to, n);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

API CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    (void)image;
    int d;
    CUresult r = here(&d);
    if (r == CU_OK) *out = make(MODULE, d);
    return r;
}
API CUresult cuModuleLoad(CUmodule *out, const char *name) { return cuModuleLoadData(out, name); }
API CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image) { return cuModuleLoadData(out, image); }
API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, int *options, void **values) {
    (void)n, (void)options, (void)values;
    return cuModuleLoadData(out, image);
}
API CUresult cuModuleUnload(CUmodule m) { return is(m, MODULE) ? (m->kind = 0, CU_OK) : CU_INVALID_HANDLE; }
API CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name) {
    if (!is(m, MODULE)) return CU_INVALID_HANDLE;
    const char *digit = name;
    while (*digit && !isdigit((unsigned char)*digit)) digit++;
    *out = make(FUNCTION, m->device);
    (*out)->ns = strtoull(digit, NULL, 10) * 1000;
    return CU_OK;
}
API CUresult cuLibraryLoadData(CUlibrary *out, const void *code, int *a, void **b, unsigned c, int *d, void **e, unsigned f) {
    (void)code, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    *out = make(MODULE, 0);
    return initialized ? CU_OK : CU_NOT_INITIALIZED;
}
API CUresult cuLibraryUnload(CUlibrary l) { return cuModuleUnload(l); }
API CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary l, const char *name) { return cuModuleGetFunction(out, l, name); }
API CUresult cuKernelGetFunction(CUfunction *out, CUkernel k) { return is(k, FUNCTION) ? (*out = k, CU_OK) : CU_INVALID_HANDLE; }

API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned shared, CUstream s, void **params, void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)params, (void)extra;
    if (!is(f, FUNCTION)) return CU_INVALID_HANDLE;
    if (!f->ns && !is(s, STREAM)) return CU_OK;
    return run(s, f->ns);
}
API CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, CUstream s, void **params, void **extra) {
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, PER_THREAD(s), params, extra);
}
API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                       unsigned bz, unsigned shared, CUstream s, void **params) {
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, NULL);
}
API CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                            unsigned bz, unsigned shared, CUstream s, void **params) {
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, PER_THREAD(s), params, NULL);
}
API CUresult cuLaunchKernelEx(const struct cu_launch_config *c, CUfunction f, void **params, void **extra) {
    return cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                          c->stream, params, extra);
}
API CUresult cuLaunchKernelEx_ptsz(const struct cu_launch_config *c, CUfunction f, void **params, void **extra) {
    struct cu_launch_config own = *c;
    own.stream = PER_THREAD(c->stream);
    return cuLaunchKernelEx(&own, f, params, extra);
}
API CUresult cuLaunch(CUfunction f) { return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }
API CUresult cuLaunchGrid(CUfunction f, int w, int h) {
    (void)w, (void)h;
    return cuLaunch(f);
}
API CUresult cuLaunchGridAsync(CUfunction f, int w, int h, CUstream s) {
    (void)w, (void)h;
    return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL);
}

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

API CUresult cuGraphCreate(CUgraph *out, unsigned flags) {
    (void)flags;
    *out = make(GRAPH, 0);
    return initialized ? CU_OK : CU_NOT_INITIALIZED;
}
API CUresult cuGraphDestroy(CUgraph g) {
    if (!is(g, GRAPH)) return CU_INVALID_HANDLE;
    g->kind = 0;
    return CU_OK;
}
static CUresult add_node(CUgraphNode *out, CUgraph g, struct opaque node) {
    if (!is(g, GRAPH)) return CU_INVALID_HANDLE;
    struct opaque *n = make(NODE, node.device);
    *n = node;
    n->kind = NODE;
    n->next = g->first;
    g->first = n;
    if (out) *out = n;
    return CU_OK;
}
API CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph g, CUgraphNode *deps, size_t n, struct cu_graph_alloc *p) {
    (void)deps, (void)n;
    if (!p || !p->bytes || p->pool.location.id < 0 || p->pool.location.id >= ordinals) return CU_INVALID_VALUE;
    static CUdeviceptr next = 0x600000000000;
    p->ptr = next += p->bytes;
    return add_node(out, g, (struct opaque){.device = p->pool.location.id, .node_type = NODE_MEM_ALLOC, .bytes = (p->bytes + 511) / 512 * 512, .ptr = p->ptr});
}
API CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph g, CUgraphNode *deps, size_t n, CUdeviceptr ptr) {
    (void)deps, (void)n;
    return add_node(out, g, (struct opaque){.node_type = 11, .ptr = ptr});
}
API CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph g, CUgraphNode *deps, size_t n) {
    (void)deps, (void)n;
    return add_node(out, g, (struct opaque){.node_type = 5});
}
API CUresult cuGraphAddNode(CUgraphNode *out, CUgraph g, CUgraphNode *deps, size_t n, struct cu_node_params *p) {
    if (p->type != NODE_MEM_ALLOC) return CU_NOT_SUPPORTED;
    return cuGraphAddMemAllocNode(out, g, deps, n, &p->u.alloc);
}
API CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph g, CUgraphNode *deps, void *edges, size_t n, struct cu_node_params *p) {
    (void)edges;
    return cuGraphAddNode(out, g, deps, n, p);
}
API CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n) {
    if (!is(g, GRAPH)) return CU_INVALID_HANDLE;
    size_t found = 0;
    for (struct opaque *p = g->first; p; p = p->next, found++)
        if (nodes && found < *n) nodes[found] = p;
    *n = nodes && *n < found ? *n : found;
    return CU_OK;
}
API CUresult cuGraphNodeGetType(CUgraphNode node, int *type) {
    return is(node, NODE) ? (*type = node->node_type, CU_OK) : CU_INVALID_HANDLE;
}
API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, struct cu_graph_alloc *out) {
    if (!is(node, NODE) || node->node_type != NODE_MEM_ALLOC) return CU_INVALID_VALUE;
    *out = (struct cu_graph_alloc){.pool.location = {LOCATION_DEVICE, node->device}, .bytes = node->bytes, .ptr = node->ptr};
    return CU_OK;
}

static CUresult instantiate(CUgraphExec *out, CUgraph g) {
    if (!is(g, GRAPH)) return CU_INVALID_HANDLE;
    struct opaque *e = make(EXEC, 0);
    for (struct opaque *p = g->first; p; p = p->next) {
        if (p->node_type == NODE_MEM_ALLOC) e->device = p->device;
        e->bytes += p->node_type == NODE_MEM_ALLOC ? p->bytes : 0;
        e->ns += p->ns;
    }
    *out = e;
    return CU_OK;
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags) {
    (void)flags;
    return instantiate(out, g);
}
API CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph g, CUgraphNode *bad, char *log, size_t n) {
    (void)bad, (void)log, (void)n;
    return instantiate(out, g);
}
API CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph g, CUgraphNode *bad, char *log, size_t n) {
    return cuGraphInstantiate(out, g, bad, log, n);
}
API CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph g, struct cu_instantiate *p) {
    p->result = 0;
    return instantiate(out, g);
}
API CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph g, struct cu_instantiate *p) {
    return cuGraphInstantiateWithParams(out, g, p);
}
API CUresult cuGraphUpload(CUgraphExec e, CUstream s) {
    (void)s;
    if (!is(e, EXEC)) return CU_INVALID_HANDLE;
    CUresult r = e->uploaded ? CU_OK : graph_memory(e->device, (int64_t)e->bytes, false);
    if (r == CU_OK) e->uploaded = true;
    return r;
}
API CUresult cuGraphUpload_ptsz(CUgraphExec e, CUstream s) { return cuGraphUpload(e, PER_THREAD(s)); }
API CUresult cuGraphLaunch(CUgraphExec e, CUstream s) {
    CUresult r = cuGraphUpload(e, s);
    return r == CU_OK ? run(s, e->ns) : r;
}
API CUresult cuGraphLaunch_ptsz(CUgraphExec e, CUstream s) { return cuGraphLaunch(e, PER_THREAD(s)); }
API CUresult cuGraphExecDestroy(CUgraphExec e) {
    if (!is(e, EXEC)) return CU_INVALID_HANDLE;
    if (e->uploaded) graph_memory(e->device, -(int64_t)e->bytes, false);
    e->kind = 0;
    return CU_OK;
}
