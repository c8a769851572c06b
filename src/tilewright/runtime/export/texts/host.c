struct MODEL {
  char *weights, *memory;
  int shared; /* the weights are another one's */
};

static int made_of(struct MODEL **made, char *weights, int shared) {
  struct MODEL *model = malloc(sizeof *model);
  char *memory = allocate(MEMORY_BYTES);
  *made = NULL;
  if (model == NULL || memory == NULL) {
    free(model);
    release(memory);
    if (!shared) release(weights);
    return NO_MEMORY;
  }
  model->weights = weights;
  model->memory = memory;
  model->shared = shared;
  *made = model;
  return 0;
}

int MODEL_create(struct MODEL **made, const char *weights, int device) {
  char *found = device == 0 ? read_file(weights, WEIGHT_BYTES) : NULL;
  *made = NULL;
  if (device != 0) return NO_DEVICE;
  return found == NULL ? NO_FILE : made_of(made, found, 0);
}

int MODEL_clone(struct MODEL **made, const struct MODEL *of) {
  return made_of(made, of->weights, 1);
}

void MODEL_destroy(struct MODEL *model) {
  if (model == NULL) return;
  if (!model->shared) release(model->weights);
  release(model->memory);
  free(model);
}

const char *MODEL_error(int status) { return own_error(status); }

static int run(
    struct MODEL *model, int which, const void *const *inputs, void *const *outputs) {
  return steps[which](model->weights, model->memory, inputs, outputs) ? NO_MEMORY : 0;
}
