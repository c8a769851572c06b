#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 64, NO_FILE = 1001, NO_MEMORY, NO_DEVICE, NO_BATCH };

#define TRY(call)                       \
  do {                                  \
    const int answer = (int)(call);     \
    if (answer) return answer;          \
  } while (0)

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

/* The bytes of a file; NULL where it cannot be read, or has others than so many. Without weights
   there is no file, and there are no bytes. */
static char *read_file(const char *path, size_t bytes) {
  FILE *file = WEIGHT_COUNT ? fopen(path, "rb") : NULL;
  char *made = WEIGHT_COUNT && file == NULL ? NULL : allocate(bytes + 1);
  if (made != NULL) made[bytes] = 0;
  if (file == NULL) return made;
  if (made != NULL && (fread(made, 1, bytes, file) != bytes || fgetc(file) != EOF)) {
    release(made);
    made = NULL;
  }
  fclose(file);
  return made;
}

/* The place of a batch among those that there are, from 0 on; -1 where it is none of them. */
enum { BATCHES = BATCH_COUNT };
static int place_of(int batch) {
  static const int batches[] = {BATCH_LIST};
  for (int k = 0; k < BATCHES; ++k)
    if (batches[k] == batch) return k;
  return -1;
}

static const char *own_error(int status) {
  switch (status) {
    case 0: return "done";
    case NO_FILE: return "the weights cannot be read, or are another model's";
    case NO_MEMORY: return "there is no memory";
    case NO_DEVICE: return "there is no such device";
    case NO_BATCH: return "it was not written for such a batch";
    default: return "it failed";
  }
}
