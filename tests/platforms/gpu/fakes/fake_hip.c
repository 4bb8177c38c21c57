// libamdhip64.so over fake_gpu.h: names, argument orders and structures are those of hip_runtime_api.h.
#include "fake_gpu.h"

typedef int hipError_t;

// Offsets within hipDeviceProp_tR0600, as the header lays it out.
enum { kName = 0, kMemory = 288, kShared = 296, kWarp = 308, kUnits = 388, kIntegrated = 396, kArch = 1160, kPropertyBytes = 1472 };

hipError_t hipGetDeviceCount(int *out) { ENTER(); *out = num_devices; return num_devices ? kOk : kNoDevice; }
hipError_t hipRuntimeGetVersion(int *out) { ENTER(); *out = version ? version : 71526333; return kOk; }
hipError_t hipSetDevice(int at) { ENTER(); if (at >= num_devices) return kBadDevice; current = at; return kOk; }
hipError_t hipGetDevicePropertiesR0600(char *out, int at) {
  ENTER();
  if (at >= num_devices) return kBadDevice;
  const Device *d = &devices[at];
  memset(out, 0, kPropertyBytes);
  strcpy(out + kName, d->name), strcpy(out + kArch, d->arch);
  memcpy(out + kMemory, &d->bytes, 8), memcpy(out + kShared, &d->shared, 8);
  memcpy(out + kWarp, &d->wave, 4), memcpy(out + kUnits, &d->units, 4), memcpy(out + kIntegrated, &d->integrated, 4);
  return kOk;
}
hipError_t hipMemGetInfo(size_t *free_, size_t *total) { ENTER(); *total = devices[current].bytes; *free_ = *total - used; return kOk; }
hipError_t hipMalloc(void **out, size_t bytes) { ENTER(); NEED(current >= 0); return take(out, bytes, 0); }
hipError_t hipFree(void *at) { ENTER(); return give(at, 0); }
hipError_t hipHostMalloc(void **out, size_t bytes, unsigned flags) { ENTER(); NEED(flags == 0); return take(out, bytes, 1); }
hipError_t hipHostFree(void *at) { ENTER(); return give(at, 1); }
hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, Stream *s) {
  ENTER();
  const Block *a = block_of(to), *b = block_of(from);
  const int is_to = a && a->what == 0, is_from = b && b->what == 0;  // of the device
  NEED(kind == 1 ? is_to && !is_from : kind == 2 ? !is_to && is_from : kind == 3 && is_to && is_from);
  return put(s, (Op){.kind = 0, .target = to, .source = from, .bytes = bytes});
}
hipError_t hipMemsetAsync(void *to, int value, size_t bytes, Stream *s) {
  ENTER();
  return put(s, (Op){.kind = 1, .target = to, .bytes = bytes, .value = value});
}
hipError_t hipStreamCreateWithFlags(void **out, unsigned flags) { ENTER(); NEED(flags == 1); return make(out, sizeof(Stream)); }
hipError_t hipStreamDestroy(void *s) { ENTER(); return drop(s); }
hipError_t hipStreamSynchronize(Stream *s) { ENTER(); return wait_for(s); }
hipError_t hipStreamBeginCapture(Stream *s, int mode) { ENTER(); return begin(s, mode); }
hipError_t hipStreamEndCapture(Stream *s, Graph **out) { ENTER(); return finish(s, out); }
hipError_t hipGraphInstantiateWithFlags(Graph **out, Graph *g, unsigned long long flags) { ENTER(); NEED(!flags); return instantiate(out, g); }
hipError_t hipGraphLaunch(Graph *g, Stream *s) { ENTER(); return run(g, s); }
hipError_t hipGraphDestroy(Graph *g) { ENTER(); return drop_graph(g); }
hipError_t hipGraphExecDestroy(Graph *g) { ENTER(); return drop_ready(g); }
hipError_t hipEventCreateWithFlags(void **out, unsigned flags) { ENTER(); NEED(flags == 0); return make(out, sizeof(Event)); }
hipError_t hipEventRecord(Event *e, Stream *s) { ENTER(); return record(e, s); }
hipError_t hipEventSynchronize(Event *e) { ENTER(); NEED(e); return wait_for(e->stream); }
hipError_t hipEventElapsedTime(float *out, Event *a, Event *b) { ENTER(); *out = (float)(b->at - a->at); return kOk; }
hipError_t hipEventDestroy(void *e) { ENTER(); return drop(e); }
hipError_t hipModuleLoadData(Module **out, const void *image) { ENTER(); return load(out, image); }
hipError_t hipModuleUnload(Module *m) { ENTER(); free(m); --live[3]; return kOk; }
hipError_t hipModuleGetFunction(char **out, Module *m, const char *name) { ENTER(); return find(out, m, name, 160 << 10); }
hipError_t hipModuleLaunchKernel(const char *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                 unsigned shared, Stream *s, void **params, void **extra) {
  ENTER();
  return launch(f, gx, gy, gz, bx, by, bz, shared, s, params, extra, 3);
}
const char *hipGetErrorString(hipError_t code) { return code == 2 ? "out of memory" : "a fault of the fake"; }
