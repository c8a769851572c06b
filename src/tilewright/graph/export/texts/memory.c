#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 64, NO_FILE = 1001, NO_MEMORY, NO_DEVICE };

/* Memory that begins at a multiple of ALIGNED bytes; NULL where there is none. */
static void *allocate(size_t bytes) {
  char *whole = malloc(bytes + 2 * ALIGNED);
  if (whole == NULL) return NULL;
  char *made = whole + 2 * ALIGNED - (uintptr_t)whole % ALIGNED;
  ((void **)(void *)made)[-1] = whole;
  return made;
}

static void release(void *memory) {
  if (memory != NULL) free(((void **)memory)[-1]);
}

/* The bytes of a file; NULL where it cannot be read, or has others than so many. */
static char *read_file(const char *path, size_t bytes) {
  FILE *file = fopen(path, "rb");
  char *made = file == NULL ? NULL : allocate(bytes);
  if (made != NULL && (fread(made, 1, bytes, file) != bytes || fgetc(file) != EOF)) {
    release(made);
    made = NULL;
  }
  if (file != NULL) fclose(file);
  return made;
}

static const char *own_error(int status) {
  switch (status) {
    case 0: return "done";
    case NO_FILE: return "the weights cannot be read, or are another model's";
    case NO_MEMORY: return "there is no memory";
    case NO_DEVICE: return "there is no such device";
    default: return "it failed";
  }
}
