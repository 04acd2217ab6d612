/* Launches. A workload alone on its GPU, or without a compute share, pays two loads and one compare per launch. */
#include "shim.h"

#define GATED(stream, per_thread, missing, call)                                   \
    if (UNLIKELY(__atomic_load_n(gate_now(), __ATOMIC_RELAXED))) {                        \
        if (!cuda_here() || missing) return CU_NOT_SUPPORTED;                            \
        gate_enter(stream, per_thread);                                                  \
        int r = call;                                                                    \
        gate_leave(stream, per_thread);                                                  \
        return r;                                                                        \
    }                                                                                    \
    return call

#define LAUNCH(name, per_thread)                                                                                      \
    int name(CUfunction f, U gx, U gy, U gz, U bx, U by, U bz, U shared, CUstream s, void **params, void **extra) {   \
        GATED(s, per_thread, !real.name, real.name(f, gx, gy, gz, bx, by, bz, shared, s, params, extra));       \
    }
LAUNCH(cuLaunchKernel, false)
LAUNCH(cuLaunchKernel_ptsz, true)

#define LAUNCH_EX(name, per_thread)                                                                        \
    int name(const struct cu_launch_config *c, CUfunction f, void **params, void **extra) {                \
        GATED(c->stream, per_thread, !real.name, real.name(c, f, params, extra));                    \
    }
LAUNCH_EX(cuLaunchKernelEx, false)
LAUNCH_EX(cuLaunchKernelEx_ptsz, true)

#define COOPERATIVE(name, per_thread)                                                                      \
    int name(CUfunction f, U gx, U gy, U gz, U bx, U by, U bz, U shared, CUstream s, void **params) {      \
        GATED(s, per_thread, !real.name, real.name(f, gx, gy, gz, bx, by, bz, shared, s, params));   \
    }
COOPERATIVE(cuLaunchCooperativeKernel, false)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

int cuLaunchCooperativeKernelMultiDevice(void *list, U n, U flags) {
    GATED(NULL, false, !real.cuLaunchCooperativeKernelMultiDevice, real.cuLaunchCooperativeKernelMultiDevice(list, n, flags));
}
int cuLaunch(CUfunction f) { GATED(NULL, false, !real.cuLaunch, real.cuLaunch(f)); }
int cuLaunchGrid(CUfunction f, int w, int h) { GATED(NULL, false, !real.cuLaunchGrid, real.cuLaunchGrid(f, w, h)); }
int cuLaunchGridAsync(CUfunction f, int w, int h, CUstream s) {
    GATED(s, false, !real.cuLaunchGridAsync, real.cuLaunchGridAsync(f, w, h, s));
}
int cuGraphLaunch(CUgraphExec e, CUstream s) { GATED(s, false, !real.cuGraphLaunch, graph_launch(e, s, false)); }
int cuGraphLaunch_ptsz(CUgraphExec e, CUstream s) { GATED(s, true, !real.cuGraphLaunch_ptsz, graph_launch(e, s, true)); }

int cuStreamDestroy_v2(CUstream s) {
    if (!cuda_here() || !real.cuStreamDestroy_v2) return CU_NOT_SUPPORTED;
    gate_stream_gone(s);
    return real.cuStreamDestroy_v2(s);
}
int cuStreamDestroy(CUstream s) {
    if (!cuda_here() || !real.cuStreamDestroy) return CU_NOT_SUPPORTED;
    gate_stream_gone(s);
    return real.cuStreamDestroy(s);
}
