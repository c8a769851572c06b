struct MODEL {
  cl_device_id device;
  cl_context context;
  cl_command_queue queue;
  cl_program programs[CODES];
  cl_mem bases[BLOCKS];
  cl_kernel kernels[PREPARATIONS + LAUNCHES];
  int shared; /* code and weights are another one's */
};

/* The device of a number among those of all platforms, GPUs first. */
static int device_of(struct MODEL *model, int number) {
  const cl_device_type types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ALL};
  cl_platform_id platforms[16];
  cl_device_id devices[64];
  cl_uint count = 0, some = 0;
  int seen = 0;
  if (clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS) return NO_DEVICE;
  for (int others = 0; others < 2; ++others) {
    for (cl_uint p = 0; p < count && p < 16; ++p) {
      if (clGetDeviceIDs(platforms[p], types[others], 64, devices, &some) != CL_SUCCESS) continue;
      for (cl_uint d = 0; d < some && d < 64; ++d) {
        cl_device_type type = 0;
        TRY(clGetDeviceInfo(devices[d], CL_DEVICE_TYPE, sizeof type, &type, NULL));
        if (others && (type & CL_DEVICE_TYPE_GPU)) continue;
        model->device = devices[d];
        if (seen++ == number) return 0;
      }
    }
  }
  return NO_DEVICE;
}

/* A program of a text, whose compiler's words go to stderr where it refuses. */
static int built(struct MODEL *model, cl_program *made, const char *text) {
  int status = 0;
  *made = clCreateProgramWithSource(model->context, 1, &text, NULL, &status);
  TRY(status);
  status = clBuildProgram(*made, 1, &model->device, "", NULL, NULL);
  size_t bytes = 0;
  if (status && clGetProgramBuildInfo(
                    *made, model->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) == CL_SUCCESS) {
    char *words = allocate(bytes + 1);
    if (words != NULL && clGetProgramBuildInfo(*made, model->device, CL_PROGRAM_BUILD_LOG, bytes,
                                               words, NULL) == CL_SUCCESS) {
      words[bytes] = 0;
      fprintf(stderr, "%s\n", words);
    }
    release(words);
  }
  return status;
}

static int load(struct MODEL *model) {
  int status = 0;
  model->context = clCreateContext(NULL, 1, &model->device, NULL, NULL, &status);
  TRY(status);
  for (int k = 0; k < CODES; ++k) TRY(built(model, model->programs + k, codes[k]));
  return 0;
}

/* Memory, and kernels with what they take. */
static int place(struct MODEL *model) {
  int status = 0;
  model->queue = clCreateCommandQueue(model->context, model->device, 0, &status);
  TRY(status);
  for (int k = 0; k < BLOCKS; ++k) {
    if (model->shared && blocks[k].use != OWN) continue;
    model->bases[k] =
        clCreateBuffer(model->context, CL_MEM_READ_WRITE, blocks[k].bytes, NULL, &status);
    TRY(status);
  }
  for (int k = 0; k < PREPARATIONS + LAUNCHES; ++k) {
    const struct launch *what = k < PREPARATIONS ? preparations + k : launches + k - PREPARATIONS;
    if (k < PREPARATIONS && model->shared) continue;
    const struct function *f = functions + what->function;
    model->kernels[k] = clCreateKernel(model->programs[f->code], f->symbol, &status);
    TRY(status);
    for (int j = 0; j < what->count; ++j) {
      const struct argument *a = arguments + what->first + j;
      const void *value = a->where < 0 ? (const void *)&a->at : model->bases + a->where;
      const size_t bytes = a->where < 0 ? a->bytes : sizeof(cl_mem);
      TRY(clSetKernelArg(model->kernels[k], (cl_uint)j, bytes, value));
    }
  }
  return 0;
}

static int enqueue(cl_command_queue queue, const struct launch *what, cl_kernel kernel) {
  size_t total[3], group[3];
  for (int d = 0; d < 3; ++d) {
    group[d] = what->block[d];
    total[d] = (size_t)what->grid[d] * what->block[d];
  }
  return clEnqueueNDRangeKernel(queue, kernel, 3, NULL, total, group, 0, NULL, NULL);
}

