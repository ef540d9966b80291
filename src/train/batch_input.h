// Writes batches to the inputs of an executable.
#pragma once

#include "backend/backend.h"
#include "data/batch_source.h"

namespace redline::train {

// Writes a batch to the inputs of an executable, which holds its lease until the device has read it.
void write_batch(backend::Executable& executable, data::Batch batch);

}  // namespace redline::train
