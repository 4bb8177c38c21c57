// A GPU of host memory behind a driver's C interface, for the real Python bindings to call: what they pass is what a driver
// would get. Work is done when a stream is waited for, not before, or noted while it records; from memory that is not pinned bytes
// are taken at once. Nothing may be given back while work is due. The clock counts a millisecond per operation done.
//
// A code object is the text "FAKE:" and kernel names with commas between. Kernels:
//   fill      {uint64 at; uint32 count; uint32 value}          at[i] = value, i < count and i < blocks * threads
//   add       {uint64 at; uint32 count; float value}           at[i] += value
// With fake_fibers, code objects hold any kernel, and the function given runs them.
// A test plans a failure of a call by fake_plan, changes the devices by fake_device, and counts by fake_calls and fake_live.
#pragma once
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kOk = 0, kInvalid = 1, kOutOfMemory = 2, kNoDevice = 100, kBadDevice = 101, kBadImage = 200, kNotFound = 500 };
enum { kBytes = 1 << 20, kMaxCalls = 4096, kMaxOps = 4096, kMaxBlocks = 1024, kMaxDevices = 4 };

typedef struct { char name[64]; char arch[64]; int major, minor, wave, units, integrated; size_t shared, bytes; } Device;
typedef struct { char name[48]; int count; int planned; } Call;
typedef struct { int kind; void *target; const void *source; size_t bytes; int value; const char *kernel; uint32_t grid[3], threads;
                 void *taken; } Op;  // `taken`: a copy of the parameters, or of bytes from memory that is not pinned
typedef struct { Op ops[kMaxOps]; int count; } Graph;
typedef int (*Fibers)(const char *kernel, unsigned x, unsigned y, unsigned z, unsigned threads, const void *arguments);
typedef struct { char names[256]; } Module;
typedef struct { int recording; Graph *graph, due; } Stream;
typedef struct { double at; Stream *stream; } Event;
typedef struct { void *at; size_t bytes; int what; } Block;

static Device devices[kMaxDevices];
static int num_devices = 1, current = -1, live[5];  // live: 0 memory, 1 pinned, 2 graphs, 3 modules, 4 streams and events
static Call calls[kMaxCalls];
static int num_calls;
static Block blocks[kMaxBlocks];
static size_t used;
static double clock_ms;
static int num_due;
static Fibers fibers;
static int version = 0;

static Call *call_of(const char *name) {
  for (int i = 0; i < num_calls; ++i) if (!strcmp(calls[i].name, name)) return &calls[i];
  Call *fresh = &calls[num_calls++];
  strncpy(fresh->name, name, sizeof fresh->name - 1);
  return fresh;
}
static int enter(const char *name) {
  Call *call = call_of(name);
  ++call->count;
  int code = call->planned;
  call->planned = 0;
  return code;
}
#define ENTER() do { int planned_ = enter(__func__); if (planned_) return planned_; } while (0)
#define NEED(condition) do { if (!(condition)) return kInvalid; } while (0)

void fake_plan(const char *name, int code) { call_of(name)->planned = code; }
int fake_calls(const char *name) { return call_of(name)->count; }
int fake_live(int what) { return live[what]; }
int fake_current(void) { return current; }
void fake_version(int number) { version = number; }
void fake_fibers(Fibers run) { fibers = run; }
void fake_devices(int count) { num_devices = count; }
void fake_device(int index, const char *name, const char *arch, int major, int minor, int wave, int units,
                 int integrated, size_t shared, size_t bytes) {
  Device *device = &devices[index];
  memset(device, 0, sizeof *device);
  strncpy(device->name, name, 63);
  strncpy(device->arch, arch, 63);
  device->major = major, device->minor = minor, device->wave = wave, device->units = units, device->bytes = bytes;
  device->shared = shared, device->integrated = integrated;
}

static int take(void **out, size_t bytes, int what) {
  *out = NULL;
  size_t total = devices[current < 0 ? 0 : current].bytes;
  if (what == 0 && used + bytes > total) return kOutOfMemory;
  void *at = aligned_alloc(256, (bytes + 255) / 256 * 256);
  memset(at, 0xcd, bytes);
  for (int i = 0; i < kMaxBlocks; ++i) if (!blocks[i].at) { blocks[i] = (Block){at, bytes, what}; break; }
  if (what == 0) used += bytes;
  ++live[what];
  *out = at;
  return kOk;
}
static const Block *block_of(const void *at) {
  for (int i = 0; i < kMaxBlocks; ++i)
    if (blocks[i].at && (char *)at >= (char *)blocks[i].at && (char *)at < (char *)blocks[i].at + blocks[i].bytes) return &blocks[i];
  return NULL;
}
static int give(void *at, int what) {
  NEED(!num_due);
  for (int i = 0; i < kMaxBlocks; ++i) {
    if (!at || blocks[i].at != at) continue;
    if (what == 0) used -= blocks[i].bytes;
    blocks[i].at = NULL;
    --live[what];
    free(at);
    return kOk;
  }
  return kInvalid;
}

