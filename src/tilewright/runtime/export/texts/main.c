/* Runs MODEL on raw files: the numbers of each array, row by row. */
#define _POSIX_C_SOURCE 200112L
#include "MODEL.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { FILES = FILE_COUNT, INPUTS = INPUT_COUNT, BATCHES = BATCH_COUNT };
/* The first argument that is a file of an array: behind the weights, and the batch. */
enum { FIRST = 1 + WEIGHT_COUNT + IS_BATCHED };

static const int batches[BATCHES] = {BATCH_LIST};
static const size_t bytes_of[BATCHES][FILES] = {FILE_SIZES};

static int moved(const char *path, char *data, size_t bytes, int reads) {
  FILE *file = fopen(path, reads ? "rb" : "wb");
  if (file == NULL) return 0;
  const size_t found = reads ? fread(data, 1, bytes, file) : fwrite(data, 1, bytes, file);
  return (fclose(file) == 0) & (found == bytes);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int failed(const char *what, int status) {
  if (status) fprintf(stderr, "%s: %s (%d)\n", what, MODEL_error(status), status);
  return status != 0;
}

int main(int argc, char **argv) {
  if (argc != FIRST + FILES && argc != FIRST + FILES + 1) {
    fprintf(stderr, "usage: %s FILE_NAMES [RUNS]\n", argv[0]);
    fprintf(stderr, "SETTINGS\n");
    return 2;
  }
  const int batch = IS_BATCHED ? atoi(argv[FIRST - 1]) : 0;
  int which = 0;
  while (which < BATCHES && batches[which] != batch) ++which;
  if (which == BATCHES) {
    fprintf(stderr, "%s: there are the batches BATCH_LIST\n", argv[FIRST - 1]);
    return 2;
  }
  const size_t *sizes = bytes_of[which];
  char *data[FILES];
  void *memory = NULL;
  for (int k = 0; k < FILES; ++k) {
    data[k] = posix_memalign(&memory, 64, sizes[k] + 1) ? NULL : memory;
    if (data[k] == NULL || (k < INPUTS && !moved(argv[FIRST + k], data[k], sizes[k], 1))) {
      const unsigned long bytes = (unsigned long)sizes[k];
      fprintf(stderr, "%s: it cannot be read, or has less than %lu bytes\n", argv[FIRST + k], bytes);
      return 1;
    }
  }
  const char *device = getenv("DEVICE");
  const int runs = argc > FIRST + FILES ? atoi(argv[FIRST + FILES]) : 0;
  struct MODEL *model = NULL;
  const char *weights = WEIGHT_COUNT ? argv[1] : NULL;
  int status = MODEL_create(&model, weights, device == NULL ? 0 : atoi(device));
  if (failed("MODEL_create", status)) return 1;
  status = MODEL_run(model, RUN_NAMES);
  const double begin = seconds();
  for (int k = 0; k < runs && !status; ++k) status = AGAIN_CALL;
  if (!status) status = WAIT_CALL;
  if (runs > 0) printf("%.1f us a run\n", 1e6 * (seconds() - begin) / runs);
  if (failed("MODEL_run", status)) return 1;
  for (int k = INPUTS; k < FILES; ++k) {
    if (!moved(argv[FIRST + k], data[k], sizes[k], 0)) {
      fprintf(stderr, "%s: it cannot be written\n", argv[FIRST + k]);
      return 1;
    }
  }
  MODEL_destroy(model);
  for (int k = 0; k < FILES; ++k) free(data[k]);
  return 0;
}
