int MODEL_create(struct MODEL **made, const char *weights, int device) {
  char *read = read_file(weights, FILE_BYTES);
  *made = NULL;
  const int status = read == NULL ? NO_FILE : made_of(made, read, device, NULL);
  release(read);
  return status;
}

int MODEL_clone(struct MODEL **made, const struct MODEL *of) { return made_of(made, NULL, 0, of); }
