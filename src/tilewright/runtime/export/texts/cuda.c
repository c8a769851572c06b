struct MODEL {
  CUtensorMap maps[MAPS + 1]; /* first, since they are aligned */
  CUdevice device;
  CUcontext context;
  CUmodule modules[CODES];
  CUfunction functions[FUNCTIONS];
  CUdeviceptr bases[BLOCKS];
  CUstream stream;
  CUgraphExec graphs[BATCHES];
  int shared; /* code and weights are another one's */
};

static void leave(void) {
  CUcontext own;
  cuCtxPopCurrent(&own);
}

static int launch(struct MODEL *model, const struct launch *what, CUstream stream) {
  unsigned long long values[MOST_ARGUMENTS];
  void *parameters[MOST_ARGUMENTS];
  for (int k = 0; k < what->count; ++k) {
    const struct argument *a = arguments + what->first + k;
    values[k] = a->where < 0 ? a->at : model->bases[a->where] + a->at;
    parameters[k] = a->where == MAP ? (void *)(model->maps + a->at) : (void *)(values + k);
  }
  /* Blocks take their places as those of the kernel before leave theirs, where kernels wait for its
     results themselves (programmatic dependent launch). */
  CUlaunchAttribute follows;
  memset(&follows, 0, sizeof follows);
  follows.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  follows.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config;
  memset(&config, 0, sizeof config);
  config.gridDimX = what->grid[0];
  config.gridDimY = what->grid[1];
  config.gridDimZ = what->grid[2];
  config.blockDimX = what->block[0];
  config.blockDimY = what->block[1];
  config.blockDimZ = what->block[2];
  config.sharedMemBytes = what->shared;
  int units = 0;
  TRY(cuDeviceGetAttribute(&units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, model->device));
  if (units >= UNITS) config.sharedMemBytes = what->asked;
  config.hStream = stream;
  config.attrs = &follows;
  config.numAttrs = FOLLOWS;
  return (int)cuLaunchKernelEx(&config, model->functions[what->function], parameters, NULL);
}