/* Weights, and what is computed of them alone. */
static int prepare(struct MODEL *model, const char *weights) {
  for (int k = 0; k < BLOCKS; ++k)
    if (blocks[k].filled)
      TRY(clEnqueueWriteBuffer(
          model->queue, model->bases[k], CL_TRUE, 0, blocks[k].filled, weights + blocks[k].begin, 0,
          NULL, NULL));
  for (int k = 0; k < PREPARATIONS; ++k)
    TRY(enqueue(model->queue, preparations + k, model->kernels[k]));
  TRY(clFinish(model->queue));
  for (int k = 0; k < PREPARATIONS; ++k) {
    TRY(clReleaseKernel(model->kernels[k]));
    model->kernels[k] = NULL;
  }
  for (int k = 0; k < BLOCKS; ++k) {
    if (blocks[k].use != ONCE) continue;
    TRY(clReleaseMemObject(model->bases[k]));
    model->bases[k] = NULL;
  }
  return 0;
}

static int begin(struct MODEL *model, const char *weights, int number) {
  TRY(device_of(model, number));
  TRY(load(model));
  TRY(place(model));
  return prepare(model, weights);
}

/* With the code and the weights of another one. */
static int share(struct MODEL *model, const struct MODEL *of) {
  model->shared = 1;
  model->device = of->device;
  TRY(clRetainContext(of->context));
  model->context = of->context;
  for (int k = 0; k < CODES; ++k) {
    TRY(clRetainProgram(of->programs[k]));
    model->programs[k] = of->programs[k];
  }
  for (int k = 0; k < BLOCKS; ++k) {
    if (blocks[k].use != SHARED) continue;
    TRY(clRetainMemObject(of->bases[k]));
    model->bases[k] = of->bases[k];
  }
  return place(model);
}

static int made_of(struct MODEL **made, const char *weights, int number, const struct MODEL *of) {
  struct MODEL *model = *made = allocate(sizeof *model);
  if (model == NULL) return NO_MEMORY;
  memset(model, 0, sizeof *model);
  const int status = of == NULL ? begin(model, weights, number) : share(model, of);
  if (status) {
    MODEL_destroy(model);
    *made = NULL;
  }
  return status;
}

void MODEL_destroy(struct MODEL *model) {
  if (model == NULL) return;
  if (model->queue != NULL) clFinish(model->queue);
  for (int k = 0; k < PREPARATIONS + LAUNCHES; ++k)
    if (model->kernels[k] != NULL) clReleaseKernel(model->kernels[k]);
  for (int k = 0; k < BLOCKS; ++k)
    if (model->bases[k] != NULL) clReleaseMemObject(model->bases[k]);
  for (int k = 0; k < CODES; ++k)
    if (model->programs[k] != NULL) clReleaseProgram(model->programs[k]);
  if (model->queue != NULL) clReleaseCommandQueue(model->queue);
  if (model->context != NULL) clReleaseContext(model->context);
  release(model);
}

void *MODEL_buffer(const struct MODEL *model, int k) { return model->bases[k]; }

static int launch(struct MODEL *model, int which, cl_command_queue queue) {
  for (int k = firsts[which]; k < firsts[which + 1]; ++k)
    TRY(enqueue(queue, launches + k, model->kernels[PREPARATIONS + k]));
  return clFlush(queue);
}

int MODEL_launch(struct MODEL *model, TAKEN_VOID *queue) {
  const int which = place_of(CHOSEN);
  if (which < 0) return NO_BATCH;
  return launch(model, which, queue == NULL ? model->queue : (cl_command_queue)queue);
}

int MODEL_wait(struct MODEL *model) { return clFinish(model->queue); }

static int run(
    struct MODEL *model, int which, const void *const *inputs, void *const *outputs) {
  const size_t *sizes = given[which];
  cl_mem *at = model->bases;
  for (int k = 0; k < INPUTS; ++k)
    if (sizes[k])
      TRY(clEnqueueWriteBuffer(
          model->queue, at[k], CL_TRUE, 0, sizes[k], inputs[k], 0, NULL, NULL));
  TRY(launch(model, which, model->queue));
  for (int k = 0, j = INPUTS; k < OUTPUTS; ++k, ++j)
    if (sizes[j])
      TRY(clEnqueueReadBuffer(
          model->queue, at[j], CL_TRUE, 0, sizes[j], outputs[k], 0, NULL, NULL));
  return clFinish(model->queue);
}

const char *MODEL_error(int status) {
  return status < 0 ? "OpenCL refuses (CL/cl.h has the number)" : own_error(status);
}
