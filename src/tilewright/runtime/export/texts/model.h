/* ABOUT

   Functions return 0, or a status, for which MODEL_error has words. A model is run by one thread at
   a time; clones, which share weights, by others. */
#ifndef GUARD
#define GUARD

#ifdef __cplusplus
extern "C" {
#endif

struct MODEL;

/* A model with the weights of a file, on DEVICES. */
int MODEL_create(struct MODEL **made, const char *weights, int device);
/* Another one with memory of its own; it is destroyed before the one that it was made of. */
int MODEL_clone(struct MODEL **made, const struct MODEL *of);
int MODEL_run(
    struct MODEL *model,
    PARAMETERS);
void MODEL_destroy(struct MODEL *model);
const char *MODEL_error(int status);
MORE
#ifdef __cplusplus
}
#endif

#endif