/* What TMA copies boxes of. */
static int describe(struct MODEL *model) {
  int version = 0;
  TRY(cuDriverGetVersion(&version));
  for (int k = 0; k < MAPS; ++k) {
    const struct map *m = maps + k;
    if (model->bases[m->where] == 0) continue; /* of what is there for a while only */
    void *address = (void *)(uintptr_t)(model->bases[m->where] + m->at);
    CUtensorMap *made = model->maps + k;
    if (m->windows) {
      TRY(cuTensorMapEncodeIm2col(
          made, m->type, m->rank, address, m->extents, m->strides, m->first, m->last, m->box[1],
          m->box[0], m->steps, CU_TENSOR_MAP_INTERLEAVE_NONE, m->swizzle,
          CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
      /* Drivers to 13.1 mark maps of little memory wrongly. */
      if (m->small && version <= LAST_WRONG) ((uint64_t *)made)[1] &= ~((uint64_t)1 << 21);
    } else {
      TRY(cuTensorMapEncodeTiled(
          made, m->type, m->rank, address, m->extents, m->strides, m->box, m->steps,
          CU_TENSOR_MAP_INTERLEAVE_NONE, m->swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    }
  }
  return 0;
}

/* Code, weights, and what others are computed of. */
static int load(struct MODEL *model, const char *weights) {
  for (int k = 0; k < CODES; ++k) TRY(cuModuleLoadData(model->modules + k, codes[k]));
  for (int k = 0; k < FUNCTIONS; ++k) {
    CUfunction *function = model->functions + k;
    TRY(cuModuleGetFunction(function, model->modules[functions[k].code], functions[k].symbol));
    if (functions[k].shared)
      TRY(cuFuncSetAttribute(
          *function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
          (int)functions[k].shared));
  }
  for (int k = 0; k < BLOCKS; ++k) {
    const struct block *b = blocks + k;
    if (b->use == OWN) continue;
    TRY(cuMemAlloc(model->bases + k, b->bytes));
    if (b->filled) TRY(cuMemcpyHtoD(model->bases[k], weights + b->begin, b->filled));
  }
  return 0;
}

static int prepare(struct MODEL *model) {
  for (int k = 0; k < PREPARATIONS; ++k) TRY(launch(model, preparations + k, model->stream));
  TRY(cuStreamSynchronize(model->stream));
  for (int k = 0; k < BLOCKS; ++k) {
    if (blocks[k].use != ONCE) continue;
    TRY(cuMemFree(model->bases[k]));
    model->bases[k] = 0;
  }
  return 0;
}

/* The launches of a batch, with branches side by side, to be repeated by one call. */
static int enqueue(
    struct MODEL *model, int which, const CUstream *streams, const CUevent *events) {
  if (STREAMS > 1) {
    TRY(cuEventRecord(events[0], streams[0]));
    TRY(cuStreamWaitEvent(streams[1], events[0], 0));
  }
  for (int k = firsts[which]; k < firsts[which + 1]; ++k) {
    const struct launch *what = launches + k;
    CUstream own = streams[what->stream];
    if (what->waits) TRY(cuStreamWaitEvent(own, events[what->waits], 0));
    TRY(launch(model, what, own));
    if (what->marks) TRY(cuEventRecord(events[what->marks], own));
  }
  if (STREAMS > 1) {
    TRY(cuEventRecord(events[EVENTS - 1], streams[1]));
    TRY(cuStreamWaitEvent(streams[0], events[EVENTS - 1], 0));
  }
  return 0;
}

static int record(struct MODEL *model, int which) {
  CUstream streams[2] = {model->stream, NULL};
  CUevent events[EVENTS] = {NULL};
  CUgraph graph = NULL;
  int status = STREAMS > 1 ? (int)cuStreamCreate(streams + 1, CU_STREAM_NON_BLOCKING) : 0;
  for (int k = 0; k < EVENTS && !status; ++k)
    status = (int)cuEventCreate(events + k, CU_EVENT_DISABLE_TIMING);
  if (!status) status = (int)cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED);
  if (!status) {
    status = enqueue(model, which, streams, events);
    const int ended = (int)cuStreamEndCapture(streams[0], &graph);
    if (!status) status = ended;
  }
  if (!status) status = (int)cuGraphInstantiate(model->graphs + which, graph, 0);
  if (graph != NULL) cuGraphDestroy(graph);
  for (int k = 0; k < EVENTS; ++k)
    if (events[k] != NULL) cuEventDestroy(events[k]);
  if (streams[1] != NULL) cuStreamDestroy(streams[1]);
  return status;
}

static int begin(struct MODEL *model, const char *weights) {
  TRY(cuStreamCreate(&model->stream, CU_STREAM_NON_BLOCKING));
  for (int k = 0; k < BLOCKS; ++k)
    if (blocks[k].use == OWN) TRY(cuMemAlloc(model->bases + k, blocks[k].bytes));
  if (weights != NULL) TRY(load(model, weights));
  TRY(describe(model));
  if (weights != NULL) TRY(prepare(model));
  for (int k = 0; k < BATCHES; ++k) TRY(record(model, k));
  return 0;
}

static int device_of(struct MODEL *model, int number) {
  int count = 0;
  TRY(cuInit(0));
  TRY(cuDeviceGetCount(&count));
  if (number < 0 || number >= count) return NO_DEVICE;
  TRY(cuDeviceGet(&model->device, number));
  return (int)cuDevicePrimaryCtxRetain(&model->context, model->device);
}

/* With the code and the weights of another one where there is one. */
static int made_of(struct MODEL **made, const char *weights, int number, const struct MODEL *of) {
  struct MODEL *model = *made = allocate(sizeof *model);
  if (model == NULL) return NO_MEMORY;
  memset(model, 0, sizeof *model);
  int status;
  if (of == NULL) {
    status = device_of(model, number);
  } else {
    model->device = of->device;
    memcpy(model->functions, of->functions, sizeof of->functions);
    for (int k = 0; k < BLOCKS; ++k)
      if (blocks[k].use == SHARED) model->bases[k] = of->bases[k];
    model->shared = 1;
    status = (int)cuDevicePrimaryCtxRetain(&model->context, model->device);
  }
  if (!status) status = (int)cuCtxPushCurrent(model->context);
  if (!status) {
    status = begin(model, weights);
    leave();
  }
  if (status) {
    MODEL_destroy(model);
    *made = NULL;
  }
  return status;
}

void MODEL_destroy(struct MODEL *model) {
  if (model == NULL) return;
  if (model->context != NULL && cuCtxPushCurrent(model->context) == CUDA_SUCCESS) {
    if (model->stream != NULL) cuStreamSynchronize(model->stream);
    for (int k = 0; k < BATCHES; ++k)
      if (model->graphs[k] != NULL) cuGraphExecDestroy(model->graphs[k]);
    for (int k = 0; k < BLOCKS; ++k)
      if (model->bases[k] && !(model->shared && blocks[k].use == SHARED))
        cuMemFree(model->bases[k]);
    for (int k = 0; k < CODES && !model->shared; ++k)
      if (model->modules[k] != NULL) cuModuleUnload(model->modules[k]);
    if (model->stream != NULL) cuStreamDestroy(model->stream);
    leave();
  }
  if (model->context != NULL) cuDevicePrimaryCtxRelease(model->device);
  release(model);
}

unsigned long long MODEL_buffer(const struct MODEL *model, int k) { return model->bases[k]; }

int MODEL_launch(struct MODEL *model, TAKEN_VOID *stream) {
  const int which = place_of(CHOSEN);
  if (which < 0) return NO_BATCH;
  TRY(cuCtxPushCurrent(model->context));
  const int status =
      (int)cuGraphLaunch(model->graphs[which], stream == NULL ? model->stream : (CUstream)stream);
  leave();
  return status;
}

int MODEL_wait(struct MODEL *model) {
  TRY(cuCtxPushCurrent(model->context));
  const int status = (int)cuStreamSynchronize(model->stream);
  leave();
  return status;
}

static int copied(
    struct MODEL *model, int which, const void *const *inputs, void *const *outputs) {
  const CUdeviceptr *at = model->bases;
  const size_t *sizes = given[which];
  for (int k = 0; k < INPUTS; ++k)
    if (sizes[k]) TRY(cuMemcpyHtoDAsync(at[k], inputs[k], sizes[k], model->stream));
  TRY(cuGraphLaunch(model->graphs[which], model->stream));
  for (int k = 0, j = INPUTS; k < OUTPUTS; ++k, ++j)
    if (sizes[j]) TRY(cuMemcpyDtoHAsync(outputs[k], at[j], sizes[j], model->stream));
  return (int)cuStreamSynchronize(model->stream);
}

static int run(
    struct MODEL *model, int which, const void *const *inputs, void *const *outputs) {
  TRY(cuCtxPushCurrent(model->context));
  const int status = copied(model, which, inputs, outputs);
  leave();
  return status;
}

const char *MODEL_error(int status) {
  const char *text = NULL;
  if (status == 0 || status >= NO_FILE) return own_error(status);
  return cuGetErrorString((CUresult)status, &text) == CUDA_SUCCESS ? text : own_error(status);
}
