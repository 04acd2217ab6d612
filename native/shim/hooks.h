/* Every entry point that the shim knows: X(exported name, name for cuGetProcAddress, first CUDA version, variant,
 * parameters). HOOKS are replaced, NEEDED only called. The numbers choose the ABI of an address that is no export. */
#ifndef PLIANT_HOOKS_H
#define PLIANT_HOOKS_H
#define U unsigned
#define ARGS_LAUNCH (CUfunction, U, U, U, U, U, U, U, CUstream, void **, void **)
#define ARGS_COOPERATIVE (CUfunction, U, U, U, U, U, U, U, CUstream, void **)

#define HOOKS(X)                                                                                                       \
    X(cuInit, cuInit, 2000, 0, (U))                                                                                    \
    X(cuGetProcAddress, cuGetProcAddress, 11030, 0, (const char *, void **, int, uint64_t))                            \
    X(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0, (const char *, void **, int, uint64_t, int *))                  \
    X(cuGetProcAddress_v2_ptsz, cuGetProcAddress, 12000, 2, (const char *, void **, int, uint64_t, int *))             \
    X(cuDeviceTotalMem, cuDeviceTotalMem, 2000, 0, (U *, CUdevice))                                                    \
    X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, 0, (size_t *, CUdevice))                                            \
    X(cuMemGetInfo, cuMemGetInfo, 2000, 0, (U *, U *))                                                                 \
    X(cuMemGetInfo_v2, cuMemGetInfo, 3020, 0, (size_t *, size_t *))                                                    \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0, (CUcontext *, CUdevice))                            \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, 0, (CUdevice))                                       \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, 0, (CUdevice))                                   \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 0, (CUdevice))                                           \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, 0, (CUdevice))                                       \
    X(cuCtxCreate, cuCtxCreate, 2000, 0, (CUcontext *, U, CUdevice))                                                   \
    X(cuCtxCreate_v2, cuCtxCreate, 3020, 0, (CUcontext *, U, CUdevice))                                                \
    X(cuCtxCreate_v3, cuCtxCreate, 11040, 0, (CUcontext *, void *, int, U, CUdevice))                                  \
    X(cuCtxCreate_v4, cuCtxCreate, 12050, 0, (CUcontext *, void *, U, CUdevice))                                       \
    X(cuCtxDestroy, cuCtxDestroy, 2000, 0, (CUcontext))                                                                \
    X(cuCtxDestroy_v2, cuCtxDestroy, 4000, 0, (CUcontext))                                                             \
    X(cuCtxDetach, cuCtxDetach, 2000, 0, (CUcontext))                                                                  \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, 0, (void **, void *, CUdevice, U))                                    \
    X(cuCtxSetLimit, cuCtxSetLimit, 3010, 0, (int, size_t))                                                            \
    X(cuModuleLoad, cuModuleLoad, 2000, 0, (CUmodule *, const char *))                                                 \
    X(cuModuleLoadData, cuModuleLoadData, 2000, 0, (CUmodule *, const void *))                                         \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, 0, (CUmodule *, const void *, U, int *, void **))                  \
    X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, 0, (CUmodule *, const void *))                               \
    X(cuLibraryLoadData, cuLibraryLoadData, 12000, 0,                                                                  \
      (CUlibrary *, const void *, int *, void **, U, int *, void **, U))                                               \
    X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, 0,                                                          \
      (CUlibrary *, const char *, int *, void **, U, int *, void **, U))                                               \
    X(cuMemAlloc, cuMemAlloc, 2000, 0, (U *, U))                                                                       \
    X(cuMemAlloc_v2, cuMemAlloc, 3020, 0, (CUdeviceptr *, size_t))                                                     \
    X(cuMemAllocPitch, cuMemAllocPitch, 2000, 0, (U *, U *, U, U, U))                                                  \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0, (CUdeviceptr *, size_t *, size_t, size_t, U))                      \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, 0, (CUdeviceptr *, size_t, U))                                       \
    X(cuMemFree, cuMemFree, 2000, 0, (U))                                                                              \
    X(cuMemFree_v2, cuMemFree, 3020, 0, (CUdeviceptr))                                                                 \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, 0, (CUdeviceptr *, size_t, CUstream))                                   \
    X(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, 2, (CUdeviceptr *, size_t, CUstream))                              \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0, (CUdeviceptr *, size_t, CUmemPool, CUstream))        \
    X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, 2, (CUdeviceptr *, size_t, CUmemPool, CUstream))   \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, 0, (CUdeviceptr, CUstream))                                               \
    X(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, 2, (CUdeviceptr, CUstream))                                          \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020, 0, (CUmemPool *, const struct cu_pool_props *))                         \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0, (CUmemPool))                                                       \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0, (CUmemPool, size_t))                                                 \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, 0, (CUmemPool, int, void *))                                \
    X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020, 0,                                \
      (CUmemPool *, void *, int, unsigned long long))                                                                  \
    X(cuMemCreate, cuMemCreate, 10020, 0, (CUmemHandle *, size_t, const struct cu_alloc_prop *, unsigned long long))   \
    X(cuMemRelease, cuMemRelease, 10020, 0, (CUmemHandle))                                                             \
    X(cuMemMap, cuMemMap, 10020, 0, (CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long))                    \
    X(cuMemUnmap, cuMemUnmap, 10020, 0, (CUdeviceptr, size_t))                                                         \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0, (CUmemHandle *, void *))                     \
    X(cuArrayCreate, cuArrayCreate, 2000, 0, (CUarray *, const void *))                                                \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, 0, (CUarray *, const struct cu_array *))                                  \
    X(cuArray3DCreate, cuArray3DCreate, 2000, 0, (CUarray *, const void *))                                            \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0, (CUarray *, const struct cu_array3d *))                            \
    X(cuArrayDestroy, cuArrayDestroy, 2000, 0, (CUarray))                                                              \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0, (CUmipmap *, const struct cu_array3d *, U))             \
    X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0, (CUmipmap))                                           \
    X(cuGraphInstantiate, cuGraphInstantiate, 10000, 0, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t))       \
    X(cuGraphInstantiate_v2, cuGraphInstantiate, 11000, 0, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t))    \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, 0, (CUgraphExec *, CUgraph, unsigned long long)) \
    X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 0,                                            \
      (CUgraphExec *, CUgraph, struct cu_instantiate *))                                                               \
    X(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 12000, 2,                                       \
      (CUgraphExec *, CUgraph, struct cu_instantiate *))                                                               \
    X(cuGraphUpload, cuGraphUpload, 11010, 0, (CUgraphExec, CUstream))                                                 \
    X(cuGraphUpload_ptsz, cuGraphUpload, 11010, 2, (CUgraphExec, CUstream))                                            \
    X(cuGraphLaunch, cuGraphLaunch, 10000, 0, (CUgraphExec, CUstream))                                                 \
    X(cuGraphLaunch_ptsz, cuGraphLaunch, 10000, 2, (CUgraphExec, CUstream))                                            \
    X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, 0, (CUgraphExec))                                                 \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, 0, (CUdevice))                                                \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000, 0, (CUstream))                                                   \
    X(cuStreamSynchronize_ptsz, cuStreamSynchronize, 2000, 2, (CUstream))                                              \
    X(cuEventSynchronize, cuEventSynchronize, 2000, 0, (CUevent))                                                      \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, 0, (void))                                                             \
    X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, 0, (CUcontext))                                                    \
    X(cuStreamDestroy, cuStreamDestroy, 2000, 0, (CUstream))                                                           \
    X(cuStreamDestroy_v2, cuStreamDestroy, 4000, 0, (CUstream))                                                        \
    X(cuLaunchKernel, cuLaunchKernel, 4000, 0, ARGS_LAUNCH)                                                            \
    X(cuLaunchKernel_ptsz, cuLaunchKernel, 4000, 2, ARGS_LAUNCH)                                                       \
    X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, 0, (const struct cu_launch_config *, CUfunction, void **, void **))   \
    X(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, 11060, 2, (const struct cu_launch_config *, CUfunction, void **, void **)) \
    X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, 0, ARGS_COOPERATIVE)                                 \
    X(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel, 9000, 2, ARGS_COOPERATIVE)                            \
    X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, 0, (void *, U, U))             \
    X(cuLaunch, cuLaunch, 2000, 0, (CUfunction))                                                                       \
    X(cuLaunchGrid, cuLaunchGrid, 2000, 0, (CUfunction, int, int))                                                     \
    X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, 0, (CUfunction, int, int, CUstream))