static int do_op(const Op *op) {
  clock_ms += 1;
  if (op->kind == 0) memmove(op->target, op->taken ? op->taken : op->source, op->bytes);
  if (op->kind == 1) memset(op->target, op->value, op->bytes);
  if (op->kind == 3) clock_ms -= 1, ((Event *)op->target)->at = clock_ms;
  if (op->kind != 2) return kOk;
  if (fibers) return fibers(op->kernel, op->grid[0], op->grid[1], op->grid[2], op->threads, op->taken) ? kInvalid : kOk;
  const unsigned char *arguments = op->taken;
  uint64_t at; uint32_t count, value; float term;
  memcpy(&at, arguments, 8), memcpy(&count, arguments + 8, 4);
  memcpy(&value, arguments + 12, 4), memcpy(&term, arguments + 12, 4);
  for (uint32_t i = 0; i < count && i < op->grid[0] * op->threads; ++i) {
    if (!strcmp(op->kernel, "fill")) ((uint32_t *)at)[i] = value;
    if (!strcmp(op->kernel, "add")) ((float *)at)[i] += term;
  }
  return kOk;
}
static void *copy_of(const void *from, size_t bytes) { return memcpy(malloc(bytes), from, bytes); }
static int append(Graph *list, Op op) {
  if (list->count == kMaxOps) return kOutOfMemory;
  list->ops[list->count++] = op;
  return kOk;
}
static int put(Stream *stream, Op op) {
  NEED(stream && current >= 0);
  if (op.kind == 0 && !block_of(op.source)) op.taken = copy_of(op.source, op.bytes);
  if (stream->recording) return append(stream->graph, op);
  ++num_due;
  return append(&stream->due, op);
}
static int wait_for(Stream *stream) {
  NEED(stream && !stream->recording);
  int failed = kOk;
  for (int i = 0; i < stream->due.count; ++i) {
    Op *op = &stream->due.ops[i];
    if (do_op(op)) failed = kInvalid;
    free(op->taken);
  }
  num_due -= stream->due.count;
  stream->due.count = 0;
  return failed;
}
static int load(Module **out, const void *image) {
  *out = NULL;
  if (!fibers && memcmp(image, "FAKE:", 5)) return kBadImage;
  Module *made = calloc(1, sizeof *made);
  made->names[0] = ',';
  if (!fibers) strncpy(made->names + 1, (const char *)image + 5, sizeof made->names - 3);
  strcat(made->names, ",");
  ++live[3];
  *out = made;
  return kOk;
}
// A function is its name, and behind it how much shared memory its launches may ask for.
enum { kNameBytes = 128 };
static unsigned *most_shared(const char *function) { return (unsigned *)(function + kNameBytes); }
static int find(char **out, Module *module, const char *name, unsigned shared) {
  char key[kNameBytes] = ",";
  *out = NULL;
  strcat(strcat(key, name), ",");
  if (!fibers && !strstr(module->names, key)) return kNotFound;
  *out = calloc(1, kNameBytes + sizeof shared);
  strcpy(*out, name);
  *most_shared(*out) = shared;
  return kOk;
}
static int launch(const char *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                  Stream *stream, void **params, void **extra, uintptr_t end) {
  NEED(kernel && gx && gy && gz && bx && by == 1 && bz == 1 && !params && extra);
  NEED(shared <= *most_shared(kernel));
  NEED((uintptr_t)extra[0] == 1 && (uintptr_t)extra[2] == 2 && (uintptr_t)extra[4] == end);
  size_t bytes = *(size_t *)extra[3];
  NEED((fibers || bytes == 16) && (uintptr_t)extra[1] % 16 == 0);
  return put(stream, (Op){.kind = 2, .kernel = kernel, .grid = {gx, gy, gz}, .threads = bx, .taken = copy_of(extra[1], bytes)});
}
static int begin(Stream *stream, int mode) {
  NEED(stream && !stream->recording && mode == 1);
  stream->recording = 1;
  stream->graph = calloc(1, sizeof(Graph));
  ++live[2];
  return kOk;
}
static int finish(Stream *stream, Graph **out) {
  *out = NULL;
  NEED(stream && stream->recording);
  stream->recording = 0;
  *out = stream->graph;
  return kOk;
}
static int instantiate(Graph **out, const Graph *graph) {
  NEED(graph);
  *out = malloc(sizeof(Graph));
  memcpy(*out, graph, sizeof(Graph));  // parameters are copied when the recorded graph goes
  for (int i = 0; i < graph->count; ++i) {
    Op *op = &(*out)->ops[i];
    if (op->taken) op->taken = copy_of(op->taken, op->kind == 2 ? malloc_usable_size(op->taken) : op->bytes);
  }
  ++live[2];
  return kOk;
}
static int drop_graph(Graph *graph) {
  NEED(graph);
  for (int i = 0; i < graph->count; ++i) {
    if (graph->ops[i].taken) memset(graph->ops[i].taken, 0xee, 8);
    free(graph->ops[i].taken);
  }
  memset(graph, 0xee, sizeof *graph);
  free(graph);
  --live[2];
  return kOk;
}
static int drop_ready(Graph *graph) {
  NEED(!num_due);
  return drop_graph(graph);
}
static int run(const Graph *graph, Stream *stream) {
  NEED(graph && stream && !stream->recording);
  for (int i = 0; i < graph->count; ++i) {
    Op op = graph->ops[i];
    if (op.taken) op.taken = copy_of(op.taken, op.kind == 2 ? malloc_usable_size(op.taken) : op.bytes);
    ++num_due;
    if (append(&stream->due, op)) return kOutOfMemory;
  }
  return kOk;
}
static int record(Event *event, Stream *stream) {
  NEED(event && stream);
  event->stream = stream;
  return put(stream, (Op){.kind = 3, .target = event, .source = event, .taken = NULL});
}
static int make(void **out, size_t bytes) {
  *out = calloc(1, bytes);
  ++live[4];
  return kOk;
}
static int drop(void *at) {
  NEED(at);
  free(at);
  --live[4];
  return kOk;
}
