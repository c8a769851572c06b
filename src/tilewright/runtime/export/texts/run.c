int MODEL_run(
    struct MODEL *model,
    PARAMETERS) {
  const void *const inputs[] = {INPUT_NAMES};
  void *const outputs[] = {OUTPUT_NAMES};
  const int which = place_of(CHOSEN);
  return which < 0 ? NO_BATCH : run(model, which, inputs, outputs);
}