#define NEEDED(X)                                                                                                      \
    X(cuDeviceGetUuid, cuDeviceGetUuid, 9020, 0, (struct cu_uuid *, CUdevice))                                         \
    X(cuDeviceGetUuid_v2, cuDeviceGetUuid, 11040, 0, (struct cu_uuid *, CUdevice))                                     \
    X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, 0, (CUcontext *))                                                        \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, 0, (CUcontext))                                                          \
    X(cuCtxGetDevice, cuCtxGetDevice, 2000, 0, (CUdevice *))                                                           \
    X(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, 0, (CUcontext *))                                                     \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, 0, (CUmemPool *, CUdevice))                                       \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, 0, (CUmemPool, int, void *))                                \
    X(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, 0, (CUdevice, int, void *))                   \
    X(cuGraphGetNodes, cuGraphGetNodes, 10000, 0, (CUgraph, CUgraphNode *, size_t *))                                  \
    X(cuGraphNodeGetType, cuGraphNodeGetType, 10000, 0, (CUgraphNode, int *))                                          \
    X(cuGraphMemAllocNodeGetParams, cuGraphMemAllocNodeGetParams, 11040, 0, (CUgraphNode, struct cu_graph_alloc *))    \
    X(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000, 0, (CUgraphNode, CUgraph *))                \
    X(cuArrayGetMemoryRequirements, cuArrayGetMemoryRequirements, 11060, 0,                                            \
      (struct cu_requirements *, CUarray, CUdevice))                                                                   \
    X(cuMipmappedArrayGetMemoryRequirements, cuMipmappedArrayGetMemoryRequirements, 11060, 0,                          \
      (struct cu_requirements *, CUmipmap, CUdevice))                                                                  \
    X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, 0, (CUstream, int *))                                           \
    X(cuStreamIsCapturing_ptsz, cuStreamIsCapturing, 10000, 2, (CUstream, int *))                                      \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, 0, (int *))                         \
    X(cuEventCreate, cuEventCreate, 2000, 0, (CUevent *, U))                                                           \
    X(cuEventDestroy_v2, cuEventDestroy, 4000, 0, (CUevent))                                                           \
    X(cuEventQuery, cuEventQuery, 2000, 0, (CUevent))                                                                  \
    X(cuEventRecord, cuEventRecord, 2000, 0, (CUevent, CUstream))                                                      \
    X(cuEventRecord_ptsz, cuEventRecord, 7000, 2, (CUevent, CUstream))

