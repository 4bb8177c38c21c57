// libcuda.so.1 over fake_gpu.h: names, argument orders and structures are those of cuda.h. Contexts are device indices + 1.
#define _GNU_SOURCE
#include <dlfcn.h>

#include "fake_gpu.h"

typedef int CUresult;
typedef uint64_t Ptr;

int fake_retained[kMaxDevices];

CUresult cuInit(unsigned flags) { ENTER(); return flags ? kInvalid : num_devices ? kOk : kNoDevice; }
CUresult cuDriverGetVersion(int *out) { ENTER(); *out = version ? version : 13000; return kOk; }
CUresult cuDeviceGetCount(int *out) { ENTER(); *out = num_devices; return kOk; }
CUresult cuDeviceGet(int *out, int index) { ENTER(); *out = index; return index < num_devices ? kOk : kBadDevice; }
CUresult cuDeviceGetName(char *out, int size, int at) { ENTER(); strncpy(out, devices[at].name, size); return kOk; }
CUresult cuDeviceTotalMem(size_t *out, int at) { ENTER(); *out = devices[at].bytes; return kOk; }
CUresult cuDeviceGetAttribute(int *out, int what, int at) {
  ENTER();
  const Device *d = &devices[at];
  *out = what == 75 ? d->major : what == 76 ? d->minor : what == 10 ? d->wave : what == 16 ? d->units : what == 8 ? (int)d->shared
       : what == 18 ? d->integrated : -1;
  return kOk;
}
CUresult cuDevicePrimaryCtxRetain(void **out, int at) { ENTER(); ++fake_retained[at]; *out = (void *)(intptr_t)(at + 1); return kOk; }
CUresult cuDevicePrimaryCtxRelease(int at) { ENTER(); --fake_retained[at]; return kOk; }
CUresult cuCtxSetCurrent(void *context) {
  ENTER();
  NEED(context && fake_retained[(intptr_t)context - 1] > 0);
  current = (int)(intptr_t)context - 1;
  return kOk;
}
CUresult cuMemGetInfo(size_t *free_, size_t *total) { ENTER(); *total = devices[current].bytes; *free_ = *total - used; return kOk; }
CUresult cuMemAlloc(Ptr *out, size_t bytes) { ENTER(); NEED(current >= 0); return take((void **)out, bytes, 0); }
CUresult cuMemFree(Ptr at) { ENTER(); return give((void *)at, 0); }
CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) { ENTER(); NEED(flags == 0); return take(out, bytes, 1); }
CUresult cuMemFreeHost(void *at) { ENTER(); return give(at, 1); }
CUresult cuMemcpyHtoDAsync(Ptr to, const void *from, size_t bytes, Stream *s) {
  ENTER();
  return put(s, (Op){.kind = 0, .target = (void *)to, .source = from, .bytes = bytes});
}
CUresult cuMemcpyDtoHAsync(void *to, Ptr from, size_t bytes, Stream *s) {
  ENTER();
  return put(s, (Op){.kind = 0, .target = to, .source = (void *)from, .bytes = bytes});
}
CUresult cuMemcpyDtoDAsync(Ptr to, Ptr from, size_t bytes, Stream *s) {
  ENTER();
  return put(s, (Op){.kind = 0, .target = (void *)to, .source = (void *)from, .bytes = bytes});
}
CUresult cuMemsetD8Async(Ptr to, unsigned char value, size_t bytes, Stream *s) {
  ENTER();
  return put(s, (Op){.kind = 1, .target = (void *)to, .bytes = bytes, .value = value});
}
CUresult cuStreamCreate(void **out, unsigned flags) { ENTER(); NEED(flags == 1); return make(out, sizeof(Stream)); }
CUresult cuStreamDestroy(void *s) { ENTER(); return drop(s); }
CUresult cuStreamSynchronize(Stream *s) { ENTER(); return wait_for(s); }
CUresult cuStreamBeginCapture(Stream *s, int mode) { ENTER(); return begin(s, mode); }
CUresult cuStreamEndCapture(Stream *s, Graph **out) { ENTER(); return finish(s, out); }
CUresult cuGraphInstantiateWithFlags(Graph **out, Graph *g, uint64_t flags) { ENTER(); NEED(flags == 0); return instantiate(out, g); }
CUresult cuGraphLaunch(Graph *g, Stream *s) { ENTER(); return run(g, s); }
CUresult cuGraphDestroy(Graph *g) { ENTER(); return drop_graph(g); }
CUresult cuGraphExecDestroy(Graph *g) { ENTER(); return drop_ready(g); }
CUresult cuEventCreate(void **out, unsigned flags) { ENTER(); NEED(flags == 0); return make(out, sizeof(Event)); }
CUresult cuEventRecord(Event *e, Stream *s) { ENTER(); return record(e, s); }
CUresult cuEventSynchronize(Event *e) { ENTER(); NEED(e); return wait_for(e->stream); }
CUresult cuEventElapsedTime(float *out, Event *a, Event *b) { ENTER(); *out = (float)(b->at - a->at); return kOk; }
CUresult cuEventDestroy(void *e) { ENTER(); return drop(e); }
CUresult cuModuleLoadData(Module **out, const void *image) { ENTER(); return load(out, image); }
CUresult cuModuleUnload(Module *m) { ENTER(); free(m); --live[3]; return kOk; }
CUresult cuModuleGetFunction(char **out, Module *m, const char *name) { ENTER(); return find(out, m, name, 48 << 10); }
CUresult cuFuncSetAttribute(const char *f, int what, int value) {
  ENTER();
  NEED(f && what == 8 && value > 0);
  *most_shared(f) = value;
  return kOk;
}
CUresult cuLaunchKernel(const char *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        Stream *s, void **params, void **extra) {
  ENTER();
  return launch(f, gx, gy, gz, bx, by, bz, shared, s, params, extra, 0);
}
CUresult cuGetErrorString(CUresult code, const char **out) { *out = code == 2 ? "out of memory" : "a fault of the fake"; return kOk; }
CUresult cuGetErrorName(CUresult code, const char **out) { *out = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR"; return kOk; }

// The bindings ask this for every function, by its name without a version.
CUresult cuGetProcAddress_v2(const char *name, void **out, int cuda_version, uint64_t flags, int *status) {
  (void)cuda_version, (void)flags;
  *out = dlsym(RTLD_DEFAULT, name);
  Dl_info here, there;
  if (*out && (!dladdr(*out, &there) || !dladdr((void *)fake_plan, &here) || there.dli_fbase != here.dli_fbase)) *out = NULL;
  if (status) *status = *out ? 0 : 1;
  return *out ? kOk : kNotFound;
}
