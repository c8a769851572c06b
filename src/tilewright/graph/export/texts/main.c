/* Runs MODEL on raw files: the numbers of each array, row by row. */
#define _POSIX_C_SOURCE 199309L
#include "MODEL.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { FILES = FILE_COUNT, INPUTS = INPUT_COUNT };

static const size_t sizes[FILES] = {FILE_SIZES};

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
  if (argc != 2 + FILES && argc != 3 + FILES) {
    fprintf(stderr, "usage: %s MODEL.weights FILE_NAMES [RUNS]\n", argv[0]);
    fprintf(stderr, "DEVICE is the number of the device, 0 unless it is set\n");
    return 2;
  }
  char *data[FILES];
  for (int k = 0; k < FILES; ++k) {
    data[k] = malloc(sizes[k] + 1);
    if (data[k] == NULL || (k < INPUTS && !moved(argv[2 + k], data[k], sizes[k], 1))) {
      fprintf(stderr, "%s: it cannot be read, or is too short\n", argv[2 + k]);
      return 1;
    }
  }
  const char *device = getenv("DEVICE");
  const int runs = argc == 3 + FILES ? atoi(argv[2 + FILES]) : 0;
  struct MODEL *model = NULL;
  int status = MODEL_create(&model, argv[1], device == NULL ? 0 : atoi(device));
  if (failed("MODEL_create", status)) return 1;
  status = MODEL_run(model, RUN_NAMES);
  const double begin = seconds();
  for (int k = 0; k < runs && !status; ++k) status = ONCE;
  if (!status) status = DONE;
  if (runs > 0) printf("%.1f us a run\n", 1e6 * (seconds() - begin) / runs);
  if (failed("MODEL_run", status)) return 1;
  for (int k = INPUTS; k < FILES; ++k) {
    if (!moved(argv[2 + k], data[k], sizes[k], 0)) {
      fprintf(stderr, "%s: it cannot be written\n", argv[2 + k]);
      return 1;
    }
  }
  MODEL_destroy(model);
  for (int k = 0; k < FILES; ++k) free(data[k]);
  return 0;
}