#define PROCESSES(X, name)                                                                                             \
    X(name, name, 0, 0, (nvmlDevice, U *, struct nvml_process1 *))                                                     \
    X(name##_v2, name, 0, 0, (nvmlDevice, U *, struct nvml_process *))                                                 \
    X(name##_v3, name, 0, 0, (nvmlDevice, U *, struct nvml_process *))
#define NVML_HOOKS(X)                                                                                                  \
    X(nvmlDeviceGetCount, nvmlDeviceGetCount, 0, 0, (U *))                                                             \
    X(nvmlDeviceGetCount_v2, nvmlDeviceGetCount, 0, 0, (U *))                                                          \
    X(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex, 0, 0, (U, nvmlDevice *))                                 \
    X(nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetHandleByIndex, 0, 0, (U, nvmlDevice *))                              \
    X(nvmlDeviceGetHandleByUUID, nvmlDeviceGetHandleByUUID, 0, 0, (const char *, nvmlDevice *))                        \
    X(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId, 0, 0, (const char *, nvmlDevice *))                \
    X(nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetHandleByPciBusId, 0, 0, (const char *, nvmlDevice *))             \
    X(nvmlDeviceGetIndex, nvmlDeviceGetIndex, 0, 0, (nvmlDevice, U *))                                                 \
    X(nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo, 0, 0, (nvmlDevice, struct nvml_memory *))                      \
    X(nvmlDeviceGetMemoryInfo_v2, nvmlDeviceGetMemoryInfo, 0, 0, (nvmlDevice, struct nvml_memory2 *))                  \
    PROCESSES(X, nvmlDeviceGetComputeRunningProcesses)                                                                 \
    PROCESSES(X, nvmlDeviceGetGraphicsRunningProcesses)                                                                \
    PROCESSES(X, nvmlDeviceGetMPSComputeRunningProcesses)                                                              \
    X(nvmlDeviceGetRunningProcessDetailList, nvmlDeviceGetRunningProcessDetailList, 0, 0, (nvmlDevice, void *))        \
    X(nvmlDeviceGetProcessUtilization, nvmlDeviceGetProcessUtilization, 0, 0,                                          \
      (nvmlDevice, void *, U *, unsigned long long))                                                                   \
    X(nvmlDeviceGetProcessesUtilizationInfo, nvmlDeviceGetProcessesUtilizationInfo, 0, 0, (nvmlDevice, void *))

#define NVML_NEEDED(X)                                                                                                 \
    X(nvmlInit_v2, nvmlInit, 0, 0, (void))                                                                             \
    X(nvmlDeviceGetUUID, nvmlDeviceGetUUID, 0, 0, (nvmlDevice, char *, U))
#endif
